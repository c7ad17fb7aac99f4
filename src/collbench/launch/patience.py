"""How long a world is waited for: for its next record, and for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collbench.schema.plan import Plan

#: The ranks end themselves at the plan's time-out; so much later (s) a world is ended from outside. They count from
#: where their interpreters run: until they have met, a busy machine has so long (s) more to start them.
GRACE, STARTING = 15.0, 120.0

#: A pass of a waiting loop counts for so long at most (s). One that took longer was not a wait for the world: the
#: driver was stopped, or the machine stood still.
LONGEST_PASS = 1.0


@dataclass(frozen=True)
class Limits:
    """Of a world: the meeting of its ranks, each of its cases (s), and how many cases there are."""

    start: float
    case: float
    cases: int

    @property
    def all(self) -> float:
        """Of the whole world (s)."""
        return self.start + self.case * max(self.cases, 1)


def limits_of(plan: Plan, cases: int) -> Limits:
    """A rank may show no progress for the time-out, when the ranks meet and in each case; a case has its budget too."""
    return Limits(plan.timeout_seconds + STARTING, plan.budget_seconds + plan.timeout_seconds + GRACE, cases)


class Patience:
    """Counts while a world is waited for.

    What it prints is no progress, only what it writes: a manifest once its ranks have met, a record for each case.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._last, self._waited, self._silent, self._seen = clock(), 0.0, 0.0, 0

    def ended(self, written: int) -> str | None:
        """To be called in each pass of the waiting loop, with the bytes written so far; why it ends, if it does."""
        now = self._clock()
        passed, self._last = min(now - self._last, LONGEST_PASS), now
        self._waited += passed
        self._silent = 0.0 if written > self._seen else self._silent + passed
        self._seen = max(written, self._seen)
        allowed = self._limits.case + (self._limits.start if self._seen == 0 else 0.0)
        if self._silent > allowed:
            return f"no record came for {allowed:g} s"
        if self._waited > self._limits.all:
            return f"it took longer than {self._limits.all:g} s, the most that {self._limits.cases} cases may take"
        return None


def written_to(out: Path) -> Callable[[], int]:
    """Asks how many bytes of manifest and records there are in the folder that a world writes to."""

    def ask() -> int:
        return sum(_size(out / name) for name in ("manifest.json", "records.jsonl"))

    return ask


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
