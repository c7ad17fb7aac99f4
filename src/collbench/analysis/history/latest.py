"""Whether the latest run lies outside what its cells have shown: a change that three runs have not confirmed yet.

Of each value its distance from its level (logarithm) is divided by the largest one that the cell has shown in any other
run, its neighbours apart: above 1 it is farther away than ever. The statistic of a run is the largest of these ratios
in all its cells. Were the runs alike, each would be as likely as any other to have the largest statistic, however cells
depend on each other and whatever their noise: the latest one of m exceeds all others with the probability 1 / m (a
rank test, as in conformal prediction: Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005,
chapter 2). Where 1 / m is more than `ALPHA`, it must exceed them by the factor 1 / (m ALPHA): a value of a
distribution with the tail x^-a exceeds the largest of m - 1 others f times with a probability of at most f^-a / m,
which is ALPHA for the tails of a Cauchy distribution, a = 1, and less for all that are lighter.

The run before is compared with nothing, so that a second slow night is told like the first; the third is a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.history.change_points import Level, Trace
from collbench.analysis.history.scan import FEWEST
from collbench.analysis.joint import ALPHA

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A run counts that has this share of the cells: times of a few are no statistic of all.
_SHARE = 0.5


@dataclass(frozen=True)
class Outside:
    """The cell of this number lies outside what its level has shown: `ratio` is its time over its level."""

    cell: int
    ratio: float


def outside(traces: Sequence[Trace], levels: Sequence[Sequence[Level]], margin: float) -> list[Outside]:
    """The cells that lie outside in the run that is the last of each; the farthest from its level first.

    Cells with the same last run are tested together, and every such group at its part of `ALPHA`. Those with fewer than
    `FEWEST` values are left out.
    """
    groups: dict[int, list[int]] = {}
    for number, trace in enumerate(traces):
        if len(trace.values) >= FEWEST:
            groups.setdefault(int(trace.runs[-1]), []).append(number)
    found = []
    for cells in groups.values():
        away = [_away(traces[cell].values, levels[cell]) for cell in cells]
        bound = _bound([traces[cell] for cell in cells], away, margin, len(groups))
        found += [Outside(cell, float(np.exp(own[-1]))) for cell, own in zip(cells, away, strict=True)
                  if _farther(own, margin)[-1] > bound]  # fmt: skip
    return sorted(found, key=lambda one: -abs(np.log(one.ratio)))


def _away(values: NDArray[np.float64], levels: Sequence[Level]) -> NDArray[np.float64]:
    """How far each value [n] is from the median of its level."""
    found: NDArray[np.float64] = np.concatenate([
        values[level.start : level.stop] - np.median(values[level.start : level.stop]) for level in levels
    ])  # fmt: skip
    return found


def _farther(away: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """The distance of each value [n] over the largest one that is no neighbour's, or the margin where that is more."""
    apart = np.abs(away)
    before = np.concatenate([[0.0, 0.0], np.maximum.accumulate(apart)[:-2]])
    behind = np.concatenate([np.maximum.accumulate(apart[::-1])[::-1][2:], [0.0, 0.0]])
    found: NDArray[np.float64] = apart / np.maximum(np.maximum(before, behind), np.log1p(margin))
    return found


def _bound(traces: Sequence[Trace], away: Sequence[NDArray[np.float64]], margin: float, groups: int) -> float:
    """What the ratio of a value in the last run must exceed: at least 1."""
    last = int(traces[0].runs[-1])
    largest, cells = np.zeros(last + 1), np.zeros(last + 1)
    for trace, own in zip(traces, away, strict=True):
        largest[trace.runs] = np.maximum(largest[trace.runs], _farther(own, margin))
        cells[trace.runs] += 1
    counted = np.flatnonzero(cells >= _SHARE * len(traces))
    others = largest[counted[:-2]]
    factor = max(1.0, groups / (ALPHA * (len(others) + 1)))
    return max(1.0, factor * float(others.max(initial=0.0)))
