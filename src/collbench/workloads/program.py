"""A workload that is a program: how it is started, how its output is read, and how its result is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.record import Unit, Work
from collbench.workloads.software import Software


@dataclass(frozen=True)
class Measure:
    """A quantity that the program times. A sample is the time for `amount(case)` of `unit`."""

    name: str
    amount: Callable[[Case], float]
    unit: Unit = "bytes"
    shown: Literal["time", "rate"] = "rate"

    def work(self, case: Case) -> Work:
        return Work(amount=self.amount(case), unit=self.unit, shown=self.shown)


def _nothing(output: str) -> Sequence[str]:
    return ()


def _needs_nothing() -> str | None:
    return None


def _needs_little(case: Case) -> int:
    return 0


def _takes_all(case: Case) -> str | None:
    return None


@dataclass(frozen=True)
class Program:
    """A workload, whose executions give a record for each measure.

    One execution takes the samples of a case; of a program that is `repeated`, one sample. `suite` is the group that
    it is measured with. `sizes` are those of a plan that names none, in bytes or as plans spell them; without them the
    program has no size. `axes` are the program's own; `Axis.neutral` is the value of a plan that names none. `software`
    are the programs that it starts, and `needs` says why else it cannot run here (None: it can).
    `argv(case, times)` is the command that takes `times` samples of each measure, the first ones of
    which, the warm-up, are left out. `parse(output)` gives seconds of each sample by measure, and
    `verify(case, output)` how many results are wrong; `notes(output)` is what a reader of the numbers must know. These
    read what the program printed, and may raise on output that they cannot read. A wrong result fails the case,
    whatever its times are. `memory(case)` are the bytes that the program allocates; a case for which there are not so
    many is refused before anything is measured. `refuses(case)` says why no execution can take a case (None: one can);
    a plan with such a case is refused.
    """

    name: str
    title: str
    summary: str
    measures: tuple[Measure, ...]
    argv: Callable[[Case, int], Sequence[str]]
    parse: Callable[[str], Mapping[str, Sequence[float]]]
    verify: Callable[[Case, str], int]
    needs: Callable[[], str | None] = _needs_nothing
    sizes: tuple[str | int, ...] = ()
    axes: tuple[Axis, ...] = ()
    notes: Callable[[str], Sequence[str]] = _nothing
    memory: Callable[[Case], int] = _needs_little
    refuses: Callable[[Case], str | None] = _takes_all
    suite: str = ""
    software: tuple[Software, ...] = ()
    repeated: bool = False

    def missing(self) -> str | None:
        """Why it cannot run here, and what would help; None: it can."""
        reasons = (*(software.missing() for software in self.software), self.needs())
        return next((reason for reason in reasons if reason is not None), None)

    def libraries(self) -> tuple[Library, ...]:
        """What the manifest says of the programs that it starts."""
        return tuple(library for software in self.software if (library := software.library()) is not None)
