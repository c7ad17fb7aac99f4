"""How a world is waited for: its output, its time limits, and signals that end an experiment at safe points.

An exception in the middle of a request would leave behind what the engine was just making. A second signal does not
wait for a safe point: removal gets a moment, then every wait ends.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from collbench.errors import Interrupted
from collbench.machine.launcher import to_handle
from collbench.schema.plan import Plan
from collbench.schema.store import PROGRESS
from collbench.units import counted

#: The most lines that are kept, and characters of each; and of one that is an answer in JSON.
MOST_LINES, LONGEST_LINE, LONGEST_ANSWER = 20_000, 2_000, 1 << 20

#: Last lines that go into a failed record.
TAIL = 12

#: Of how many last lines of standard error a library's message is made, and how many characters it has at most.
MESSAGE_LINES, LONGEST_MESSAGE = 40, 450

#: What differs from launch to launch where the cause is one: the rank that says it first, addresses in its memory, and
#: where its plan and records were, folders that are gone with the launch. The lines themselves stay among the last.
_OF_A_LAUNCH = re.compile(
    r"^rank \d+: |^plan \S+/plan\.json: |(?<=\b0x)[0-9a-f]{4,}|\.? \d+ records? (?:is|are) in \S+: collbench show \S+$"
)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: A line between two messages of Open MPI or MPICH, and how a launcher begins that a rank has ended. What torchrun says
#: of it are pages, the last in its output.
_RULE = re.compile(r"[-=]{20,}")
_LAUNCHER = re.compile(r"(prterun|mpirun|mpiexec) (detected|noticed)")
_TORCHRUN = re.compile(r"[WE]\d{4} .*torch/distributed/elastic/")


class Lines:
    """Lines of an output that comes in pieces. Of each line the first `longest` bytes are kept."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest, self._begun = longest, b""

    def of(self, piece: bytes) -> list[str]:
        """The lines that this piece ends."""
        first, *others = piece.split(b"\n")
        first = self._begun + first[: self._longest - len(self._begun)]
        *ended, self._begun = (first, *(line[: self._longest] for line in others))
        return [line.decode("utf-8", "replace") for line in ended]

    def last(self) -> list[str]:
        """The line that nothing ended, if there is one."""
        line, self._begun = self._begun, b""
        return [line.decode("utf-8", "replace")] if line else []


class Log:
    """Filled by threads that follow a world's processes, read by the one that waits; `longest` characters a line."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self._lines: deque[tuple[bool, str]] = deque(maxlen=MOST_LINES)
        self._lock = threading.Lock()

    def add(self, is_error: bool, *lines: str) -> None:
        """Lines of standard output or error. Control characters, which act on a terminal, are removed."""
        with self._lock:
            self._lines.extend((is_error, _CONTROL.sub("", line)[: self.longest]) for line in lines)

    @property
    def lines(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(line for _, line in self._lines)

    @property
    def message(self) -> str:
        """The last message of the ranks, as the end of a reason, equal for equal causes; empty where there is none."""
        messages = [line.partition("collbench: ")[2] for line in self.lines if line.startswith("collbench: ")]
        return f": {_OF_A_LAUNCH.sub('', messages[-1])}" if messages else ""

    def library_message(self, quiet: Callable[[str], bool] = lambda line: False) -> str:
        """What standard error tells last, as the end of a reason, a launcher's words only if it has no others."""
        with self._lock:
            lines = [line for is_error, line in self._lines if is_error and line.strip() and not quiet(line)]
        before = list(takewhile(lambda line: not _TORCHRUN.match(line), lines))
        messages: list[list[str]] = [[]]
        for line in (before or lines)[-MESSAGE_LINES:]:
            if _RULE.match(line):
                messages.append([])
            else:
                messages[-1].append(line.strip(" *"))
        of_program = [message for message in messages if message and not _LAUNCHER.match(message[0])]
        text = " ".join(" ".join(dict.fromkeys(line for message in of_program or messages for line in message)).split())
        if not text:
            return ""
        return f": {text}" if len(text) <= LONGEST_MESSAGE else f": {whole_words(text, LONGEST_MESSAGE)} ..."

    def tail(self, quiet: Callable[[str], bool] = lambda line: False) -> tuple[str, ...]:
        """The last lines of standard error, or of standard output where that is empty; without `quiet` lines."""
        with self._lock:
            lines = [(is_error, line) for is_error, line in self._lines if line.strip()]
        errors = [line for is_error, line in lines if is_error] or [line for _, line in lines]
        return tuple([line for line in errors if not quiet(line)][-TAIL:])


def whole_words(text: str, most: int) -> str:
    """The beginning of a text, of at most so many characters, that does not end within a word (of less than 80)."""
    if len(text) <= most:
        return text
    end = max(text.rfind(" ", 0, most + 1), text.rfind("\n", 0, most + 1))
    return text[: end if end > max(0, most - 80) else most].rstrip()


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
    """How long the start of a world and each `executions` of its `cases` may take (s)."""

    start: float
    case: float
    cases: int
    executions: int = 1

    @property
    def all(self) -> float:
        """How long the whole world may take (s)."""
        return self.start + self.case * max(self.cases, 1) * self.executions


def limits_of(plan: Plan, cases: int, others: int = 0) -> Limits:
    """A rank may show no progress for the time-out, when the ranks meet and in each case; a case has its budget too.

    A program may take the time-out in each of its executions, before which it says that it makes progress. Each of the
    `others` that take turns with a world may take as long while it sleeps.
    """
    executions = plan.warmup + (plan.floor if plan.iters is None else plan.iters) + OTHER_EXECUTIONS
    case = plan.budget_seconds + plan.timeout_seconds + GRACE
    return Limits(plan.timeout_seconds + STARTING, case * (others + 1), cases, executions if plan.benchmarks else 1)


class Timeouts:
    """A clock for the wait for a world. Its progress is what it writes: a manifest once its ranks have met, records."""

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


def written_to(out: Path) -> int:
    """How many bytes of manifest, records and progress there are in a world's folder."""
    total = 0
    for name in ("manifest.json", "records.jsonl", PROGRESS):
        with contextlib.suppress(OSError):
            total += (out / name).lstat().st_size
    return total


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
        """A safe point, or Interrupted: a signal asked to stop."""
        if self.requested:
            raise Interrupted("interrupted.")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which signals are handled here; Interrupted: after a second signal and a moment.

        Inside, that is a KeyboardInterrupt, which is not caught as an error of the engine or of a launch.
        """

        def on_signal(number: int, frame: object) -> None:
            if number == signal.SIGALRM:
                raise KeyboardInterrupt
            if self.requested and signal.SIGALRM not in before:
                before[signal.SIGALRM] = signal.signal(signal.SIGALRM, on_signal)
                signal.setitimer(signal.ITIMER_REAL, MOMENT, AGAIN)
            self.requested = True

        before: dict[signal.Signals, Any] = {number: signal.signal(number, on_signal) for number in to_handle()}
        try:
            yield
        except KeyboardInterrupt as error:
            interrupted = Interrupted("interrupted.")
            interrupted.__notes__ = list(getattr(error, "__notes__", ()))
            raise interrupted from error
        finally:
            if signal.SIGALRM in before:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)
