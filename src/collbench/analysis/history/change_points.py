"""Where the level of series changed, exactly where and by how much, and whether the latest value lies outside it.

A level that holds for a while and then returns hides from a search over the whole series, because a single split leaves
both levels on one side. So splits are searched in intervals of many lengths: seeded binary segmentation (Kovács,
Bühlmann, Li and Munk, Biometrika 110 (2023) 249-256), here each half as long as the one before, overlapping by half.

Were the runs of a history alike, every order of them would be as likely as the one in time. So the runs are put into
random orders, the same for all series, each series gets the largest statistic of a split in every order, and its
adjusted p is that of the step-down maximum (`step_down`): the probability that anything is found in a history without
a change is at most `ALPHA`, however the series depend on each other and whatever their noise. A series in
which a change is found is split there, and its parts take its place, until nothing more is found: divisive estimation
with a permutation test in each step (Matteson and James, JASA 109 (2014) 334-345), as a sequential rejection (Goeman
and Solari, Annals of Statistics 38 (2010) 3782-3810).

Runs that resemble their neighbours, as on a machine that is in a good or a bad state for days, are not as likely in any
order. Their correlation is estimated, and where random orders have less, what was measured must stand out as much more
as the mean of such values varies more: by the root of (1 + r) / (1 - r), and by that of 1 - r, because distances of
neighbours are smaller then.

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

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.arrangements import ALPHA, step_down
from collbench.analysis.estimate import Estimate, ratio_of_sides

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: The fewest values of a level: one or two strange values are no change.
LEAST = 3

#: Fewer values than this have no order that would be rarer than 5 %.
FEWEST = 8

#: Values farther than so many standard deviations from the median count as if they were as far.
_FAR = 4.0

#: The standard deviation over the median absolute deviation, and over the mean distance of neighbours (the moving range
#: of control charts): of independent values with a normal distribution.
_OF_DEVIATION, _OF_RANGE = 1.4826, 0.8862

#: The share of the smallest distances that dependence is judged by: changes of the level are among the others.
_KEPT = 0.85

#: A distance of more than so many usual ones is a change of the level, and counts as so many.
_JUMP = 3.0


class Splits(NamedTuple):
    """Intervals [start, stop) and a split of each, `at`: all of them in arrays of one length."""

    start: NDArray[np.int64]
    at: NDArray[np.int64]
    stop: NDArray[np.int64]


@cache
def splits(n: int) -> Splits:
    """Every split that is looked at in a series of `n` values, with `LEAST` values or more on both sides."""
    rows: list[tuple[int, int, int]] = []
    length = float(n)
    while length >= 2 * LEAST:
        steps = max(int(np.ceil(2 * n / length)) - 1, 1)
        starts = {round(step * (n - length) / max(steps - 1, 1)) for step in range(steps)}
        for start in sorted(starts):
            stop = min(start + round(length), n)
            rows += [(start, at, stop) for at in range(start + LEAST, stop - LEAST + 1)]
        length /= 2
    found = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Splits(found[:, 0], found[:, 1], found[:, 2])


def spread_of(margin: float) -> float:
    """The spread (logarithm) that every series is taken to have, because equal times and steps of a clock show none."""
    return max(math.log1p(margin) / 10, 1e-4)


def scores(values: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """The values [n] without their median; those far away are drawn near. `least`: a spread that is always there."""
    away = values - np.median(values)
    limit = _FAR * max(_OF_DEVIATION * float(np.median(np.abs(away))), least)
    drawn: NDArray[np.float64] = np.clip(away, -limit, limit)
    return drawn


def statistics(ordered: NDArray[np.float32], least: float) -> tuple[NDArray[np.float32], int]:
    """The largest statistic of a split of the scores in each order [orders, n], and where that of the first order is.

    The difference of the means on both sides of a split over its standard deviation. The spread is estimated from the
    distances between neighbours, which changes of the level hardly affect, but is not below `least`.
    """
    n = ordered.shape[1]
    start, at, stop = splits(n)
    before, after = (at - start).astype(np.float32), (stop - at).astype(np.float32)
    sums = np.zeros((len(ordered), n + 1), np.float32)
    np.cumsum(ordered, axis=1, out=sums[:, 1:])
    middle = sums[:, at]
    found = np.abs((middle - sums[:, start]) / before - (sums[:, stop] - middle) / after)
    found *= np.sqrt(before * after / (before + after))
    spread = np.abs(np.diff(ordered, axis=1)).mean(axis=1) * np.float32(_OF_RANGE)
    largest: NDArray[np.float32] = found.max(axis=1) / np.maximum(spread, np.float32(least))
    return largest, int(at[found[0].argmax()])


def distances(ordered: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The usual distance of values that are neighbours, and of those with one between them, in each order [orders]."""
    return _usual(np.abs(np.diff(ordered, axis=1))), _usual(np.abs(ordered[:, 2:] - ordered[:, :-2]))


