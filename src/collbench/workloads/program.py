"""A workload that is a program: its parameters, how it is started, and how its output is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import PlanError, nearest, nearest_and_all, suggestion
from collbench.machine.facts import Stretch, own_cores
from collbench.schema.axes import AXES, Axis, AxisKind, PlanKey, within
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.record import Shown, Unit, Work
from collbench.units import format_size
from collbench.workloads.software import Alternatives, Required


class Unreadable(Exception):
    """Output of a program that is not understood; the text says why."""


@dataclass(frozen=True)
class Measure:
    """A quantity that the program times. A sample is the time for `amount(case)` of `unit`.

    What happens only `once` in an execution gives one sample. Times that are printed are multiples of `step` (s). Cases
    to which it does not apply have no such measure.
    """

    name: str
    amount: Callable[[Case], float]
    unit: Unit = "bytes"
    shown: Shown = "rate"
    once: bool = False
    step: float = 0.0
    applies: Callable[[Case], bool] = lambda case: True

    def work(self, case: Case) -> Work:
        return Work(amount=self.amount(case), unit=self.unit, shown=self.shown)


@dataclass(frozen=True)
class SideCommand:
    """A command beside the timed one. `figures` reads what it printed, for the check of the record.

    A failure is said of its `title`, or of its first word.
    """

    argv: Sequence[str]
    figures: Callable[[str], Mapping[str, float]] = lambda output: {}
    title: str = ""


@dataclass(frozen=True)
class Program:
    """A workload, whose executions give a record for each measure.

    docs/extending.md says what each field is for. None of a function that gives a reason means that there is none.
    Functions that read the `output` of the program may raise where they cannot. One execution takes the samples of a
    case; of a program that is `repeated`, one sample; one whose measures all happen `once` is executed once for a case,
    without a warm-up. All ranks read the output of the `reporter`, or each its own. `computes` are core seconds on a
    server of 2020 (0: not known). All commands of a program that works in `files`, or has `scratch` files, name them
    relative to its folder. What was added on the cores while it measured in turns (`slices`) is without what it used
    itself.
    """

    name: str
    title: str
    summary: str
    measures: tuple[Measure, ...]
    argv: Callable[[Case, int], Sequence[str]]
    parse: Callable[[str], Mapping[str, Sequence[float]]]
    verify: Callable[[Case, str], int]
    needs: Callable[[], str | None] = lambda: None
    sizes: tuple[str | int, ...] = ()
    axes: tuple[Axis, ...] = ()
    notes: Callable[[str], Sequence[str]] = lambda output: ()
    files: bool = False
    scratch: bool = False
    prepare: Callable[[Case], Sequence[SideCommand]] = lambda case: ()
    before: Callable[[Case], Sequence[SideCommand]] = lambda case: ()
    after: Callable[[Case], Sequence[SideCommand]] = lambda case: ()
    figures: Callable[[Case, str], Mapping[str, float]] = lambda case, output: {}
    repeatable: Callable[[Case, str], Mapping[str, float]] = lambda case, output: {}
    lacks: Callable[[Case, Path], str | None] = lambda case, folder: None
    memory: Callable[[Case], int] = lambda case: 0
    disk: Callable[[Case], int] = lambda case: 0
    refuses: Callable[[Case], str | None] = lambda case: None
    unused: Callable[[Case], Collection[str]] = lambda case: ()
    seconds: Callable[[Case], float] = lambda case: 0.0
    computes: Callable[[Case, int], float] = lambda case, times: 0.0
    suite: str = ""
    software: tuple[Required, ...] = ()
    alternatives: Alternatives | None = None
    repeated: bool = False
    distributed: bool = False
    reporter: int | None = None
    notes_stderr: bool = False
    own_threads: bool = False
    takes_turns: Callable[[Case], bool] = lambda case: False
    slices: Callable[[str], Stretch | None] = lambda output: None
    servers: str = ""
    elapsed: Callable[[Case, str], float | None] = lambda case, output: None
    messages: Callable[[Case, str], Sequence[int]] = lambda case, output: ()

    def read(self, case: Case, output: str, wall: float) -> Mapping[str, Sequence[float]]:
        """Seconds of each sample, by measure, of an execution that took `wall` (s)."""
        return self.parse(output)

    def measures_of(self, case: Case) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if measure.applies(case))

    @property
    def once(self) -> bool:
        """Whether there is nothing to take several samples of."""
        return all(measure.once for measure in self.measures)

    def missing(self, choice: str = "") -> str | None:
        """Why it cannot run here, and what would help; None: it can. `choice` is one of its alternatives."""
        alternatives = (self.alternatives.missing,) if self.alternatives and not choice else ()
        needed = (*(software.missing for software in self._used(choice)), *alternatives, self.needs)
        return next((reason for missing in needed if (reason := missing()) is not None), None)

    def libraries(self, choice: str = "") -> tuple[Library, ...]:
        """What the manifest says of what it starts or loads, with that `choice` of its alternatives."""
        return tuple(library for software in self._used(choice) if (library := software.library()) is not None)

    def _used(self, choice: str) -> tuple[Required, ...]:
        return (*self.software, self.alternatives.by_value[choice]) if choice and self.alternatives else self.software

    def choice(self, case: Case) -> str:
        """Which of its alternatives a case uses; empty where it has none."""
        return "" if self.alternatives is None else str(case[self.alternatives.parameter])

    def use(self, case: Case) -> str:
        """Its name, with the alternative that a case uses: `linpack blas=mkl`."""
        return self.name if self.alternatives is None else self.alternatives.use(self.name, self.choice(case))

    def uses(self, benchmark: str | Mapping[str, Any]) -> tuple[str, ...]:
        """The same of all cases that a benchmark of a plan stands for."""
        alternatives = self.alternatives
        if alternatives is None:
            return (self.name,)
        return tuple(alternatives.use(self.name, value) for value in alternatives.chosen(benchmark))


#: Double-precision operations a second of a core of a server of 2020, about, for plans.
CORE_FLOPS = 3.5e10

#: The value of a parameter that counts threads: as many as the process has cores.
ALL_CORES = 0


def threads_of(requested: int) -> int:
    """So many threads; for `ALL_CORES` as many as this process may use cores."""
    return requested or len(own_cores())


def threads_of_rank(requested: int, environ: Mapping[str, str] = os.environ) -> int:
    """So many threads; for `ALL_CORES` as many as OMP_NUM_THREADS says, its part of the cores that ranks share."""
    return requested or int(environ.get("OMP_NUM_THREADS") or threads_of(requested))


def parameter(
    name: str, default: float | str, means: str, *, least: float | None = None, most: float | None = None,
    among: tuple[str, ...] = (), groups: Mapping[str, tuple[str, ...]] | None = None, kind: AxisKind = "what",
) -> Axis:  # fmt: skip
    """An axis of a benchmark; its values have the type of the default.

    A number lies from `least` to `most`, a word is `among` those named; the name of one of the `groups` stands for all
    its words. ValueError: an axis of every case has that name.
    """
    if name in AXES and (AXES[name].kind, AXES[name].of) != (kind, type(default)):
        raise ValueError(f"parameter {name}: an axis of every case has that name, in `{AXES[name].kind}`")

    def check(key: str, value: Any) -> None:
        if among and value not in among:
            words = (*(groups or ()), *among)
            if len(words) > 24:  # too many to list
                advice = suggestion(str(value), words)
            elif nearest(str(value), words):
                advice = nearest_and_all(str(value), words)
            else:
                advice = f"choose one of {', '.join(words)}."
            raise PlanError(f"{key} {value!r}: {advice}")
        within(least, most)(key, value)

    return Axis(
        name, kind, means, default, of=type(default),
        words=lambda value: "" if value is None else f"{name.replace('_', ' ')} {value}",
        plan_key=PlanKey(name, (default,), check=check, groups=groups or {}),
    )  # fmt: skip


class ProgramCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case without a measure, with the bytes that the program allocates (`memory`), and of its files (`disk`)."""

    case: Case
    measures: tuple[str, ...]
    memory: int = 0
    disk: int = 0

    @property
    def identities(self) -> tuple[Case, ...]:
        """The cases as they are recorded, one for each measure."""
        return tuple(self.case.having(measure=measure) for measure in self.measures)

    @property
    def title(self) -> str:
        """`stream size=64M`."""
        settings = {**self.case.what, **self.case.how}
        if "size" in settings:
            settings["size"] = format_size(self.case["size"])
        return " ".join((self.case.workload, *(f"{name}={value}" for name, value in settings.items() if value != "")))
