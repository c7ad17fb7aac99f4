"""From levels to changes: where exactly, how large, and without those that do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.estimate import Estimate, ratio_of_sides
from collbench.analysis.history.change_points import Level
from collbench.analysis.history.scan import LEAST, scores, spread_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
