"""Facts of a run: what it lacks, whether verdicts ended it, and which samples files its records name."""

from __future__ import annotations

import shlex
from array import array
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from collbench.errors import RequestError
from collbench.schema.case import Case
from collbench.schema.gate_plan import is_gate
from collbench.schema.manifest import Experiment, Manifest
from collbench.schema.record import Record
from collbench.schema.store import is_being_written
from collbench.units import counted


class Launched(Protocol):
    """A cell, as far as its launches go: those with a time, and how many were lost, failed, or skipped."""

    medians: array[float]
    failed: int
    skipped: int

    @property
    def lost(self) -> Sized: ...


def few_launches(cells: Iterable[Launched], experiment: Experiment) -> str:
    """What an experiment that was stopped lacks; empty where every cell has all its launches, or may have fewer."""
    short = 0 if experiment.until == "decided" else _short(cells, experiment.launches)
    return f"fewer launches than its {experiment.launches} in {counted(short, 'cell')}" if short else ""


def unfinished(run: Path, cells: Iterable[Launched], planned: int) -> tuple[str, ...]:
    """The caution for whoever reads results of the `run`; none where each cell has all the launches that it must have.

    `planned` is their number. Of a run until decided it is that of the blocks before (0: there were none): its records
    do not say whether it ended.
    """
    short = _short(cells, planned)
    fewer = f"{counted(short, 'cell')} {'has' if short == 1 else 'have'} fewer"
    if short and is_being_written(run):
        return (f"{run} is still being measured: {fewer} than its {counted(planned, 'launch', 'launches')}",)
    was = f"{run} was stopped before its {counted(planned, 'launch', 'launches')}"
    return (f"{was}: {fewer} (to finish it: {finishing(run)})",) if short else ()


def finishing(run: Path) -> str:
    """The command that measures what a run lacks; its plan is the user's to name."""
    command = "gate" if is_gate(run) else "launch"
    return f"collbench {command} PLAN --resume {shlex.quote(str(run))}"


def _short(cells: Iterable[Launched], planned: int) -> int:
    """How many cells have fewer launches."""
    return sum(len(cell.medians) + cell.failed - len(cell.lost) + cell.skipped < planned for cell in cells)


def refuse_together(runs: Iterable[tuple[str, Manifest]]) -> None:
    """Refuse one of several runs, with their names, that ended when its own comparisons were decided.

    Raises:
        RequestError: its name, and what works.
    """
    for name, manifest in runs:
        if manifest.experiment is not None and manifest.experiment.until == "decided":
            raise RequestError(
                f"{name} was launched until decided: its own differences ended it, for which a test of several runs "
                "together does not allow. Analyse each run by itself, or compare two of them: collbench compare A B."
            )


class NamedFile(NamedTuple):
    """A samples file: the launch of its record, its name there, and how many samples the record says it holds."""

    launch: int
    name: str
    n: int


@dataclass(slots=True)
class _Files:
    """Those of a case: 16 bytes for each file that has collbench's own name; other names are kept."""

    key: str
    launches: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    other_names: dict[int, str] = field(default_factory=dict)


class SampleIndex:
    """The samples files of the measured cases of a run."""

    def __init__(self) -> None:
        self._of: dict[Case, _Files] = {}

    def add(self, record: Record) -> None:
        if record.samples is None or record.samples.file is None:
            return
        files = self._of.get(record.case)
        if files is None:
            files = self._of[record.case] = _Files(record.case.key)
        if record.samples.file != _usual(files.key, record.launch):
            files.other_names[len(files.launches)] = record.samples.file
        files.launches.append(record.launch)
        files.counts.append(record.samples.n)

    def of(self, case: Case) -> Iterator[NamedFile]:
        """The files of a case, in the order of the records."""
        files = self._of.get(case)
        if files is not None:
            for number, (launch, n) in enumerate(zip(files.launches, files.counts, strict=True)):
                yield NamedFile(launch, files.other_names.get(number) or _usual(files.key, launch), n)


def _usual(key: str, launch: int) -> str:
    """The name that `RunWriter` gives a samples file."""
    return f"samples/{key}-{launch}.npy"
