"""One test for all cells of a comparison: the chance that any of them is called different though none is, is bounded.

Order within blocks was drawn at random, so if two sides do not differ, every way to exchange their names in whole
blocks is as likely as the one that was measured; without blocks, every way to deal the launches to the two sides.
Each such arrangement gives each cell a statistic (`studentised`). A cell's p is the share of arrangements in which
its own is at least as large as measured; its adjusted p the largest of all sets of cells that it is in (`closed`). Of
many cells it is the share in which that of any cell is whose own is no larger: the step-down maximum of Westfall and
Young (Resampling-Based Multiple Testing, Wiley 1993, section 2.6), which needs no search. All cells are rearranged
together, so that however they depend on each other is part of the distribution. A statistic depends on its own cell
only; therefore both hold whichever of the cells differ (Romano and Wolf, JASA 100 (2005) 94-108).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.closed import EQUAL, MOST_CELLS, most_counted
from collbench.analysis.studentised import Cell, statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The probability that any cell of a comparison is called different where none is: at most this.
ALPHA = 0.05

#: Up to so many arrangements are taken all: the signs of 16 blocks.
ALL = 1 << 15

#: Where there are more, or all would take too long, so many are drawn, at the least and at the most.
DRAWN = (249, 1999)
SEED = 1

#: Arrangements x launches that are computed: what bounds the time, a few seconds.
_WORK = 5 * 10**7

#: Statistics that are held at a time.
_HELD = 8_000_000


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


@dataclass(frozen=True)
class Tested:
    """For each cell p of it alone and adjusted, [cells], and how many stand out no more than it, with itself."""

    p: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]
    left: NDArray[np.int64]


def adjusted(cells: Sequence[Cell], arrangements: Arrangements, in_blocks: bool) -> Tested:
    """All cells tested together."""
    if len(cells) <= MOST_CELLS:
        return of_statistics(statistics(cells, arrangements.rows, in_blocks))
    measured = statistics(cells, arrangements.rows[:1], in_blocks)[:, 0]
    each = max(_HELD // len(cells), 1)
    parts = (arrangements.rows[start : start + each] for start in range(0, len(arrangements.rows), each))
    return step_down(measured, (statistics(cells, part, in_blocks) for part in parts))


def of_statistics(found: NDArray[np.float32]) -> Tested:
    """The same of statistics [cells, arrangements] that are known; the first arrangement is the measured one."""
    if len(found) > MOST_CELLS:
        return step_down(found[:, 0], [found])
    order = np.argsort(found[:, 0], kind="stable")
    ordered, number = found[order], found.shape[1]
    alone = np.count_nonzero(ordered >= ordered[:, :1] * (1 - EQUAL), axis=1)
    return _in_order(order, alone, most_counted(ordered, alone, int(ALPHA * number + 1e-9)), number)


def step_down(measured: NDArray[np.float32], parts: Iterable[NDArray[np.float32]]) -> Tested:
    """From the measured statistics [cells] and those of all arrangements, in parts [cells, some of them]."""
    cells, number = len(measured), 0
    order = np.argsort(measured, kind="stable")
    least = (measured[order] * (1 - EQUAL))[:, None]
    alone, any_ = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    for part in parts:
        found = part[order]
        alone += (found >= least).sum(axis=1)
        any_ += (np.maximum.accumulate(found, axis=0) >= least).sum(axis=1)
        number += part.shape[1]
    return _in_order(order, alone, np.maximum.accumulate(any_[::-1])[::-1], number)


def _in_order(order: NDArray[np.int64], alone: NDArray[np.int64], of_all: NDArray[np.int64], number: int) -> Tested:
    """From cells in the order of their statistics: the numbers of arrangements of `number` that count."""
    place = np.argsort(order)
    return Tested((alone / number)[place], (of_all / number)[place], place + 1)
