"""What so many launches can see: how often they cry wolf, and the smallest difference that they find.

Both come from launches of one thing under two names. Within a block the names say nothing, so every way to swap them is
as likely as the one that was measured; and a difference is put in by multiplying one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.compare import MARGIN, judge, tests_of
from collbench.analysis.estimate import ratio_in_blocks

#: Ways of swapping names that are tried.
SWAPS = 200
SEED = 1

#: A difference is seen when so many swaps find it.
POWER = 0.8

#: Differences that are tried, as shares.
STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Sides:
    """Launch medians (s) of one cell under both names, value i of both from block i."""

    one: tuple[float, ...]
    other: tuple[float, ...]


def false_positives(cells: Sequence[Sides], margin: float = MARGIN) -> float:
    """The share of verdicts `faster` or `slower`, over all cells and swaps, where there is no difference."""
    return float(np.mean([_different(cells, swaps, 0.0, margin) for swaps in _swaps(cells)]))


def smallest(cells: Sequence[Sides], margin: float = MARGIN) -> list[float | None]:
    """For each cell the smallest difference of `STEPS` that is called `slower` in 80 % of the swaps; None: none is."""
    found: list[float | None] = [None] * len(cells)
    for step in STEPS:
        if step <= margin:
            continue
        seen = np.mean([_slower(cells, swaps, step, margin) for swaps in _swaps(cells)], axis=0)
        for index, share in enumerate(seen):
            if found[index] is None and share >= POWER:
                found[index] = step
        if all(one is not None for one in found):
            break
    return found


def _swaps(cells: Sequence[Sides]) -> NDArray[np.bool_]:
    """[swaps, blocks]: whether the names of a block are swapped; every cell of a block is swapped with it."""
    blocks = max(len(cell.one) for cell in cells)
    return np.random.default_rng(SEED).random((SWAPS, blocks)) < 0.5


def _verdicts(cells: Sequence[Sides], swaps: NDArray[np.bool_], added: float, margin: float) -> list[str]:
    values = []
    for cell in cells:
        swapped = swaps[: len(cell.one)]
        one = np.where(swapped, cell.other, cell.one)
        other = np.where(swapped, cell.one, cell.other) * (1 + added)
        values.append((one.tolist(), other.tolist()))
    tests = tests_of(values, in_blocks=True)
    return [judge(ratio_in_blocks(other, one), next(tests).p_adjusted, margin)[0] for one, other in values]


def _different(cells: Sequence[Sides], swaps: NDArray[np.bool_], added: float, margin: float) -> float:
    return float(np.mean([verdict in ("faster", "slower") for verdict in _verdicts(cells, swaps, added, margin)]))


def _slower(cells: Sequence[Sides], swaps: NDArray[np.bool_], added: float, margin: float) -> list[bool]:
    return [verdict == "slower" for verdict in _verdicts(cells, swaps, added, margin)]
