"""The tests that verdicts had before: of ranks, cell by cell, with Benjamini and Hochberg's adjustment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]

#: The share of the false positives that the test within blocks gets, where there are two.
BLOCKS_SHARE = 0.7


def adjusted(base: Values, other: Values, in_blocks: bool) -> Values:
    """Adjusted p of each cell; logarithms of times [n, cells]."""
    sides = np.array([_mann_whitney(*pair) for pair in zip(base.T, other.T, strict=True)])
    if in_blocks:
        blocks = np.array([_signed_rank(values) for values in (other - base).T])
        sides = np.minimum(1.0, np.minimum(blocks / BLOCKS_SHARE, sides / (1 - BLOCKS_SHARE)))
    found: Values = stats.false_discovery_control(sides)
    return found


def _mann_whitney(base: Values, other: Values) -> float:
    together = np.concatenate((base, other))
    different = len(np.unique(together))
    if different == 1:
        return 1.0
    method = "exact" if different == len(together) else "asymptotic"
    return float(stats.mannwhitneyu(base, other, method=method).pvalue)


def _signed_rank(values: Values) -> float:
    """Of all ways to set signs, without zeros."""
    values = values[values != 0]
    if not len(values):
        return 1.0
    ranks = np.rint(2 * stats.rankdata(np.abs(values))).astype(int)
    positive = int(ranks[values > 0].sum())
    chances = np.zeros(ranks.sum() + 1)
    chances[0] = 1.0
    for rank in ranks.tolist():
        chances = (chances + np.concatenate((np.zeros(rank), chances[:-rank]))) / 2
    return min(1.0, 2 * float(min(chances[: positive + 1].sum(), chances[positive:].sum())))
