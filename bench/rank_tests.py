"""The tests that verdicts had before: of ranks, cell by cell, with Benjamini and Hochberg's adjustment."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]

#: The share of the false positives that the test within blocks gets, where there are two.
BLOCKS_SHARE = 0.7


def adjusted(base: Values, other: Values, in_blocks: bool) -> Values:
    """Adjusted p of each cell; logarithms of times [n, cells]."""
    p = _mann_whitney(base, other)
    if in_blocks:
        blocks = np.array([_signed_rank(values) for values in (other - base).T])
        p = np.minimum(1.0, np.minimum(blocks / BLOCKS_SHARE, p / (1 - BLOCKS_SHARE)))
    found: Values = stats.false_discovery_control(p)
    return found


def _mann_whitney(base: Values, other: Values) -> Values:
    """Exact for cells without ties, otherwise the normal approximation; 1 where all values are equal."""
    different = np.array([len(np.unique(values)) for values in np.concatenate((base, other)).T])
    p = np.ones(len(different))
    for method, cells in (("exact", different == 2 * len(base)),
                          ("asymptotic", (different > 1) & (different < 2 * len(base)))):  # fmt: skip
        if cells.any():
            p[cells] = stats.mannwhitneyu(base[:, cells], other[:, cells], axis=0, method=method).pvalue
    return p


def _signed_rank(values: Values) -> float:
    """Of all ways to set signs, without zeros."""
    values = values[values != 0]
    if not len(values):
        return 1.0
    ranks = np.rint(2 * stats.rankdata(np.abs(values))).astype(int)
    chances = _chances(tuple(sorted(ranks.tolist())))
    positive = int(ranks[values > 0].sum())
    return min(1.0, 2 * float(min(chances[: positive + 1].sum(), chances[positive:].sum())))


@cache
def _chances(ranks: tuple[int, ...]) -> Values:
    """Of every sum of such ranks whose signs are positive."""
    chances = np.zeros(sum(ranks) + 1)
    chances[0] = 1.0
    for rank in ranks:
        chances = (chances + np.concatenate((np.zeros(rank), chances[:-rank]))) / 2
    return chances
