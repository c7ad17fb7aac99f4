"""False-positive rate of a number of launches, and the smallest difference that they detect.

Both come from launches of the same thing under two names. Within a block the names mean nothing, so every way to swap
them is as likely as the one that was measured; a difference is put in by multiplying one side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.bounds import excluded
from collbench.analysis.compare import MARGIN

#: Ways to swap names: all of them up to eight blocks, else so many at random.
SWAPS = 256
SEED = 1

#: A difference is detected when this share of the swaps finds it.
POWER = 0.8

#: Differences that are tried, as shares.
STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class PairedLaunches:
    """Launch medians (s) of one cell under both names, value i of both from block i."""

    base: tuple[float, ...]
    other: tuple[float, ...]

    @property
    def logs(self) -> NDArray[np.float64]:
        """[blocks]: logarithms of the ratio, the other side over the base."""
        return np.log(self.other) - np.log(self.base)


def false_positives(cells: Sequence[PairedLaunches]) -> float:
    """The share of swaps in which the interval of any cell of a question excludes equality, without any difference."""
    swaps = _swaps(cells)
    none = [[0.0]] * len(cells)
    return sum(any(first for (first,) in excluded(_swapped(cells, signs), none)) for signs in swaps) / len(swaps)


def smallest(cells: Sequence[PairedLaunches], margin: float = MARGIN) -> list[float | None]:
    """For each cell of a question the least of `STEPS` that is seen in 80 % of the swaps; None where none is.

    The difference is in that cell alone, and none in all others: the hardest case for cells that are judged at once.
    An interval that does not hold a loss that is not there would not hold equality if it were.
    """
    swaps, steps = _swaps(cells), [step for step in STEPS if step > margin]
    places = [[-math.log1p(step) for step in steps]] * len(cells)
    seen = np.mean([excluded(_swapped(cells, signs), places) for signs in swaps], axis=0)
    return [next((step for step, share in zip(steps, of_cell, strict=True) if share >= POWER), None)
            for of_cell in seen.tolist()]  # fmt: skip


def _swaps(cells: Sequence[PairedLaunches]) -> NDArray[np.int64]:
    """[swaps, blocks]: -1 where the names of a block are swapped; every cell of a block is swapped with it."""
    blocks = max(len(cell.base) for cell in cells)
    if 2**blocks <= SWAPS:
        every: NDArray[np.int64] = 1 - 2 * ((np.arange(2**blocks)[:, None] >> np.arange(blocks)) & 1)
        return every
    return np.random.default_rng(SEED).choice(np.array([1, -1]), (SWAPS, blocks))


def _swapped(cells: Sequence[PairedLaunches], signs: NDArray[np.int64]) -> list[dict[int, float]]:
    """Logarithms of ratios by block, with names swapped."""
    return [dict(enumerate((cell.logs * signs[: len(cell.base)]).tolist())) for cell in cells]
