"""False-positive rate of a number of launches, and the smallest difference that they detect.

Both come from launches of the same thing under two names. Within a block the names mean nothing, so every way to swap
them is as likely as the one that was measured; a difference is put in by multiplying one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analysis import significance
from collbench.analysis.compare import MARGIN, verdict_on
from collbench.analysis.estimate import ratio_in_blocks
from collbench.analysis.significance import Sample, statistics

#: Ways to swap names: all of them up to nine blocks, else so many at random.
SWAPS = 512
SEED = 1

#: A difference is detected when this share of the swaps finds it.
POWER = 0.8

#: Differences that are tried, as shares.
STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)


#: Launch medians of the base and of the other side, [blocks] each.
Sides = tuple[NDArray[np.float64], NDArray[np.float64]]


#: Of the cells in all arrangements, [cells, arrangements].
Statistics = NDArray[np.float32]


@dataclass(frozen=True)
class PairedLaunches:
    """Launch medians (s) of one cell under both names, value i of both from block i."""

    base: tuple[float, ...]
    other: tuple[float, ...]


def false_positives(cells: Sequence[PairedLaunches], margin: float = MARGIN) -> float:
    """The share of swaps in which any cell is called `faster` or `slower`, without any difference."""
    swapped = [[_swapped(cell, swap) for cell in cells] for swap in _swaps(cells)]
    wrong = 0
    for sides, found in zip(swapped, _statistics(swapped, _rows(cells)), strict=True):
        p = significance.of_statistics(found).p_adjusted.tolist()
        wrong += any(_differs(both, own, margin) for both, own in zip(sides, p, strict=True))
    return wrong / len(swapped)


def smallest(cells: Sequence[PairedLaunches], margin: float = MARGIN) -> list[float | None]:
    """For each cell the least of `STEPS` that is called `slower` in 80 % of the swaps; None where none is.

    The difference is in that cell alone, and none in all others: the hardest case for cells that are tested together.
    """
    least: list[float | None] = [None] * len(cells)
    swaps, rows = _swaps(cells), _rows(cells)
    plain = _statistics([[_swapped(cell, swap) for cell in cells] for swap in swaps], rows)
    for index, cell in enumerate(cells):
        for step in (step for step in STEPS if step > margin):
            if _seen(index, [_swapped(cell, swap, step) for swap in swaps], plain, rows, margin) >= POWER:
                least[index] = step
                break
    return least


def _seen(
    index: int, swapped: Sequence[Sides], plain: Sequence[Statistics], rows: NDArray[np.int8], margin: float
) -> float:
    """The share of swaps in which this cell is called slower, `swapped` with a difference, and all others `plain`."""
    seen = 0
    for sides, without, own in zip(swapped, plain, _statistics([[sides] for sides in swapped], rows), strict=True):
        found = without.copy()
        found[index] = own[0]
        seen += _differs(sides, float(significance.of_statistics(found).p_adjusted[index]), margin, ("slower",))
    return seen / len(swapped)


def _swaps(cells: Sequence[PairedLaunches]) -> NDArray[np.bool_]:
    """[swaps, blocks]: whether the names of a block are swapped; every cell of a block is swapped with it."""
    blocks = max(len(cell.base) for cell in cells)
    if 2**blocks <= SWAPS:
        every: NDArray[np.bool_] = (np.arange(2**blocks)[:, None] >> np.arange(blocks)) & 1 == 1
        return every
    return np.random.default_rng(SEED).random((SWAPS, blocks)) < 0.5


def _swapped(cell: PairedLaunches, swaps: NDArray[np.bool_], added: float = 0.0) -> Sides:
    """Both sides with names swapped in some blocks, and the share `added` to the other one."""
    swapped = swaps[: len(cell.base)]
    base: NDArray[np.float64] = np.where(swapped, cell.other, cell.base)
    other: NDArray[np.float64] = np.where(swapped, cell.base, cell.other) * (1 + added)
    return base, other


def _rows(cells: Sequence[PairedLaunches]) -> NDArray[np.int8]:
    """Arrangements of the blocks; fewer of many launches, because they are computed for every swap."""
    launches = SWAPS * sum(len(cell.base) for cell in cells)
    return significance.flips(max(len(cell.base) for cell in cells), launches).rows


def _statistics(swapped: Sequence[Sequence[Sides]], rows: NDArray[np.int8]) -> list[Statistics]:
    """For each swap those of its cells."""
    both = [sides for cells in swapped for sides in cells]
    cells = [Sample(np.log([base, other]), np.arange(len(base))) for base, other in both]
    return list(statistics(cells, rows, in_blocks=True).reshape(len(swapped), -1, len(rows)))


def _differs(sides: Sides, p: float, margin: float, wanted: Sequence[str] = ("slower", "faster")) -> bool:
    base, other = sides
    return verdict_on(ratio_in_blocks(other, base), p, margin) in wanted
