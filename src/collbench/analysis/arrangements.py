"""Ways to give launches other names: signs of blocks, exchanges of launches, and what stands out among them.

Order within blocks was drawn at random, so if two sides do not differ, every way to exchange their names in whole
blocks is as likely as the one that was measured; without blocks, every way to deal the launches to the two sides. All
cells are rearranged together, so that however they depend on each other is part of the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The probability that anything false is said of one question: at most this.
ALPHA = 0.05

#: Up to so many arrangements are taken all: the signs of 16 blocks.
ALL = 1 << 15

#: Where there are more, or all would take too long, so many are drawn, at the least and at the most.
DRAWN = (249, 1999)
SEED = 1

#: Arrangements x launches that are computed: what bounds the time, a few seconds.
_WORK = 5 * 10**7

#: A statistic smaller by this share counts as equal: rounding breaks no ties.
EQUAL = 1e-4


@dataclass(frozen=True)
class Arrangements:
    """Ways to give launches their names, [number, positions]; the first is the one that was measured.

    In blocks a position is a block, and an entry 1 or -1: names as measured, or exchanged. Otherwise a position is a
    launch, and an entry 1 on the other side, 0 on the base. `drawn`: they are a sample, by `SEED`.
    """

    rows: NDArray[np.int8]
    drawn: bool


def flips(blocks: int, launches: int) -> Arrangements:
    """Signs of so many blocks; those whose every sign is the opposite are left out, because they tell the same.

    `launches`: of all cells together, on which the number of arrangements depends.
    """
    number = 1 << max(blocks - 1, 0)
    if number <= ALL and number * launches <= _WORK:
        bits = (np.arange(number)[:, None] >> np.arange(blocks)) & 1
        return Arrangements((1 - 2 * bits).astype(np.int8), False)
    rows = np.random.default_rng(SEED).choice(np.array([1, -1], np.int8), (_drawn(launches) + 1, blocks))
    rows[0] = 1
    return Arrangements(rows, True)


def exchanges(base: int, other: int, launches: int) -> Arrangements:
    """Ways to deal launches to two sides of these numbers; positions begin with those of the other side."""
    positions = base + other
    measured = (np.arange(positions) < other).astype(np.int8)
    number = math.comb(positions, other)
    if number <= ALL and number * launches <= _WORK:
        rows = np.zeros((number, positions), np.int8)
        chosen = np.array(list(combinations(range(positions), other)))  # the first is the one that was measured
        np.put_along_axis(rows, chosen, 1, axis=1)
        return Arrangements(rows, False)
    rows = np.tile(measured, (_drawn(launches) + 1, 1))
    rows[1:] = np.random.default_rng(SEED).permuted(rows[1:], axis=1)
    return Arrangements(rows, True)


def _drawn(launches: int) -> int:
    return min(max(_WORK // max(launches, 1), DRAWN[0]), DRAWN[1])


def step_down(measured: NDArray[np.float32], parts: Iterable[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Adjusted p values [cells], from the measured statistics and those of all arrangements, in parts [cells, some].

    That of a cell is the share of arrangements in which the statistic of any cell that stands out no more is as large
    as its own: the step-down maximum of Westfall and Young (Resampling-Based Multiple Testing, Wiley 1993, section
    2.6). A statistic depends on its own cell only, therefore it holds whichever of the cells differ (Romano and Wolf,
    JASA 100 (2005) 94-108).
    """
    cells, number = len(measured), 0
    order = np.argsort(measured, kind="stable")
    least = (measured[order] * (1 - EQUAL))[:, None]
    as_large = np.zeros(cells, np.int64)
    for part in parts:
        as_large += (np.maximum.accumulate(part[order], axis=0) >= least).sum(axis=1)
        number += part.shape[1]
    adjusted = np.empty(cells)
    adjusted[order] = np.maximum.accumulate(as_large[::-1])[::-1] / number
    return adjusted
