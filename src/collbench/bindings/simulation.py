"""Ranks as threads of one process: how they start and meet, their control plane, virtual clocks, faults on demand."""

from __future__ import annotations

import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.reductions import Reductions
from collbench.errors import LostRankError, RequestError


@dataclass(frozen=True)
class Fault:
    """What goes wrong, on which rank, from which of its operations on."""

    kind: str
    rank: int
    at: int

    @staticmethod
    def parse(text: str) -> Fault:
        """`corrupt:1@5`.

        Raises:
            RequestError: not of that form.
        """
        match = re.fullmatch(r"(corrupt|raise|hang):(\d+)(?:@(\d+))?", text)
        if match is None:
            raise RequestError(f"--fault {text!r}: write corrupt:RANK, raise:RANK or hang:RANK, optionally with @N.")
        return Fault(match[1], int(match[2]), int(match[3] or 0))


class Hub:
    """What the threads share: a barrier, a slot for each rank, and virtual clocks for those that simulate time.

    `posts` are messages under way, by sender and receiver.
    """

    def __init__(self, ranks: int, timeout: float) -> None:
        self.ranks = ranks
        self.slots: list[Any] = [None] * ranks
        self.clocks = [0] * ranks
        self.posts: defaultdict[tuple[int, int], queue.Queue[Any]] = defaultdict(queue.Queue)
        self._barrier = threading.Barrier(ranks, timeout=timeout)

    def wait(self) -> None:
        """Meet all ranks.

        Raises:
            LostRankError: one of them is gone.
        """
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise LostRankError("fake: another rank left") from None

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """All ranks' values, by rank."""
        self.slots[rank] = value
        self.wait()
        values = list(self.slots)
        self.wait()
        return values

    def leave(self) -> None:
        """From now on every wait raises LostRankError, also those under way."""
        self._barrier.abort()


class FakeWorld(Reductions):
    """The control plane over the hub."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub = hub
        self.rank = rank
        self.size = hub.ranks

    def gather(self, value: Any) -> list[Any] | None:
        values = self._hub.exchange(self.rank, value)
        return values if self.rank == 0 else None

    def bcast(self, value: Any) -> Any:
        return self.tell(value, 0)

    def tell(self, value: Any, source: int) -> Any:
        return self._hub.exchange(self.rank, value)[source]

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        fold = np.minimum if smallest else np.add
        found: NDArray[np.int64] = fold.reduce(self._hub.exchange(self.rank, values))
        return found


def run_ranks(hub: Hub, body: Callable[[int], None], timeout: float) -> None:
    """The body for every rank: of rank 0 in this thread, of the others in daemon threads, given `timeout` s to end.

    Raises the first error of any rank; that another one left is only what follows from it.
    """
    errors: list[BaseException] = []

    def run_rank(rank: int) -> None:
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)
            hub.leave()

    threads = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(1, hub.ranks)]
    for thread in threads:
        thread.start()
    run_rank(0)
    for thread in threads:
        thread.join(timeout=timeout)
    for error in sorted(errors, key=lambda error: isinstance(error, LostRankError)):
        raise error
