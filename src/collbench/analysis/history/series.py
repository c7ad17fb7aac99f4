"""A cell over the runs of one machine: its time in each, or why a run has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analysis.estimate import Estimate
from collbench.analysis.history.change_points import Trace
from collbench.analysis.history.reading import Entry, TimedRun
from collbench.analysis.ways import How
from collbench.schema.case import Case
from collbench.schema.record import Work

#: Work that differs by more than this factor is not the same work, as for `compare`.
_SAME_WORK = 1.05


@dataclass(frozen=True)
class Point:
    """The time (s) of a cell in the run of that number, counted in time over all runs."""

    run: int
    time: Estimate


@dataclass(frozen=True)
class Gap:
    """A run that has records of the cell and no time that belongs to the series."""

    run: int
    why: str
    skipped: bool = False


@dataclass(frozen=True)
class Series:
    """A cell on one machine. `partly` are runs of which some launches failed, with the reason; their times count.

    `missing` is a later run of the same kind that has no record of the cell, the first there is.
    """

    case: Case
    machine: str
    work: Work
    points: tuple[Point, ...]
    gaps: tuple[Gap, ...]
    partly: tuple[Gap, ...] = ()
    missing: int | None = None

    @property
    def trace(self) -> Trace:
        times = np.array([point.time.value for point in self.points])
        return Trace(np.log(times), np.array([point.run for point in self.points], np.int64))

    @property
    def last(self) -> int:
        """The last run that has a record of the cell."""
        numbers = [point.run for point in self.points] + [gap.run for gap in self.gaps]
        return max(numbers)

    @property
    def lacking(self) -> str:
        """Why the last run with a record of it lacks launches; empty where it does not, or every run skipped it."""
        if not self.points and all(gap.skipped for gap in self.gaps):
            return ""
        return next((gap.why for gap in (*self.gaps, *self.partly) if gap.run == self.last), "")

    @property
    def half_step(self) -> float:
        """By how much (s) times may be wrong, because the clock has steps."""
        return max((point.time.resolution for point in self.points), default=0.0)


def all_series(runs: Sequence[TimedRun]) -> list[Series]:
    """One for each cell and machine, in the order in which they first occur."""
    found: dict[tuple[str, Case], list[tuple[int, Entry]]] = {}
    for number, run in enumerate(runs):
        for case, entry in run.entries.items():
            found.setdefault((run.machine, case), []).append((number, entry))
    return [_series(case, machine, entries, runs) for (machine, case), entries in found.items()]


def _series(case: Case, machine: str, entries: list[tuple[int, Entry]], runs: Sequence[TimedRun]) -> Series:
    way, work = (
        _usual_way(entries),
        next((entry.work for _, entry in reversed(entries) if entry.by_way), Work(amount=0)),
    )
    points, gaps, partly = [], [], []
    for number, entry in entries:
        time = entry.by_way.get(way)
        why = _apart(entry, way, work)
        if why or time is None:
            gaps.append(Gap(number, why or entry.why, entry.skipped and not why))
            continue
        points.append(Point(number, time))
        if entry.why:
            partly.append(Gap(number, entry.why))
    missing = _missing(machine, entries[-1][0], runs) if points else None
    return Series(case, machine, work, tuple(points), tuple(gaps), tuple(partly), missing)


def _usual_way(entries: Sequence[tuple[int, Entry]]) -> How:
    """The way in which most runs measured it, of several the latest."""
    counts = Counter(way for _, entry in entries for way in entry.by_way)
    latest = {way: number for number, entry in entries for way in entry.by_way}
    return max(counts, key=lambda way: (counts[way], latest[way]), default=())


def _apart(entry: Entry, way: How, work: Work) -> str:
    """Why the times of a run do not belong to the series; empty where they do, or there are none."""
    if not entry.by_way:
        return ""
    if way not in entry.by_way:
        own, usual = dict(next(iter(entry.by_way))), dict(way)
        names = sorted(name for name in own.keys() | usual.keys() if own.get(name) != usual.get(name))
        return "measured in another way: " + "; ".join(f"{name} {own.get(name, 'none')}" for name in names)
    least, most = sorted((entry.work.amount, work.amount))
    if entry.work.unit != work.unit or least * _SAME_WORK < most:
        return f"other work: {entry.work.amount} {entry.work.unit}"
    return ""


def _missing(machine: str, last: int, runs: Sequence[TimedRun]) -> int | None:
    """The first later run with half or more of the cells of the last one that has it; plans may take turns."""
    beside = runs[last].entries.keys()
    for number in range(last + 1, len(runs)):
        run = runs[number]
        if run.machine == machine and 2 * len(beside & run.entries.keys()) >= len(beside):
            return number
    return None
