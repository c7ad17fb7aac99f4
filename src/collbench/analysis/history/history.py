"""A history: the runs in time, the series of their cells, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.history.change_points import Level, find
from collbench.analysis.history.events import CellChange, Event, events
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

    `first` is the number of the first run whose changes are told.
    """

    runs: RunsInTime
    cells: tuple[Told, ...]
    events: tuple[Event, ...]
    surroundings: Surroundings
    correlation: float
    margin: float
    first: int = 0


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
    return History(runs, tuple(told), tuple(events(all_changes, around)), around, found.correlation, margin)


def since(found: History, run: int) -> History:
    """With only the changes that began with the run of that number or later; all times and levels remain."""
    cells = tuple(
        replace(one, changes=tuple(change for change in one.changes if change.run >= run)) for one in found.cells
    )
    return replace(found, cells=cells, first=run, events=tuple(event for event in found.events if event.run >= run))
