"""How far cells stand out: Student's t of blocks or of sides, without launches at the ends, in many arrangements.

Of differences within blocks, or of two sides where that stands out more: the first where blocks drift, the second
where they do not, because it knows its spread from twice as many launches. Launches that are occasionally slow would
hide a difference; therefore it is the largest of all ways to leave out some of the launches at the ends, times the
cube of the share that is kept: then t of normal noise is about as large with fewer launches as with all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.estimate import FEWEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: At most so many blocks are left out of a cell, and so many launches where there are no blocks.
_MOST_BLOCKS, _MOST_LAUNCHES = 8, 4

#: Values that are rearranged at a time.
_AT_ONCE = 1 << 19

#: Squares of t over the degrees of freedom above this are equal: the spread is zero but for rounding.
_LARGEST = 1e9


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
    most = _blocks_left_out(n)
    for (kept, total, squares), (_, other_total, other_squares) in zip(
        _windows(signed, most), _windows(sums, most), strict=True
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


def _blocks_left_out(n: int) -> int:
    """Half of those beyond five, so none of six: five that agree by chance would be the one way of 32 that p allows."""
    return max(min((n - FEWEST + 1) // 2, _MOST_BLOCKS), 0)


def _left_out(n: int) -> int:
    """A fifth of the launches of both sides."""
    return min(n // 5, _MOST_LAUNCHES)


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
