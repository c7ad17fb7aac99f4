"""Bounds on how much slower one side is than the other, from launches in blocks: of each cell, and of all at once.

The order within blocks was drawn at random. So if the logarithm of the ratio is x in every block, apart from noise that
is as likely to be on one side as on the other, its differences from x may have any signs: exchanging the sides of some
blocks changes the differences' signs in these. A bound is the x from which on this test no longer rejects, so the bound
that is printed is the test that decides (Pitman, Supplement to the Journal of the Royal Statistical Society 4 (1937)
119-130; Tukey and McLaughlin, Sankhya A 25 (1963) 331-352, for bounded differences).

The statistic is t of differences that are bounded: those of more than 1.345 standard deviations count as so many
(Huber, Annals of Mathematical Statistics 35 (1964) 73-101: 95 % efficient where noise is normal), so launches that are
far off move it little. The standard deviation is taken from the distances to x, which no exchange changes: with one
that depends on the signs the test would not be exact.

Of all cells at once the largest statistic of all counts (a single step of Westfall and Young, Resampling-Based Multiple
Testing, Wiley 1993, section 2.6), where the others stand at their own locations. All cells are exchanged together, so
that however they depend on each other is part of the distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.significance import ALPHA, flips, normal_score

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Differences of more than so many standard deviations of normal noise count as this many.
TUNING = 1.345

#: The standard deviation of normal noise over its median distance from the middle.
_OF_NORMAL = 1.4826

#: Steps to a location, places at which a bound is looked for, and halvings between two of these.
_STEPS, _PLACES, _HALVINGS = 60, 24, 20

#: So many times as long as a sum it takes to find the bounds of a cell, on which the number of arrangements depends.
_PASSES = 2 * (_PLACES + _HALVINGS)

#: Statistics that differ by less are equal: rounding breaks no ties.
_EQUAL = 1e-9


class Bounds(NamedTuple):
    """Logarithms of a cell's ratio: its location; what it is at least, of all cells at once; at most, by itself.

    With the confidence of 95 % each: that all `lower` hold, and that this `upper` does.
    """

    value: float
    lower: float
    upper: float


def bounds(cells: Sequence[dict[int, float]], alpha: float = ALPHA) -> list[Bounds]:
    """Of cells that are judged together, each the logarithms of its ratios by the numbers of their blocks.

    A cell needs at least six blocks; with fewer, bounds may be infinite.
    """
    numbers = sorted(set().union(*cells))
    rows = flips(len(numbers), _PASSES * sum(map(len, cells))).rows
    signs = np.concatenate([rows, -rows]).astype(float)
    made = [_Cell(np.array([*cell.values()]), signs[:, [numbers.index(number) for number in cell]]) for cell in cells]
    own = np.array([one.scores(one.value) for one in made])
    allowed = int(alpha * len(signs))
    found = []
    for index, one in enumerate(made):
        others = np.delete(own, index, axis=0).max(axis=0, initial=-np.inf)
        found.append(Bounds(one.value, one.lower(others, allowed), one.upper(allowed)))
    return found


@dataclass(frozen=True)
class _Cell:
    """Logarithms [n], and the signs of their blocks [arrangements, n], the first as measured."""

    logs: NDArray[np.float64]
    signs: NDArray[np.float64]

    @cached_property
    def value(self) -> float:
        """The location: where the bounded differences add up to 0."""
        value = float(np.median(self.logs))
        for _ in range(_STEPS):
            value += float(_bounded(self.logs - value).mean())
        return value

    def scores(self, place: float) -> NDArray[np.float64]:
        """[arrangements]: t of the bounded differences from a place, as a normal score."""
        differences, freedom = _bounded(self.logs - place), len(self.logs) - 1
        share = self.signs @ differences / np.sqrt(max(len(differences) * (differences**2).sum(), 1e-300))
        share = np.clip(share, -1 + 1e-12, 1 - 1e-12)
        score: NDArray[np.float64] = np.sign(share) * normal_score(freedom * share**2 / (1 - share**2), freedom)
        return score

    def lower(self, others: NDArray[np.float64], allowed: int) -> float:
        """Below it the cell stands out more than itself and `others` [arrangements] do in all but `allowed` of them."""

        def excluded(place: float) -> bool:
            scores = self.scores(place)
            return int(np.count_nonzero(np.maximum(scores, others) >= scores[0] - _EQUAL)) <= allowed

        return self._bound(excluded, -1.0)

    def upper(self, allowed: int) -> float:
        """Above it the cell by itself stands out, downwards, more than in all but `allowed` of the arrangements."""

        def excluded(place: float) -> bool:
            scores = self.scores(place)
            return int(np.count_nonzero(scores <= scores[0] + _EQUAL)) <= allowed

        return self._bound(excluded, 1.0)

    def _bound(self, excluded: Callable[[float], bool], direction: float) -> float:
        """The farthest place in a direction from the location that is not excluded; infinite if none is."""
        spread = float(np.abs(self.logs - self.value).max())
        if spread < _EQUAL:
            return self.value
        away = np.concatenate([[0.0], spread * np.geomspace(0.02, 20, _PLACES)])
        possible = [place for place in range(len(away)) if not excluded(self.value + direction * away[place])]
        if not possible or possible[-1] == len(away) - 1:
            return self.value if not possible else direction * np.inf
        near, far = away[possible[-1]], away[possible[-1] + 1]
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            near, far = (near, middle) if excluded(self.value + direction * middle) else (middle, far)
        return float(self.value + direction * far)


def _bounded(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences [n], none larger than `TUNING` standard deviations; where most are 0, hardly more than signs."""
    most = max(TUNING * _OF_NORMAL * float(np.median(np.abs(differences))), 1e-9)
    return np.clip(differences, -most, most)
