"""Where the level of series changed, exactly where and by how much, and whether the latest value lies outside it.

Splits are searched in intervals of many lengths, so that a level that returns does not hide (seeded binary
segmentation: Kovács, Bühlmann, Li and Munk, Biometrika 110 (2023) 249-256). Runs are put into random orders, the same
for all series, and the largest statistic of a split is adjusted by the step-down maximum: the probability of any change
in a history without one is at most `ALPHA`, however series depend on each other. A series with a change is split there,
and its parts are tested again (divisive estimation: Matteson and James, JASA 109 (2014) 334-345; sequential rejection:
Goeman and Solari, Annals of Statistics 38 (2010) 3782-3810).

Runs that resemble their neighbours are not as likely in any order. Each difference in the order of time is therefore
divided by what a first-order autoregression makes of it, whose correlation is an upper limit (`Correlation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from collbench.analysis.bounds import ALPHA
from collbench.analysis.estimate import Floats
from collbench.analysis.results import grouped

if TYPE_CHECKING:
    from numpy.typing import NDArray


LEAST = 3  # the fewest values of a level: one or two strange values are no change
FEWEST = 8  # fewer values than this have no order that would be rarer than 5 %
EQUAL = 1e-4  # a statistic smaller by this share counts as equal: rounding breaks no ties
_FAR = 6.0  # values and distances of more than so many spreads count as if they were as far
_SHARE = 0.5  # a run counts that has this share of the cells: times of a few are no statistic of all
_AS_GOOD = 3.84  # by so many variances a place's squared errors may exceed the best's: chi-squared, one degree, 95 %

#: The standard deviation over the mean and over the median distance of neighbours, of independent normal values.
_OF_MEAN, _OF_MEDIAN = 0.8862, 1.0483

#: Distances over so many runs are compared with those of neighbours: few, because a change is in more of longer ones.
_LAGS = (2, 3, 4)

#: Steps of more than so many spreads, at most so many of a series, are changes, and no correlation of neighbours.
_STEP, _STEPS = 7.0, 2

#: The confidence of the limit of a correlation, and the largest one: above it every level is a matter of taste.
CONFIDENCE, MOST_CORRELATED = 0.7, 0.9
WAVES = 0.5  # a correlation that makes waves of several runs

#: Correlations, and `persistence` of a first-order autoregression with each.
_GRID = np.linspace(0, MOST_CORRELATED, 91)
_PERSISTENCE = np.log(np.mean([(1 - _GRID**lag) / (1 - _GRID) for lag in _LAGS], axis=0))

#: Orders that are drawn, at the least and at the most, and how many splits in all of them bound their number.
DRAWN, _WORK, SEED = (249, 999), 3 * 10**8, 1


@cache
def splits(n: int) -> NDArray[np.int64]:
    """Intervals of `n` values, each split at least `LEAST` values from its ends: start, at, stop [3, splits]."""
    rows: list[tuple[int, int, int]] = []
    length = float(n)
    while length >= 2 * LEAST:
        steps = max(int(np.ceil(2 * n / length)) - 1, 1)
        starts = {round(step * (n - length) / max(steps - 1, 1)) for step in range(steps)}
        for start in sorted(starts):
            stop = min(start + round(length), n)
            rows += [(start, at, stop) for at in range(start + LEAST, stop - LEAST + 1)]
        length /= 2
    return np.array(rows, dtype=np.int64).reshape(-1, 3).T


def spread_of(margin: float) -> float:
    """The spread (logarithm) that every series is taken to have, because equal times and steps of a clock show none."""
    return max(math.log1p(margin) / 10, 1e-4)


def spreads(values: NDArray[np.floating], least: float) -> NDArray[np.floating]:
    """The standard deviation [..., 1], at least `least`, of values [..., n] in time around their levels.

    By the median distance of neighbours, which neither outliers nor changes of the level widen.
    """
    distances = np.median(np.abs(np.diff(values)), axis=-1, keepdims=True)
    return np.asarray(np.maximum(distances.astype(values.dtype) * values.dtype.type(_OF_MEDIAN), least))


def widening(n: int, r: float) -> NDArray[np.float32]:
    """How many times as large the statistic of each split of `n` values becomes [splits], where neighbours correlate.

    Of a first-order autoregression with the correlation `r` < 1: by the variance of a difference between means.
    """
    start, at, stop = splits(n)
    before, after = at - start, stop - at
    of_one = [(m * (1 - r * r) - 2 * r * (1 - r**m)) / (m * (1 - r)) ** 2 for m in (before, after)]
    of_both = r * (1 - r**before) * (1 - r**after) / (before * after * (1 - r) ** 2)
    return np.asarray(np.sqrt((sum(of_one) - 2 * of_both) / (1 / before + 1 / after) / (1 - r)), np.float32)


def statistics(ordered: NDArray[np.float32], least: float, r: float = 0.0) -> tuple[NDArray[np.float32], int]:
    """The largest statistic of a split in each order of values [orders, n] of median 0, and where it is in the first.

    The difference of the means on both sides of a split over its standard deviation; in the first order, which is that
    in time, over the one of values whose neighbours have the correlation `r`.
    """
    room = _FAR * spreads(ordered, least)
    clipped = np.clip(ordered, -room, room)
    n = clipped.shape[1]
    start, at, stop = splits(n)
    before, after = (at - start).astype(np.float32), (stop - at).astype(np.float32)
    sums = np.zeros((len(clipped), n + 1), np.float32)
    np.cumsum(clipped, axis=1, out=sums[:, 1:])
    middle = sums[:, at]
    jumps = np.abs((middle - sums[:, start]) / before - (sums[:, stop] - middle) / after)
    jumps *= np.sqrt(before * after / (before + after))
    jumps[0] /= widening(n, r)
    spread = np.abs(np.diff(clipped, axis=1)).mean(axis=1) * np.float32(_OF_MEAN)
    return np.asarray(jumps.max(axis=1) / np.maximum(spread, np.float32(least))), int(at[jumps[0].argmax()])


#: Whether neighbouring runs are alike: no, yes, or too few runs to tell no correlation from one of `WAVES`.
Dependence = Literal["none", "alike", "unknown"]


@dataclass(frozen=True)
class Correlation:
    """Of neighbouring runs in all series, from 0 to `MOST_CORRELATED`: `limit` is the upper one with `CONFIDENCE`."""

    estimate: float
    limit: float
    dependence: Dependence


def persistence(ordered: NDArray[np.float32], least: float) -> Floats:
    """How much farther apart values are than neighbours, in each order [orders] of values [orders, n].

    The logarithm of the mean squared distance at `_LAGS` over that of neighbours: 0 of independent values.
    """
    usual = spreads(ordered, least)
    kept = _without_steps(ordered, _STEP * usual)
    near, *far = ((np.minimum(np.abs(kept[:, lag:] - kept[:, :-lag]) / usual, _FAR) ** 2).mean(axis=1)
                  for lag in (1, *_LAGS))  # fmt: skip
    return np.asarray(np.log((np.mean(far, axis=0) + 1e-3) / (near + 1e-3)), np.float64)


def _without_steps(values: NDArray[np.floating], least: NDArray[np.floating]) -> NDArray[np.floating]:
    """The values [orders, n] without the largest steps between the medians of three that follow each other."""
    runs = np.arange(values.shape[1])
    for _ in range(_STEPS):
        a, b, c = values[:, :-2], values[:, 1:-1], values[:, 2:]
        medians = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
        steps = medians[:, 3:] - medians[:, :-3]
        at = np.abs(steps).argmax(axis=1)[:, None]
        step = np.take_along_axis(steps, at, axis=1)
        large = np.abs(step) > least
        if not large.any():
            break
        values = values - np.where(large, step, 0) * (runs >= at + 3)
    return values


@dataclass(frozen=True)
class Trace:
    """A series in time: logarithms of times [n], and the numbers of their runs [n], ascending."""

    values: Floats
    runs: NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """Values [start, stop) of a series, between which nothing changed; `p` is that of the change at its start."""

    start: int
    stop: int
    p: float | None = None


def find(traces: Sequence[Trace], least: float) -> tuple[list[tuple[Level, ...]], Correlation]:
    """The levels of each series, whose spread (logarithm) is at least `least`; and how neighbours correlate."""
    ordered = _random_orders(traces)
    levels = {(number, Level(0, len(trace.values))): 1.0 for number, trace in enumerate(traces)}
    correlation = _correlation([persistence(ordered(*item), least) for item in levels if item[1].stop >= FEWEST])
    tested: dict[tuple[int, Level], tuple[NDArray[np.float32], int]] = {}
    while True:
        long = [key for key in levels if key[1].stop - key[1].start >= FEWEST]
        tested |= {key: statistics(ordered(*key), least, correlation.limit) for key in long if key not in tested}
        if long:
            splits = np.stack([tested[key][0] for key in long])
            levels.update(zip(long, step_down(splits).tolist(), strict=True))
        if min(levels.values(), default=1.0) > ALPHA:
            break
        split: dict[tuple[int, Level], float] = {}
        for (number, level), p in levels.items():
            at = level.start + tested[number, level][1] if p <= ALPHA else level.stop
            parts = (replace(level, stop=at), Level(at, level.stop, p))
            split |= {(number, part): 1.0 for part in parts[: 1 + (p <= ALPHA)]}
        levels = split
    return [tuple(level for of, level in levels if of == number) for number in range(len(traces))], correlation


def step_down(statistics: NDArray[np.float32]) -> Floats:
    """Adjusted p values [cells], from the statistics of all arrangements [cells, arrangements], the first as measured.

    That of a cell is the share of arrangements in which the statistic of any cell that stands out no more is as large
    as its own: the step-down maximum of Westfall and Young (Resampling-Based Multiple Testing, Wiley 1993, section
    2.6), which holds whichever of the cells differ (Romano and Wolf, JASA 100 (2005) 94-108).
    """
    order = np.argsort(statistics[:, 0], kind="stable")
    ordered = statistics[order]
    as_large = (np.maximum.accumulate(ordered, axis=0) >= ordered[:, :1] * (1 - EQUAL)).sum(axis=1)
    adjusted = np.empty(len(statistics))
    adjusted[order] = np.maximum.accumulate(as_large[::-1])[::-1] / statistics.shape[1]
    return adjusted


def _random_orders(traces: Sequence[Trace]) -> Callable[[int, Level], NDArray[np.float32]]:
    """Values of a level of a series, less their median, in every order: [orders, values], the first in time.

    In each order all runs have a random number. The more splits, the fewer orders are drawn.
    """
    splits_of_all = sum(splits(len(trace.values)).shape[1] for trace in traces)
    number = min(max(_WORK // max(splits_of_all, 1), DRAWN[0]), DRAWN[1])
    last = max((int(trace.runs[-1]) for trace in traces if len(trace.runs)), default=0)
    keys = np.random.default_rng(SEED).random((number + 1, last + 1), np.float32)
    keys[0] = np.linspace(0, 1, last + 1)

    @lru_cache(maxsize=4)  # most cells have the same runs
    def orders(runs: bytes) -> NDArray[np.int64]:
        return np.argsort(keys[:, np.frombuffer(runs, np.int64)], axis=1)

    def ordered(number: int, level: Level) -> NDArray[np.float32]:
        values, runs = (of[level.start : level.stop] for of in (traces[number].values, traces[number].runs))
        return np.asarray((values - np.median(values)).astype(np.float32)[orders(runs.tobytes())])

    return ordered


def _correlation(persistences: Sequence[Floats]) -> Correlation:
    """By the mean `persistence` of all series [orders]; random orders show how far an estimate may be off.

    They are orders of the same runs for all series, so series that share what moves them count as one.
    """
    if not persistences:
        return Correlation(0.0, 0.0, "unknown")
    measured, *by_chance = np.mean(persistences, axis=0)
    off = np.quantile(by_chance, (0.5, 1 - CONFIDENCE, ALPHA, 1 - ALPHA))
    estimate, limit, most, least_sure = np.interp(measured - off, _PERSISTENCE, _GRID).tolist()
    return Correlation(estimate, limit, "alike" if least_sure > 0 else "unknown" if most >= WAVES else "none")


def matter(values: Floats, levels: Sequence[Level], margin: float) -> tuple[Level, ...]:
    """The levels of a series (logarithms, [n]) that differ by more than the margin, each change where it fits best.

    Neighbours that differ by less become one, the most alike first: of small steps in one direction the sum remains. So
    do those of which one fits best with fewer than `LEAST` values.
    """
    merged = list(levels)
    while True:
        apart = []
        for index in range(len(merged) - 1):
            at, holds = _best(values, merged[index], merged[index + 1], spread_of(margin))
            before, after = replace(merged[index], stop=at), replace(merged[index + 1], start=at)
            merged[index : index + 2] = before, after
            apart.append(abs(_level(values, after) - _level(values, before)) if holds else 0.0)
        if not apart or min(apart) > math.log1p(margin):
            return tuple(merged)
        least = int(np.argmin(apart))
        merged[least : least + 2] = [replace(merged[least], stop=merged[least + 1].stop)]


def _level(values: Floats, level: Level) -> float:
    return float(np.median(values[level.start : level.stop]))


def _best(values: Floats, before: Level, after: Level, least: float) -> tuple[int, bool]:
    """Where two levels fit best, `LEAST` values or more long; whether it would not be better with fewer."""
    errors, _ = _errors(values, before, after, least)
    at = LEAST + int(np.argmin(errors[LEAST:-LEAST]))
    beyond = errors[:at] if at == LEAST else errors[at + 1 :] if at == len(errors) - 1 - LEAST else errors[:0]
    return before.start + at, float(errors[at]) <= min(beyond, default=math.inf)


def _errors(values: Floats, before: Level, after: Level, least: float) -> tuple[Floats, float]:
    """Squared errors of two levels' medians, a border before each value or after the last; and `least`: in spreads."""
    both = values[before.start : after.stop]
    spread = float(spreads(both, least)[0])
    old, new = (np.minimum(np.abs(both - _level(values, level)) / spread, _FAR) ** 2 for level in (before, after))
    errors: Floats = np.concatenate([[0.0], np.cumsum(old - new)]) + float(new.sum())
    return errors, (least / spread) ** 2