def _usual(apart: NDArray[np.float32]) -> NDArray[np.float32]:
    kept = max(round(_KEPT * apart.shape[1]), 1)
    near = np.sort(apart, axis=1)[:, :kept]
    middle = near[:, apart.shape[1] // 2, None]
    mean: NDArray[np.float32] = np.minimum(near, _JUMP * middle).mean(axis=1)
    return mean


#: Orders that are drawn, at the least and at the most, and how many splits in all of them bound their number.
DRAWN = (249, 999)
_WORK = 3 * 10**8
SEED = 1

#: Random orders of ten cells and more have less correlation than this.
_PRECISE = 0.35

#: Above it neighbours are as good as equal, and every level is a matter of taste.
MOST_CORRELATED = 0.9


@dataclass(frozen=True)
class Trace:
    """A series in time: logarithms of times [n], and the numbers of their runs [n], ascending."""

    values: NDArray[np.float64]
    runs: NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """Values [start, stop) of a series, between which nothing changed; `p` is that of the change at its start."""

    start: int
    stop: int
    p: float | None = None


@dataclass(frozen=True)
class Found:
    """The levels of each series, in time, and the correlation of neighbouring runs that was allowed for."""

    levels: list[tuple[Level, ...]]
    correlation: float


def find(traces: Sequence[Trace], least: float) -> Found:
    """The levels of all series. `least`: a spread (logarithm) that every series is taken to have."""
    history = _History(traces, least)
    correlation = history.correlation()
    widened = np.float32(math.sqrt(1 + correlation) / (1 - correlation))
    pieces = [history.piece(number, 0, len(trace.values), None) for number, trace in enumerate(traces)]
    while True:
        split = _significant(pieces, widened)
        if not split:
            break
        pieces = [part for index, piece in enumerate(pieces) for part in history.parts(piece, split.get(index))]
    found = [
        tuple(Level(piece.start, piece.stop, piece.p) for piece in pieces if piece.trace == number)
        for number in range(len(traces))
    ]
    return Found(found, correlation)


@dataclass(frozen=True)
class _Piece:
    """Values [start, stop) of a series; its statistic in every order, none if it is too short; where it would split."""

    trace: int
    start: int
    stop: int
    p: float | None
    statistics: NDArray[np.float32] | None = None
    split: int = 0


def _significant(pieces: Sequence[_Piece], widened: np.float32) -> dict[int, float]:
    """Which pieces are split, with their adjusted p."""
    long = {index: piece.statistics for index, piece in enumerate(pieces) if piece.statistics is not None}
    if not long:
        return {}
    found = np.stack(list(long.values()))
    found[:, 0] /= widened
    p_adjusted = step_down(found[:, 0], [found]).tolist()
    return {index: p for index, p in zip(long, p_adjusted, strict=True) if p <= ALPHA}


class _History:
    """All series, and the orders that their runs are put into: in each order a random number for each run.

    The first order is that in time.
    """

    def __init__(self, traces: Sequence[Trace], least: float) -> None:
        self._traces, self._least = traces, least
        looked = sum(len(splits(len(trace.values)).at) for trace in traces)
        number = min(max(_WORK // max(looked, 1), DRAWN[0]), DRAWN[1])
        runs = 1 + max((int(trace.runs[-1]) for trace in traces if len(trace.runs)), default=0)
        self._keys = np.random.default_rng(SEED).random((number + 1, runs), np.float32)
        self._keys[0] = np.linspace(0, 1, runs)
        self._orders = lru_cache(maxsize=4)(self._orders_of)  # most cells have the same runs

    def piece(self, number: int, start: int, stop: int, p: float | None) -> _Piece:
        if stop - start < FEWEST:
            return _Piece(number, start, stop, p)
        found, split = statistics(self._ordered(number, start, stop), self._least)
        return _Piece(number, start, stop, p, found, start + split)

    def parts(self, piece: _Piece, p: float | None) -> tuple[_Piece, ...]:
        """Both parts of a piece that is split with this p; the piece where it is not."""
        if p is None:
            return (piece,)
        number, start, stop = piece.trace, piece.start, piece.stop
        return self.piece(number, start, piece.split, piece.p), self.piece(number, piece.split, stop, p)

    def correlation(self) -> float:
        """Of neighbouring runs, in all series together, where it is more than random orders have; else 0.

        Of values with the correlations r, r^2, ... the squared distance of neighbours is 2 (1 - r) variances, and that
        of values with one between them 2 (1 - r^2): r is their ratio less 1. Of few cells, where random orders have
        much of it too, it is drawn towards 0.
        """
        near, far = np.zeros(len(self._keys)), np.zeros(len(self._keys))
        for number, trace in enumerate(self._traces):
            if len(trace.values) >= FEWEST:
                of_near, of_far = distances(self._ordered(number, 0, len(trace.values)))
                both = np.maximum(of_near + of_far, 1e-12)  # each series counts the same, whatever its spread
                near, far = near + of_near / both, far + of_far / both
        found = (far / np.maximum(near, 1e-12)) ** 2 - 1
        usual = max(float(np.quantile(found, 1 - ALPHA)), 0.0)
        measured = min(float(found[0]), MOST_CORRELATED)
        if measured <= usual:
            return 0.0
        return measured if usual <= _PRECISE else measured * (1 - (usual / measured) ** 2)

    def _ordered(self, number: int, start: int, stop: int) -> NDArray[np.float32]:
        """The scores of these values in every order, [orders, values]."""
        trace = self._traces[number]
        orders = self._orders(trace.runs[start:stop].tobytes())
        ordered: NDArray[np.float32] = scores(trace.values[start:stop], self._least).astype(np.float32)[orders]
        return ordered

    def _orders_of(self, runs: bytes) -> NDArray[np.int64]:
        """The orders that the runs of these numbers (int64) are put into, [orders, runs]."""
        return np.argsort(self._keys[:, np.frombuffer(runs, np.int64)], axis=1)


#: What the squared errors of a place may exceed those of the best by, in variances: chi-squared, one degree, 95 %.
_AS_GOOD = 3.84


@dataclass(frozen=True)
class Change:
    """Between the value `at` - 1 and the value `at` of a series the level changed.

    `ratio` is the level after over that before. Values in `between` (first, last) fit nearly as well in place of `at`.
    """

    at: int
    ratio: Estimate
    p: float
    between: tuple[int, int]


def matter(values: NDArray[np.float64], levels: Sequence[Level], margin: float) -> tuple[Level, ...]:
    """The levels of a series (logarithms, [n]) that differ by more than the margin, each change where it fits best.

    Neighbours that differ by less become one, the most alike first: of small steps in one direction the sum remains.
    """
    least_spread = spread_of(margin)
    kept = _placed(values, list(levels), least_spread)
    while len(kept) > 1:
        apart = [abs(_level(values, b) - _level(values, a)) for a, b in pairwise(kept)]
        least = int(np.argmin(apart))
        if apart[least] > np.log1p(margin):
            break
        joined = replace(kept[least], stop=kept[least + 1].stop)
        kept = _placed(values, [*kept[:least], joined, *kept[least + 2 :]], least_spread)
    return tuple(kept)


def changes(
    values: NDArray[np.float64], levels: Sequence[Level], margin: float, half_step: float = 0.0
) -> tuple[Change, ...]:
    """Between levels that follow each other; `values` [n] are logarithms of times that are known to `half_step` (s)."""
    found = []
    for before, after in pairwise(levels):
        old, new = (np.exp(values[level.start : level.stop]) for level in (before, after))
        between = _between(values, before, after, spread_of(margin))
        found.append(
            Change(after.start, ratio_of_sides(new, old, half_steps=(half_step, half_step)), after.p or 0.0, between)
        )
    return tuple(found)


def _level(values: NDArray[np.float64], level: Level) -> float:
    return float(np.median(values[level.start : level.stop]))


def _placed(values: NDArray[np.float64], levels: list[Level], least: float) -> list[Level]:
    """Each border moved to where its two levels fit best."""
    for index in range(1, len(levels)):
        before, after = levels[index - 1], levels[index]
        errors = _errors(values[before.start : after.stop], least)
        at = before.start + LEAST + int(np.argmin(errors))
        levels[index - 1], levels[index] = replace(before, stop=at), replace(after, start=at)
    return levels


def _errors(values: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """The squared errors of two means, for each border that leaves `LEAST` values or more on both sides."""
    drawn = scores(values, least)
    n = len(drawn)
    at = np.arange(LEAST, n - LEAST + 1)
    sums = np.concatenate([[0.0], np.cumsum(drawn)])
    found: NDArray[np.float64] = float((drawn**2).sum()) - sums[at] ** 2 / at - (sums[n] - sums[at]) ** 2 / (n - at)
    return found


def _between(values: NDArray[np.float64], before: Level, after: Level, least: float) -> tuple[int, int]:
    errors = _errors(values[before.start : after.stop], least)
    n = after.stop - before.start
    best = float(errors.min())
    good = np.flatnonzero(errors <= best + _AS_GOOD * max(best / (n - 2), least**2))
    first = before.start + LEAST
    return first + int(good[0]), first + int(good[-1])


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
