"""A history: the runs in time, the series of their cells, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.history.change_points import Level, find
from collbench.analysis.history.events import CellChange, Event, events
from collbench.analysis.history.latest import outside
from collbench.analysis.history.levels import changes, matter
from collbench.analysis.history.reading import RunsInTime, read_runs
from collbench.analysis.history.scan import FEWEST, spread_of
from collbench.analysis.history.series import Series, all_series
from collbench.analysis.history.surroundings import Surroundings, surroundings


@dataclass(frozen=True)
class Told:
    """A series with its levels, in time, and the changes between them."""

    series: Series
    levels: tuple[Level, ...]
    changes: tuple[CellChange, ...]

    @property
    def tested(self) -> bool:
        """Whether there were enough runs to see a change."""
        return len(self.series.points) >= FEWEST

    def time(self, level: Level) -> Estimate:
        """The median over the runs of a level (s), with its interval."""
        return centre([point.time.value for point in self.series.points[level.start : level.stop]])

    @property
    def now(self) -> tuple[float, float]:
        """The time now over the shortest and over the longest of the levels that the changes lie between; 1 without."""
        if not self.changes:
            return 1.0, 1.0
        first = next(index for index, level in enumerate(self.levels) if level.start == self.changes[0].change.at)
        *before, last = (self.time(level).value for level in self.levels[first - 1 :])
        return last / min(before), last / max(before)


@dataclass(frozen=True)
class History:
    """`correlation` is that of neighbouring runs, as far as it is more than chance: what changes had to exceed.

    `latest` are the latest runs in which cells lie outside what their levels have shown, `first` is the number of the
    first run whose changes are told.
    """

    runs: RunsInTime
    cells: tuple[Told, ...]
    events: tuple[Event, ...]
    surroundings: Surroundings
    correlation: float
    margin: float
    latest: tuple[LatestRun, ...] = ()
    first: int = 0


@dataclass(frozen=True)
class LatestRun:
    """Of `of` cells that this run was the last to measure, those outside what their levels have shown.

    Each with its time over its level; the farthest first.
    """

    run: int
    of: int
    cells: tuple[tuple[Series, float], ...]


#: A run is one of the latest where fewer than so many followed on its machine: plans may take turns.
_LATEST = 3


def history(path: Path, given: Sequence[str], margin: float) -> History:
    """The history of a folder of runs.

    Raises:
        RunReadError, RequestError: as `read_runs`.
    """
    runs = read_runs(path, given)
    series = all_series(runs.runs)
    traces = [one.trace for one in series]
    found = find(traces, spread_of(margin))
    told = []
    for one, trace, levels in zip(series, traces, found.levels, strict=True):
        kept = matter(trace.values, levels, margin)
        numbers = np.append(trace.runs, trace.runs[-1:])
        changed = [
            CellChange(
                one, change, int(numbers[change.at]), (int(numbers[change.between[0]]), int(numbers[change.between[1]]))
            )
            for change in changes(trace.values, kept, margin, one.half_step)
        ]
        told.append(Told(one, kept, tuple(changed)))
    around = surroundings(runs.runs)
    all_changes = [change for one in told for change in one.changes]
    latest = tuple(_latest(runs, told, margin))
    return History(runs, tuple(told), tuple(events(all_changes, around)), around, found.correlation, margin, latest)


def _latest(runs: RunsInTime, told: Sequence[Told], margin: float) -> Iterator[LatestRun]:
    """Runs with cells outside, the latest first."""
    current = [one for one in told if one.tested and _measured_lately(one.series, runs)]
    found = outside([one.series.trace for one in current], [one.levels for one in current], margin)
    last = [one.series.last for one in current]
    for number in sorted({last[one.cell] for one in found}, reverse=True):
        cells = tuple((current[one.cell].series, one.ratio) for one in found if last[one.cell] == number)
        yield LatestRun(number, last.count(number), cells)


def _measured_lately(series: Series, runs: RunsInTime) -> bool:
    """Whether the last run that has a record of it has a time, and is one of the latest."""
    same = [number for number, run in enumerate(runs.runs) if run.machine == series.machine]
    return series.missing is None and series.points[-1].run == series.last >= same[-_LATEST:][0]


def since(found: History, run: int) -> History:
    """With only the changes that began with the run of that number or later; all times and levels remain."""
    cells = tuple(
        replace(one, changes=tuple(change for change in one.changes if change.run >= run)) for one in found.cells
    )
    kept = tuple(event for event in found.events if event.run >= run)
    latest = tuple(one for one in found.latest if one.run >= run)
    return replace(found, cells=cells, first=run, events=kept, latest=latest)
