"""One test for all cells of a comparison: the chance that any of them is called different though none is, is bounded.

Order within blocks was drawn at random, so if two sides do not differ, every way to exchange their names in whole
blocks is as likely as the one that was measured; without blocks, every way to deal the launches to the two sides. Each
such arrangement gives each cell a statistic. A cell's p is the share of arrangements in which its own statistic is at
least as large as measured; its adjusted p the share in which that of any cell is that has none larger than it: the step-down
maximum of Westfall and Young (Resampling-Based Multiple Testing, Wiley 1993, section 2.6). All cells are rearranged
together, so that however they depend on each other is part of the distribution. A statistic depends on its own cell
only; therefore the procedure holds whichever of the cells differ (Romano and Wolf, JASA 100 (2005) 94-108).

The statistic is Student's t, of differences within blocks or of two sides, whichever stands out more: the first where
blocks drift, the second where they do not, because it knows its spread from twice as many launches. Launches that are
occasionally slow would hide a difference; therefore it is the largest of all ways to leave out up to a fifth of the
launches (at most four) at the ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Up to so many arrangements are taken all: the signs of 16 blocks.
ALL = 1 << 15

#: Where there are more, or all would take too long, so many are drawn, at the least and at the most.
DRAWN = (249, 9999)
SEED = 1

#: Arrangements x launches that are computed: what bounds the time, a few seconds.
_WORK = 5 * 10**7

#: Values that are rearranged at a time, and statistics that are held.
_AT_ONCE, _HELD = 1 << 19, 25_000_000

#: At most so many launches are left out of a cell, or a fifth of them where that is less.
_MOST_LEFT_OUT = 4

#: A statistic smaller by this share counts as equal: rounding breaks no ties.
_EQUAL = 1e-4

#: Squares of t over the degrees of freedom above this are equal: the spread is zero but for rounding.
_LARGEST = 1e9


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
class Cell:
    """Logarithms of times and their positions [n]: in blocks [2, n], of base and other, otherwise [n] of both sides."""

    values: NDArray[np.float64]
    positions: NDArray[np.int64]


def statistics(cells: Sequence[Cell], rows: NDArray[np.int8], in_blocks: bool) -> NDArray[np.float32]:
    """That of each cell in each arrangement, [cells, arrangements]; 0 where nothing differs."""
    found = np.zeros((len(cells), len(rows)), np.float32)
    for indices in _alike(cells, in_blocks):
        values = np.array([cells[i].values for i in indices])
        positions = np.array([cells[i].positions for i in indices])
        each = max(_AT_ONCE // max(values.shape[-1] * len(rows), 1), 1)
        for part in (slice(start, start + each) for start in range(0, len(indices), each)):
            of_part = np.array(indices[part])
            if in_blocks:
                found[of_part] = _paired(values[part], positions[part], rows)
            else:
                found[of_part] = _unpaired(values[part], rows[:, positions[0]])
    return found


def _alike(cells: Sequence[Cell], in_blocks: bool) -> list[list[int]]:
    """Indices of cells that are computed at once: of equal length and, without blocks, of the same launches."""
    groups: dict[object, list[int]] = {}
    for index, cell in enumerate(cells):
        groups.setdefault(len(cell.positions) if in_blocks else cell.positions.tobytes(), []).append(index)
    return list(groups.values())


def _paired(values: NDArray[np.float64], positions: NDArray[np.int64], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """Of both sides [cells, 2, n] under signs: the largest t of neighbouring differences in order, as a normal score.

    With d and m the difference and the sum of both sides in a block, S their n sum(x^2) - sum(x)^2: t^2 is
    (n - 1) sum(d)^2 / S(d) of differences, and (2 n - 2) sum(d)^2 / (S(d) + S(m)) of two sides.
    """
    n = values.shape[-1]
    signed = rows[:, positions] * (values[:, 1] - values[:, 0])
    signed *= np.where(signed.sum(axis=-1, keepdims=True) < 0, -1.0, 1.0)  # t of both is the same, to the last digit
    order = np.argsort(signed, axis=-1)
    signed = np.take_along_axis(signed, order, axis=-1)
    sums = values.sum(axis=1)
    sums -= np.median(sums, axis=-1, keepdims=True)
    sums = sums[np.arange(len(sums))[:, None], order]
    paired, unpaired = np.zeros(signed.shape[:2]), np.zeros(signed.shape[:2])
    for (kept, total, squares), (_, other_total, other_squares) in zip(
        _windows(signed, _left_out(n)), _windows(sums, _left_out(n)), strict=True
    ):
        squared, spread = (kept / n) ** 6 * total**2, kept * squares - total**2
        np.maximum(paired, (kept - 1) * _ratio(squared, spread), out=paired)
        spread += np.maximum(kept * other_squares - other_total**2, 0.0)
        np.maximum(unpaired, (2 * kept - 2) * _ratio(squared, spread), out=unpaired)
    return np.maximum(_score(paired, n - 1), _score(unpaired, 2 * n - 2)).T


def _unpaired(values: NDArray[np.float64], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """Of times [cells, n] dealt to two sides: the largest t of the densest parts of both, as a normal score."""
    number, n = rows.shape
    found = np.zeros((len(values), number))
    centred = values - np.median(values, axis=1, keepdims=True)
    others = rows.sum(axis=1)
    for other in np.unique(others):
        if not 2 <= other <= n - 2:
            continue  # a side has too few launches for a spread: nothing stands out
        which = np.flatnonzero(others == other)
        order = np.argsort(-rows[which], axis=1, kind="stable")
        sides = [_densest(np.sort(centred[:, part], axis=-1), _left_out(n))
                 for part in (order[:, :other], order[:, other:])]  # fmt: skip
        found[:, which] = _score(_largest(sides[0], sides[1], n), n - 2)
    return found


#: Part of a side: how many launches it has, their mean, and the sum of their squared deviations from it.
_Part = tuple[int, "NDArray[np.float64]", "NDArray[np.float64]"]


def _left_out(n: int) -> int:
    return min(n // 5, _MOST_LEFT_OUT)


def _densest(ordered: NDArray[np.float64], most: int) -> list[_Part]:
    """Of values in order [..., n], for each number left out the neighbouring ones that spread least."""
    n = ordered.shape[-1]
    parts: dict[int, _Part] = {}
    for kept, total, squares in _windows(ordered, min(most, (n - 2) // 2)):
        mean, spread = total / kept, np.maximum(squares - total**2 / kept, 0.0)
        if kept in parts:
            narrower = spread < parts[kept][2]
            mean, spread = (np.where(narrower, new, old) for new, old in zip((mean, spread), parts[kept][1:],
                                                                            strict=True))  # fmt: skip
        parts[kept] = (kept, mean, spread)
    return list(parts.values())


def _largest(base: list[_Part], other: list[_Part], n: int) -> NDArray[np.float64]:
    """The largest squared t of a part of each side, with up to a fifth of both together left out."""
    largest = np.zeros_like(base[0][1])
    for of_base, base_mean, base_spread in base:
        for of_other, other_mean, other_spread in other:
            kept = of_base + of_other
            if n - kept <= _left_out(n):
                spread = (base_spread + other_spread) * (1 / of_base + 1 / of_other)
                squared = (kept - 2) * _ratio((other_mean - base_mean) ** 2, spread)
                largest = np.maximum(largest, (kept / n) ** 6 * squared)
    return largest


def _windows(ordered: NDArray[np.float64], most: int) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
    """Neighbouring values of [..., n] in order, all but up to `most`: how many, their sum, and that of their squares.

    Everything is added to what all of them have in common: nothing cancels.
    """
    n = ordered.shape[-1]
    sums = [_ends(ordered, most), _ends(ordered * ordered, most)]
    for left_out in range(most + 1):
        for below in range(left_out + 1):
            total, squares = (common + low[most - below] + high[most - left_out + below] for common, low, high in sums)
            yield n - left_out, total, squares


def _ends(
    values: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """The sum without `most` values at each end [..., n], and those of the 0 to `most` next ones below and above."""
    n = values.shape[-1]
    nothing = np.zeros(values.shape[:-1])
    low, high = [nothing], [nothing]
    for i in range(most):
        low.append(low[-1] + values[..., most - 1 - i])
        high.append(high[-1] + values[..., n - most + i])
    return values[..., most : n - most].sum(axis=-1), low, high


def _ratio(squared: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """`squared` over `spread`, at most `_LARGEST`; 0 where both are 0."""
    floor = np.maximum(squared / _LARGEST, 1e-300)
    share: NDArray[np.float64] = squared / np.maximum(spread, floor)
    return share


def _score(squared: NDArray[np.float64], freedom: int) -> NDArray[np.float64]:
    """About the normal score of a squared t (Wallace, Annals of Mathematical Statistics 30 (1959) 1124-1130).

    So that cells of few launches, whose t is large more often, do not outdo those of many.
    """
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    score: NDArray[np.float64] = factor * np.sqrt(freedom * np.log1p(squared / max(freedom, 1)))
    return score


@dataclass(frozen=True)
class Tested:
    """For each cell p of it alone and adjusted, [cells], and among how many that stand out no more it had to stand out."""

    p: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]
    left: NDArray[np.int64]


def step_down(cells: Sequence[Cell], arrangements: Arrangements, in_blocks: bool) -> Tested:
    """All cells tested together."""
    measured = statistics(cells, arrangements.rows[:1], in_blocks)[:, 0]
    each = max(_HELD // max(len(cells), 1), 1)
    parts = (arrangements.rows[start : start + each] for start in range(0, len(arrangements.rows), each))
    return _tested(measured, (statistics(cells, part, in_blocks) for part in parts))


def of_statistics(found: NDArray[np.float32]) -> Tested:
    """The same of statistics [cells, arrangements] that are known; the first arrangement is the measured one."""
    return _tested(found[:, 0], [found])


def _tested(measured: NDArray[np.float32], parts: Iterable[NDArray[np.float32]]) -> Tested:
    """From the measured statistics [cells] and those of all arrangements, in parts [cells, some of them]."""
    cells, number = len(measured), 0
    order = np.argsort(measured, kind="stable")
    least = (measured[order] * (1 - _EQUAL))[:, None]
    alone, any_ = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    for part in parts:
        found = part[order]
        alone += (found >= least).sum(axis=1)
        any_ += (np.maximum.accumulate(found, axis=0) >= least).sum(axis=1)
        number += part.shape[1]
    p, adjusted, left = np.empty(cells), np.empty(cells), np.empty(cells, np.int64)
    p[order] = alone / number
    adjusted[order] = np.maximum.accumulate((any_ / number)[::-1])[::-1]
    left[order] = np.arange(1, cells + 1)
    return Tested(p, adjusted, left)
