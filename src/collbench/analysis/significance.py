"""Tests for a difference: Mann-Whitney and signed-rank, many cells at once, adjusted for their number. Needs SciPy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.optional import stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: False discoveries among the verdicts that name a difference: at most this share, over all cells together.
ALPHA = 0.05

#: Above this many values a side the normal approximation is good enough, and the exact distribution takes long.
_EXACT = 60

Side = Sequence[float]


def mann_whitney(pairs: Sequence[tuple[Side, Side]]) -> list[float]:
    """Two-sided p of each pair of sides (Mann and Whitney, Annals of Mathematical Statistics 18 (1947) 50-60).

    Exact without ties, else the normal approximation with its correction for ties; 1.0 where nothing can be tested: all
    values equal, or an empty side. Pairs of equal sizes are tested together, which makes thousands fast.
    """
    p = np.ones(len(pairs))
    alike: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for index, (base, other) in enumerate(pairs):
        together = [*base, *other]
        different = len(set(together))
        if base and other and different > 1:
            exact = different == len(together) and max(len(base), len(other)) <= _EXACT
            alike[len(base), len(other), exact].append(index)
    for (_, _, exact), indices in alike.items():
        sides = [np.array([pairs[i][side] for i in indices]) for side in (0, 1)]
        method = "exact" if exact else "asymptotic"
        p[indices] = stats().mannwhitneyu(*sides, axis=1, method=method).pvalue
    return [float(value) for value in p]


def signed_rank(differences: Sequence[Side]) -> list[float]:
    """Two-sided p of each set of block differences (Wilcoxon, Biometrics Bulletin 1 (1945) 80-83); 1.0 if all are 0.

    The share of all 2^n ways to set signs, without zeros: exact with ties too, where the normal approximation of six
    blocks gives too small a p. Above 60 blocks the approximation.
    """
    return [_of_signs([value for value in values if value]) for values in differences]


def _of_signs(values: list[float]) -> float:
    if not values:
        return 1.0
    if len(values) > _EXACT:
        return float(stats().wilcoxon(values, method="asymptotic").pvalue)
    ranks = np.rint(2 * stats().rankdata(np.abs(values))).astype(int)  # doubled, so that ties are whole numbers
    positive = int(ranks[np.asarray(values) > 0].sum())
    chances = np.zeros(ranks.sum() + 1)
    chances[0] = 1.0
    for rank in ranks.tolist():
        chances = (chances + np.concatenate((np.zeros(rank), chances[:-rank]))) / 2
    return min(1.0, 2 * float(min(chances[: positive + 1].sum(), chances[positive:].sum())))


#: The share of the false-positive rate that the test within blocks gets where there are two: the larger one, because
#: with six blocks its smallest p is 0.031.
BLOCKS_SHARE = 0.7


def either(sides: float, blocks: float | None) -> float:
    """One p of both tests of a cell, by a weighted Bonferroni correction."""
    return sides if blocks is None else min(1.0, blocks / BLOCKS_SHARE, sides / (1 - BLOCKS_SHARE))


class PValues(NamedTuple):
    """The p values of one cell; `p_blocks` is None without blocks, `cells` how many were adjusted together."""

    p: float
    p_blocks: float | None
    p_adjusted: float
    cells: int

    @property
    def factor(self) -> float:
        """By how much p was multiplied for the number of cells; that number itself where p was cut off at 1."""
        combined = either(self.p, self.p_blocks)
        return self.p_adjusted / combined if self.p_adjusted < 1.0 and combined > 0 else float(self.cells)


@cache
def least_p(n: int, blocks: bool, both: bool = False) -> float:
    """The smallest p of n launches a side: that of the signed-rank test in `blocks`, else of the Mann-Whitney test.

    With `both` the smallest of the two together (`either`): all launches of one side above all of the other.
    """
    of_blocks = 2.0 ** (1 - min(n, _EXACT))
    of_sides = 2 / math.comb(2 * min(n, _EXACT), min(n, _EXACT))
    if both:
        return either(of_sides, of_blocks)
    return either(1.0, of_blocks) if blocks else of_sides


def adjusted(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p values (Journal of the Royal Statistical Society B 57 (1995) 289-300)."""
    values: NDArray[np.float64] = np.asarray(p, dtype=float)
    return [float(value) for value in stats().false_discovery_control(values)] if len(values) else []
