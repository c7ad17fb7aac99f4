"""Stop rules: how many samples are enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

#: No batch is planned to take longer than this (s): between batches ranks agree, feed the watchdog and can be stopped.
LONGEST_BATCH = 0.5
FIRST_BATCH = 10
LARGEST_BATCH = 2_000


class StopRule(Protocol):
    """Decides after every batch."""

    def next_batch(self, done: int, seconds: float) -> int:
        """Samples to take next, 0 to stop, after `done` samples that took `seconds` including their gates."""


def _batch(remaining: int, done: int, seconds: float) -> int:
    if done == 0:
        return min(remaining, FIRST_BATCH)
    affordable = LONGEST_BATCH * done / seconds if seconds > 0 else math.inf
    return max(1, min(remaining, int(min(affordable, LARGEST_BATCH))))


@dataclass(frozen=True)
class Fixed:
    """Exactly `n` samples."""

    n: int

    def next_batch(self, done: int, seconds: float) -> int:
        return 0 if done >= self.n else _batch(self.n - done, done, seconds)


@dataclass(frozen=True)
class Budget:
    """As many samples as fit into `seconds`, but at least `floor` and at most `cap`."""

    seconds: float
    floor: int
    cap: int

    def next_batch(self, done: int, seconds: float) -> int:
        """What the remaining budget allows at the pace so far."""
        if done >= self.cap or (done >= self.floor and seconds >= self.seconds):
            return 0
        if done == 0:
            return min(self.cap, FIRST_BATCH)
        affordable = done * max(self.seconds - seconds, 0.0) / seconds if seconds > 0 else math.inf
        wanted = max(int(min(affordable, self.cap)), self.floor - done)
        return _batch(min(wanted, self.cap - done), done, seconds) if wanted > 0 else 0
