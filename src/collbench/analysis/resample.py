"""Launches drawn anew, with replacement: for intervals of what no rank test covers. The same every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.observations import Cell

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAWS = 2000
SEED = 20210331


def resampled(cells: Sequence[Cell], in_blocks: bool, draws: int = DRAWS) -> NDArray[np.float64]:
    """Medians [draws, cells] of the cells' launch medians (s), after drawing as many launches as there are.

    In blocks, the same launches are drawn for all cells, of those that all of them have, so what a block does to all of
    them stays together; else each cell's launches are drawn for themselves. No launches: an array [0, cells].
    """
    generator = np.random.default_rng(SEED)
    if in_blocks:
        found = [cell.by_launch for cell in cells]
        common = sorted(set.intersection(*(set(one) for one in found)))
        if not common:
            return np.empty((0, len(cells)))
        values = np.array([[one[launch] for one in found] for launch in common])
        chosen = generator.integers(0, len(common), (draws, len(common)))
        return np.asarray(np.median(values[chosen], axis=1))
    columns = []
    for cell in cells:
        if not cell.medians:
            return np.empty((0, len(cells)))
        medians = np.asarray(cell.medians)
        columns.append(np.median(medians[generator.integers(0, len(medians), (draws, len(medians)))], axis=1))
    return np.stack(columns, axis=1)


def middle(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """The middle 95 % of the finite values; None where fewer than 95 % are finite."""
    finite = values[np.isfinite(values)]
    if not len(values) or len(finite) < 0.95 * len(values):
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return float(low), float(high)
