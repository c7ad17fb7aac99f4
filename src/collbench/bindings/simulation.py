"""What the fake backend's ranks share: faults on demand, a place to meet, and virtual clocks."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

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
            raise RequestError(f"--fault {text!r}: write corrupt:RANK, raise:RANK or hang:RANK, then @N if you like.")
        return Fault(match[1], int(match[2]), int(match[3] or 0))


class Hub:
    """What the threads share: a barrier, a slot for each rank, and the virtual clocks."""

    def __init__(self, ranks: int, timeout: float) -> None:
        self.ranks = ranks
        self.slots: list[Any] = [None] * ranks
        self.clocks = [0] * ranks
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
        """Everybody's value."""
        self.slots[rank] = value
        self.wait()
        values = list(self.slots)
        self.wait()
        return values

    def leave(self) -> None:
        """Make everybody who waits, or will, fail."""
        self._barrier.abort()


class FakeWorld:
    """The control plane through the hub."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub = hub
        self.rank = rank
        self.size = hub.ranks

    def gather(self, value: Any) -> list[Any] | None:
        """Everybody's value on rank 0."""
        values = self._hub.exchange(self.rank, value)
        return values if self.rank == 0 else None

    def bcast(self, value: Any) -> Any:
        """Rank 0's value."""
        return self._hub.exchange(self.rank, value)[0]
