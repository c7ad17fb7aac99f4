"""How long a world is waited for, and signals that end an experiment at safe points.

An exception in the middle of a request would leave behind what the engine was just making. A second signal does not
wait for a safe point: removal gets a moment, then every wait ends.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collbench.errors import Interrupted
from collbench.machine.process import to_handle
from collbench.schema.plan import Plan
from collbench.schema.store import PROGRESS
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


#: Called at a safe point; raises Interrupted after a signal.
StopCheck = Callable[[], None]

#: After the second signal, how long (s) everything continues, and then the interval at which it is interrupted: an
#: interrupted wait may be followed by another, for what is to be removed.
MOMENT, AGAIN = 1.0, 0.4


class Stopping:
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def check(self) -> None:
        """A safe point.

        Raises:
            Interrupted: a signal asked to stop.
        """
        if self.requested:
            raise Interrupted("interrupted.")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which signals are handled here.

        Raises:
            Interrupted: after a second signal and a moment. Inside, that is a KeyboardInterrupt, which is not caught
                as an error of the engine or of a launch.
        """

        def on_signal(number: int, frame: object) -> None:
            if self.requested and signal.SIGALRM not in before:
                before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _interrupt)
                signal.setitimer(signal.ITIMER_REAL, MOMENT, AGAIN)
            self.requested = True

        before: dict[signal.Signals, Any] = {number: signal.signal(number, on_signal) for number in to_handle()}
        try:
            yield
        except KeyboardInterrupt as error:
            interrupted = Interrupted("interrupted.")
            for note in getattr(error, "__notes__", ()):
                interrupted.add_note(note)
            raise interrupted from error
        finally:
            if signal.SIGALRM in before:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
