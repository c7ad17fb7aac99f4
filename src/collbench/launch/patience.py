"""How long a world is waited for: for its next record, and for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.schema.plan import Plan
from collbench.schema.progress import PROGRESS
from collbench.units import counted

#: Ranks end themselves at the plan's time-out; a world is ended from outside so much later (s). They count from when
#: their interpreters run: until they have met, a busy machine has so long (s) in addition to start them.
GRACE, STARTING = 15.0, 120.0

#: Executions of a case besides its samples: what prepares and what verifies.
OTHER_EXECUTIONS = 3

#: The most that a pass of a waiting loop counts for (s). One that took longer did not wait for the world: the driver
#: was suspended, or the machine was.
LONGEST_PASS = 1.0


@dataclass(frozen=True)
class Limits:
    """How long the start of a world and each of its cases may take (s), and how many cases there are.

    A case has so many `executions`, each of which may take as long.
    """

    start: float
    case: float
    cases: int
    executions: int = 1

    @property
    def all(self) -> float:
        """How long the whole world may take (s)."""
        return self.start + self.case * max(self.cases, 1) * self.executions


def limits_of(plan: Plan, cases: int) -> Limits:
    """A rank may show no progress for the time-out, when the ranks meet and in each case; a case has its budget too.

    A program may take the time-out in each of its executions, before which it says that it makes progress.
    """
    executions = 1
    if plan.benchmarks:
        executions = plan.warmup + (plan.floor if plan.iters is None else plan.iters) + OTHER_EXECUTIONS
    case = plan.budget_seconds + plan.timeout_seconds + GRACE
    return Limits(plan.timeout_seconds + STARTING, case, cases, executions)


def in_turns(limits: Limits, worlds: int) -> Limits:
    """Of a world beside others, each of which may take as long while it sleeps, and a little more."""
    return replace(limits, case=limits.case * (worlds + 1))


class Patience:
    """A clock for the wait for a world.

    Only what a world writes counts as progress, not what it prints: a manifest once its ranks have met, then records.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._last, self._waited, self._silent, self._seen = clock(), 0.0, 0.0, 0

    def ended(self, written: int) -> str | None:
        """Called in each pass of the waiting loop, with the bytes written so far: why the wait ends, if it does."""
        now = self._clock()
        passed, self._last = min(now - self._last, LONGEST_PASS), now
        self._waited += passed
        self._silent = 0.0 if written > self._seen else self._silent + passed
        self._seen = max(written, self._seen)
        allowed = self._limits.case + (self._limits.start if self._seen == 0 else 0.0)
        if self._silent > allowed:
            return f"no record for {allowed:g} s"
        if self._waited > self._limits.all:
            return f"it took longer than {self._limits.all:g} s, the limit for {counted(self._limits.cases, 'case')}"
        return None


def written_to(out: Path) -> Callable[[], int]:
    """A function that says how many bytes of manifest, records and progress there are in a world's folder."""
    return lambda: sum(_size(out / name) for name in ("manifest.json", "records.jsonl", PROGRESS))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
