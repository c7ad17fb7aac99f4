"""A process's ends of the pipes by which worlds take turns: it reports, and sleeps until an order comes.

The driver opens all pipes before a world exists, and a process opens one end of its own: once the driver is gone, the
process reads the end of its orders.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from collbench.schema.turns import ORDERS, REPORTS, Order, Report

#: How often a sleeping process looks after something else (s).
NAP = 1.0


class TurnPipes:
    """The pipes of a rank; rank 0 reports.

    `asleep` (processor seconds of all threads) and `slept` (s) are of the last sleep.

    Raises:
        OSError: they are not there.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._orders = os.open(folder / ORDERS.format(rank=rank), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._reports = os.open(folder / REPORTS, os.O_WRONLY | os.O_CLOEXEC) if rank == 0 else -1
        self.asleep, self.slept = 0.0, 0.0

    @property
    def descriptors(self) -> frozenset[int]:
        return frozenset((self._orders, self._reports))

    def report(self, report: Report) -> None:
        """Tell the driver; of other ranks than 0 nothing."""
        line = msgspec.json.encode(report) + b"\n" if self._reports >= 0 else b""
        while line:
            line = line[os.write(self._reports, line) :]

    def sleep(self, nap: Callable[[], None] = lambda: None) -> Order:
        """Until the next order comes; `nap` is called every now and then.

        Raises:
            EOFError: the driver is gone.
        """
        used, began = time.process_time_ns(), time.monotonic()
        poll, line = select.poll(), b""
        poll.register(self._orders, select.POLLIN)
        while not line.endswith(b"\n"):
            if poll.poll(NAP * 1000):
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(self._orders, 1 << 12)
                    if not piece:
                        raise EOFError("the driver is gone")
                    line += piece
            nap()
        self.asleep, self.slept = (time.process_time_ns() - used) * 1e-9, time.monotonic() - began
        return msgspec.json.decode(line, type=Order)

    def close(self) -> None:
        """Give the pipes back."""
        for descriptor in self.descriptors - {-1}:
            os.close(descriptor)
