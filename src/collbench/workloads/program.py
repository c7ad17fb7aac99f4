"""A workload that is a program: its parameters, how it is started, and how its output is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from collbench.errors import PlanError, nearest, nearest_and_all, suggestion
from collbench.machine.facts import Stretch, own_cores
from collbench.schema.axes import Axis, AxisKind, PlanKey
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.record import Unit, Work
from collbench.units import format_size
from collbench.workloads.software import Alternatives, Required


@dataclass(frozen=True)
class Measure:
    """A quantity that the program times. A sample is the time for `amount(case)` of `unit`.

    What happens only `once` in an execution, such as the first epoch of a training, gives one sample, which is no
    warm-up. Times that the program prints are multiples of `step` (s; 0: they have as many digits as they need).
    """

    name: str
    amount: Callable[[Case], float]
    unit: Unit = "bytes"
    shown: Literal["time", "rate"] = "rate"
    once: bool = False
    step: float = 0.0

    def work(self, case: Case) -> Work:
        return Work(amount=self.amount(case), unit=self.unit, shown=self.shown)


@dataclass(frozen=True)
class SideCommand:
    """A command beside the timed one. `figures` reads what it printed, for the check of the record.

    It fails the case with an exit code other than 0 (and 77, see `Program`), or where `figures` raises.
    """

    argv: Sequence[str]
    figures: Callable[[str], Mapping[str, float]] = lambda output: {}


@dataclass(frozen=True)
class Program:
    """A workload, whose executions give a record for each measure.

    One execution takes the samples of a case; of a program that is `repeated`, one sample. `suite` is the group that
    it is measured with. `sizes` are those of a plan that names none, in bytes or as plans spell them; without them the
    program has no size. `axes` are the program's own; `Axis.neutral` is the value of a plan that names none. `software`
    are the programs that it starts, `alternatives` those of which each case uses one, and `needs` says why else it
    cannot run here (None: it can).
    `argv(case, times)` is the command that takes `times` samples of each measure, the first ones of
    which, the warm-up, are left out. `parse(output)` gives seconds of each sample by measure, and
    `verify(case, output)` how many results are wrong; `notes(output)` is what a reader of the numbers must know. These
    read what the program printed, and may raise on output that they cannot read. A wrong result fails the case,
    whatever its times are. `elapsed(case, output)` are the seconds that the execution took by the program's own clock
    (None: the sum of a measure's samples); where they exceed the time that collbench measured, the case fails.
    `memory(case)` are the bytes that the program allocates, and `disk(case)` those of its files; a case for which there
    are not so many is refused before anything is measured. `refuses(case)` says why no execution can take a case (None:
    one can); a plan with such a case is refused. `lacks(case, folder)` is asked just before a case is measured: why
    this machine or this folder cannot give what the case needs, so that it is skipped (None: it can). `unused(case)`
    are parameters without effect in a case, which then does not have them: of cases that differ in them alone one is
    measured.
    `seconds(case)` is about how long an execution takes with the steps beside it, for estimates, where the parameters
    of the case say so (0: they do not). `computes(case, times)` are core seconds that all its ranks use besides for an
    execution that takes so many samples, about, on a core of a server of 2020 (0: not known).

    A program that works in `files` runs in an empty folder, which is removed afterwards; all its commands name files
    relative to it. One that has `scratch` files, an input and a report whose storage does not matter, runs in such a
    folder where temporary files are. `prepare(case)` are commands that are executed once before the samples of a case,
    `before(case)` those before each execution, and `after(case)` those once after the samples, such as a pass that
    verifies what was written. `figures(case, output)` are what the check measured, such as a residual. A program or a
    step that ends with exit code 77 skips the case, with the last line of its standard error as the reason.
    `repeatable(case, output)` are those figures that must come out equal wherever the same software runs the case.

    One that `takes_turns(case)` lets its world measure in turns with others (protocol.py); `slices(output)` is what
    was added on its cores while it measured, less what it used itself (None: it measured alone).
    A `distributed` program is started once on every rank of the world, with the same command, and finds the others by
    torch.distributed's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Each rank reads the output
    of its own process; a sample is the largest time over the ranks. `memory(case)` is then that of all ranks, whose
    number is `case["ranks"]`. `servers` is the parameter that counts its parameter servers, which are the first ranks;
    empty: it has none. `messages(case, output)` are the bytes of the all-reduces of a step, in their order.

    A program whose measures all happen `once` is executed once for a case, without a warm-up, whatever a plan asks for.
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
    takes_turns: Callable[[Case], bool] = lambda case: False
    slices: Callable[[str], Stretch | None] = lambda output: None
    servers: str = ""
    elapsed: Callable[[Case, str], float | None] = lambda case, output: None
    messages: Callable[[Case, str], Sequence[int]] = lambda case, output: ()

    @property
    def once(self) -> bool:
        """Whether there is nothing to take several samples of."""
        return all(measure.once for measure in self.measures)

    def missing(self, choice: str = "") -> str | None:
        """Why it cannot run here, and what would help; None: it can. `choice` is one of its alternatives."""
        needed = [software.missing for software in self._used(choice)]
        if self.alternatives is not None and not choice:
            needed.append(self.alternatives.missing)
        return next((reason for missing in (*needed, self.needs) if (reason := missing()) is not None), None)

    def libraries(self, choice: str = "") -> tuple[Library, ...]:
        """What the manifest says of what it starts or loads, with that `choice` of its alternatives."""
        return tuple(library for software in self._used(choice) if (library := software.library()) is not None)

    def _used(self, choice: str) -> tuple[Required, ...]:
        chosen = (self.alternatives.by_value[choice],) if choice and self.alternatives is not None else ()
        return (*self.software, *chosen)

    def choice(self, case: Case) -> str:
        """Which of its alternatives a case uses; empty where it has none."""
        return "" if self.alternatives is None else str(case[self.alternatives.parameter])

    def use(self, case: Case) -> str:
        """Its name, with the alternative that a case uses: `linpack blas=mkl`."""
        return self.name if self.alternatives is None else self.alternatives.use(self.name, self.choice(case))


#: The value of a parameter that counts threads: as many as the process has cores.
ALL_CORES = 0

#: Words of a parameter that a message lists; of more it names the most similar one.
MOST_LISTED = 24


def threads_of(requested: int) -> int:
    """So many threads; for `ALL_CORES` as many as this process may use cores."""
    return requested or len(own_cores())


def threads_of_rank(requested: int, environ: Mapping[str, str] = os.environ) -> int:
    """So many threads; for `ALL_CORES` as many as OMP_NUM_THREADS says, its part of the cores that ranks share."""
    return requested or int(environ.get("OMP_NUM_THREADS") or threads_of(requested))


def parameter(
    name: str, default: int | str, means: str, *, least: int | None = None, most: int | None = None,
    among: tuple[str, ...] = (), groups: Mapping[str, tuple[str, ...]] | None = None, kind: AxisKind = "what",
) -> Axis:  # fmt: skip
    """An axis of a benchmark; its values have the type of the default.

    A number lies from `least` to `most`, a word is `among` those named; the name of one of the `groups` stands for all
    its words.
    """

    def check(key: str, value: Any) -> None:
        if among and value not in among:
            known = (*(groups or ()), *among)
            if len(known) > MOST_LISTED:
                advice = suggestion(str(value), known)
            elif nearest(str(value), known):
                advice = nearest_and_all(str(value), known)
            else:
                advice = f"choose one of {', '.join(known)}."
            raise PlanError(f"{key} {value!r}: {advice}")
        if least is not None and value < least:
            raise PlanError(f"{key} {value}: must be at least {least}.")
        if most is not None and value > most:
            raise PlanError(f"{key} {value}: at most {most:,}.")

    def words(value: Any) -> str:
        return "" if value is None else f"{name.replace('_', ' ')} {value}"

    plan_key = PlanKey(name, (default,), check=check, groups=groups or {})
    return Axis(name, kind, means, default, of=type(default), words=words, plan_key=plan_key)


class ProgramCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for. `case` is without a measure.

    `memory` and `disk` are the bytes that the program allocates, and those of the files that it makes.
    """

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
        return " ".join((self.case.workload, *(f"{name}={value}" for name, value in settings.items())))
