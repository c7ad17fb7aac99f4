"""A run that was stopped before all its launches: what it lacks, and the command that finishes it."""

from __future__ import annotations

import shlex
from array import array
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Protocol

from collbench.schema.gate_plan import is_gate
from collbench.schema.manifest import Experiment
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