def may_begin(values: Floats, before: Level, after: Level, margin: float) -> tuple[int, int]:
    """The first and the last value that `after` fits nearly as well from as from its start."""
    errors, least = _errors(values, before, after, spread_of(margin))
    best = float(errors[LEAST:-LEAST].min())
    good = np.flatnonzero(errors[LEAST:-LEAST] <= best + _AS_GOOD * max(best / (len(errors) - 3), least))
    return before.start + LEAST + int(good[0]), before.start + LEAST + int(good[-1])


def outside(traces: Sequence[Trace], levels: Sequence[Sequence[Level]], margin: float) -> dict[int, float]:
    """Of the cells outside their level in their last run, by number, their time over it; the farthest first.

    A value's distance from its level is divided by the largest that its cell has shown in any other run, neighbours
    apart; the statistic of a run is the largest of these ratios. Were the m runs alike, the latest would exceed all
    others with probability 1 / m (a rank test, as in conformal prediction: Vovk, Gammerman and Shafer, Algorithmic
    Learning in a Random World, 2005, chapter 2). Where that is more than `ALPHA`, it must exceed them by the
    factor 1 / (m ALPHA), which holds for tails up to those of a Cauchy distribution. Cells with the same last run, and
    `FEWEST` values or more, are tested together, and every such group at its part of `ALPHA`.
    """
    groups = grouped((int(trace.runs[-1]), cell) for cell, trace in enumerate(traces) if len(trace.values) >= FEWEST)
    ratio_of: dict[int, float] = {}
    for last, cells in groups.items():
        away = {
            cell: np.concatenate([of[level.start : level.stop] - _level(of, level) for level in levels[cell]])
            for cell, of in ((cell, traces[cell].values) for cell in cells)
        }
        ratios = {cell: _over_others(ratio, margin) for cell, ratio in away.items()}
        largest, measured = np.zeros(last + 1), np.zeros(last + 1)
        for cell, ratio in ratios.items():
            largest[traces[cell].runs] = np.maximum(largest[traces[cell].runs], ratio)
            measured[traces[cell].runs] += 1
        others = largest[np.flatnonzero(measured >= _SHARE * len(cells))[:-2]]
        factor = max(1.0, len(groups) / (ALPHA * (len(others) + 1)))
        bound = max(1.0, factor * float(others.max(initial=0.0)))
        ratio_of |= {cell: float(np.exp(away[cell][-1])) for cell, ratio in ratios.items() if ratio[-1] > bound}
    return dict(sorted(ratio_of.items(), key=lambda entry: -abs(np.log(entry[1]))))


def _over_others(away: Floats, margin: float) -> Floats:
    """The distance of each value [n] over the largest one that is no neighbour's, or the margin where that is more."""
    apart = np.abs(away)
    before = np.concatenate([[0.0, 0.0], np.maximum.accumulate(apart)[:-2]])
    behind = np.concatenate([np.maximum.accumulate(apart[::-1])[::-1][2:], [0.0, 0.0]])
    return np.asarray(apart / np.maximum(np.maximum(before, behind), np.log1p(margin)))
