"""How much a series looks as if its level changed somewhere: one number for each order of its values.

A level that holds for a while and then returns hides from a search over the whole series, because a single split leaves
both levels on one side. So splits are searched in intervals of many lengths: seeded binary segmentation (Kovács,
Bühlmann, Li and Munk, Biometrika 110 (2023) 249-256), here each half as long as the one before, overlapping by half.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

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
