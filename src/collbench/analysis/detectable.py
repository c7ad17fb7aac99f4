"""False-positive rate of a number of launches, and the smallest difference that they detect.

Both come from launches of the same thing under two names. Within a block the names mean nothing, so every way to swap
them is as likely as the one that was measured; a difference is put in by multiplying one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.compare import MARGIN, p_values, together, verdict_on
from collbench.analysis.estimate import ratio_in_blocks
from collbench.analysis.significance import PValues

#: Random ways to swap names.
SWAPS = 200
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


def false_positives(cells: Sequence[PairedLaunches], margin: float = MARGIN) -> float:
    """The share of verdicts `faster` or `slower` over all cells and swaps, without any difference."""
    verdicts = []
    for swaps in _swaps(cells):
        values = [_swapped(cell, swaps) for cell in cells]
        tests = together(*p_values(values, in_blocks=True))
        verdicts += [_verdict(both, test, margin) for both, test in zip(values, tests, strict=True)]
    return float(np.mean([verdict in ("faster", "slower") for verdict in verdicts]))


def smallest(cells: Sequence[PairedLaunches], margin: float = MARGIN) -> list[float | None]:
    """For each cell the least of `STEPS` that is called `slower` in 80 % of the swaps; None where none is.

    The difference is in that cell alone, and none in all others: the hardest case for p adjusted over all cells.
    """
    least: list[float | None] = [None] * len(cells)
    swaps = list(_swaps(cells))
    plain = [p_values([_swapped(cell, swap) for cell in cells], in_blocks=True) for swap in swaps]
    for step in (step for step in STEPS if step > margin):
        open_ = [index for index, known in enumerate(least) if known is None]
        for index, share in zip(open_, _seen(cells, open_, swaps, plain, step, margin), strict=True):
            if share >= POWER:
                least[index] = step
    return least


def _swaps(cells: Sequence[PairedLaunches]) -> NDArray[np.bool_]:
    """[swaps, blocks]: whether the names of a block are swapped; every cell of a block is swapped with it."""
    blocks = max(len(cell.base) for cell in cells)
    return np.random.default_rng(SEED).random((SWAPS, blocks)) < 0.5


def _swapped(cell: PairedLaunches, swaps: NDArray[np.bool_], added: float = 0.0) -> tuple[list[float], list[float]]:
    """Both sides with names swapped in some blocks, and the share `added` to the other one."""
    swapped = swaps[: len(cell.base)]
    base = np.where(swapped, cell.other, cell.base)
    other = np.where(swapped, cell.base, cell.other) * (1 + added)
    return base.tolist(), other.tolist()


def _seen(
    cells: Sequence[PairedLaunches],
    which: Sequence[int],
    swaps: Sequence[NDArray[np.bool_]],
    plain: Sequence[tuple[list[float], list[float | None]]],
    step: float,
    margin: float,
) -> list[float]:
    """For each of these cells the share of swaps in which it is called slower with the step in it alone.

    `plain` holds the p values of all cells without a step, for each swap.
    """
    values = [_swapped(cells[index], swap, step) for index in which for swap in swaps]
    rows = zip(values, *p_values(values, in_blocks=True), strict=True)
    shares = []
    for index in which:
        seen = 0
        for p, (sides, p_sides, p_blocks) in zip(plain, islice(rows, len(swaps)), strict=True):
            ratio = ratio_in_blocks(sides[1], sides[0])
            if ratio.excludes(1.0):
                of_sides, of_blocks = list(p[0]), list(p[1])
                of_sides[index], of_blocks[index] = p_sides, p_blocks
                seen += verdict_on(ratio, together(of_sides, of_blocks)[index], margin) == "slower"
        shares.append(seen / len(swaps))
    return shares


def _verdict(both: tuple[list[float], list[float]], tests: PValues, margin: float) -> str:
    base, other = both
    return verdict_on(ratio_in_blocks(other, base), tests, margin)
