"""Ends a server as soon as one of its workers has died: gloo tells nobody who receives from any rank."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

#: Messages of lifelines; those of the training have tag 0.
_TAG = 1

#: A training may take that long. It is ended by whoever started it.
_LONGEST = timedelta(days=7)


class Lifelines:
    """For each of these ranks a message that comes when it has done its part, or never."""

    def __init__(self, ranks: Sequence[int], lost: Callable[[int, Exception], None]) -> None:
        self._lost = lost
        waits = [(rank, dist.irecv(torch.zeros(1), rank, tag=_TAG)) for rank in ranks]
        self._threads = [threading.Thread(target=self._hold, args=wait, daemon=True) for wait in waits]
        for thread in self._threads:
            thread.start()

    def _hold(self, rank: int, message: dist.Work) -> None:
        try:
            message.wait(_LONGEST)
        except RuntimeError as error:
            self._lost(rank, error)

    def end(self) -> None:
        """When all of them have done their part."""
        for thread in self._threads:
            thread.join()


def let_go(servers: int) -> None:
    """Say that this rank has done its part."""
    for server in range(servers):
        dist.send(torch.zeros(1), server, tag=_TAG)


def fail(reason: str) -> NoReturn:
    """End this process at once, whatever its other threads wait for; the last line on standard error is the reason."""
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    os._exit(1)
