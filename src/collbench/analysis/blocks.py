"""Launch medians of several cells side by side, so that what combines several cells has a value in each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.observations import Cell

if TYPE_CHECKING:
    from numpy.typing import NDArray


def together(cells: Sequence[Cell], in_blocks: bool) -> NDArray[np.float64]:
    """Medians [n, cells] in seconds, a row for each block that all cells have, without blocks that were contended.

    Without blocks no launch of one cell belongs to one of another: then they are combined in the order in which they
    were measured, as many as the cell with the fewest has.
    """
    if in_blocks:
        medians = [cell.by_launch for cell in cells]
        disturbed = set[int]().union(*(cell.disturbed for cell in cells))
        common = sorted(set.intersection(*map(set, medians)) - disturbed)
        return np.array([[of_cell[launch] for of_cell in medians] for launch in common]).reshape(-1, len(cells))
    quiet = [cell.without(cell.disturbed) if cell.disturbed else cell for cell in cells]
    fewest = min(len(cell.medians) for cell in quiet)
    return np.array([cell.medians[:fewest] for cell in quiet], dtype=float).T
