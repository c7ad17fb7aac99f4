"""Which cells of a comparison differ: p values of all of them together, from launches in blocks.

Order within blocks was drawn at random, so if two sides do not differ, every way to exchange their names in whole
blocks is as likely as the one that was measured; without blocks, every way to deal the launches to the two sides.
Each such arrangement gives each cell a statistic (`studentised`). A cell's p is the share of arrangements in which
its own is at least as large as measured; its adjusted p the largest of all sets of cells that it is in (`closed`). Of
many cells it is the share in which that of any cell is whose own is no larger: the step-down maximum of Westfall and
Young (Resampling-Based Multiple Testing, Wiley 1993, section 2.6), which needs no search. All cells are rearranged
together, so that however they depend on each other is part of the distribution. A statistic depends on its own cell
only; therefore both hold whichever of the cells differ (Romano and Wolf, JASA 100 (2005) 94-108).

A cell is called different when every set of cells that it is in is (Marcus, Peritz and Gabriel, Biometrika 63 (1976)
655-660): the set of those that do not differ is one of them, so the chance of any false verdict is that of its own
test. A set's test is the share of arrangements in which the sum of a power of its cells' statistics is at least as
large as measured, which is exact. The power rises with the size of the set: in small sets several cells that differ
by little add up, in large ones the largest counts, so that one among many is seen.

There are 2^m sets. That none has a larger p than those known is shown by branch and bound (as Vesely, Finos and
Goeman, JRSS B 85 (2023) 664-683, do for sum tests): of all sets with some cells in it and some not, at most those
arrangements count in which the others' differences that are above 0 make up for the rest.

Of differences within blocks, or of two sides where that stands out more: the first where blocks drift, the second
where they do not, because it knows its spread from twice as many launches. Launches that are occasionally slow would
hide a difference; therefore it is the largest of all ways to leave out some of the launches at the ends, times the
cube of the share that is kept: then t of normal noise is about as large with fewer launches as with all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: So many cells are tested in this way; with more it takes too long.
MOST_CELLS = 32

#: A statistic smaller by this share counts as equal: rounding breaks no ties.
EQUAL = 1e-4

#: Parts of all sets that are looked at for one cell; after these the bound counts, so that it is not called different.
_MOST_PARTS = 2_000


def sizes(cells: int) -> Iterator[tuple[int, int, int]]:
    """The fewest and the most cells of sets that have the same power, and the power: 4 to 2 cells, 5 to 4, 6 to 8."""
    least, most, power = 1, 2, 4
    while least <= cells:
        yield least, min(most, cells), power
        least, most, power = most + 1, 2 * most, power + 1


def most_counted(ordered: NDArray[np.float32], alone: NDArray[np.int64], enough: int) -> NDArray[np.int64]:
    """Of each cell the largest number of arrangements in which a set with it is as large as measured, [cells].

    `ordered`: statistics [cells, arrangements], the first arrangement the measured one and cells in its order;
    `alone` [cells]: the numbers of the cells by themselves. A number above `enough` is that of one set, not of the
    worst.
    """
    counts = alone.copy()
    for least, most, power in sizes(len(ordered)):
        sums = ordered.astype(np.float64) ** power
        search = _Search(sums - sums[:, :1] * (1 - EQUAL), least, most, counts, enough)
        search.weakest()
        search.all_sets()
    return counts


@dataclass(frozen=True)
class _Search:
    """Sets of `least` to `most` cells; `differences` [cells, arrangements] of each from the measured one, in order.

    `counts` [cells]: the most arrangements known in which the sum of a set that the cell is in is at least as large
    as measured. Above `enough` it is not looked for more.
    """

    differences: NDArray[np.float64]
    least: int
    most: int
    counts: NDArray[np.int64]
    enough: int

    def weakest(self) -> None:
        """Of each cell the sets with those that stand out least: seldom is another one worse."""
        total = np.zeros(self.differences.shape[1])
        for size in range(1, self.most + 1):
            if size >= self.least:
                counts = np.count_nonzero(total + self.differences[size - 1 :] >= 0, axis=1)
                np.maximum(self.counts[size - 1 :], counts, out=self.counts[size - 1 :])
                np.maximum(self.counts[: size - 1], counts[0], out=self.counts[: size - 1])
            total += self.differences[size - 1]

    def all_sets(self) -> None:
        """Look for worse sets of each cell that is still to be called different."""
        possible = np.count_nonzero(self.differences + self._others(self.differences, 1) >= 0, axis=1)
        for cell in np.flatnonzero((self.counts <= self.enough) & (possible > self.counts)).tolist():
            if not self._looked(cell):
                self.counts[cell] = max(self.counts[cell], possible[cell])

    def _others(self, differences: NDArray[np.float64], chosen: int) -> NDArray[np.float64]:
        """The most that others of these [cells, arrangements] add to so many chosen ones, [arrangements]."""
        needed, room = max(self.least - chosen, 0), min(self.most - chosen, len(differences))
        if not room:
            return np.zeros(differences.shape[1])
        if room < len(differences):
            differences = np.partition(differences, len(differences) - room, axis=0)[len(differences) - room :]
        if needed:
            differences = np.sort(differences, axis=0)[::-1]
        added = differences[:needed].sum(axis=0) + np.maximum(differences[needed:], 0).sum(axis=0)
        return np.asarray(added)

    def _looked(self, cell: int) -> bool:
        """Whether all sets with a cell were looked at, or one that is enough was found."""
        others = np.delete(np.arange(len(self.counts)), cell)
        nodes = [_Node((cell,), others, self.differences[cell], np.arange(self.differences.shape[1]))]
        for _ in range(_MOST_PARTS):
            if not nodes or self.counts[cell] > self.enough:
                return True
            nodes += self._parts(nodes.pop(), int(self.counts[cell]))
        return False

    def _parts(self, node: _Node, known: int) -> list[_Node]:
        """The sets of a node in two parts, without one of the others and with it; none if they are not worse."""
        size = len(node.chosen)
        if len(node.others) < self.least - size:
            return []
        of_others = self.differences[np.ix_(node.others, node.live)]
        live = node.total + self._others(of_others, size) >= 0
        if np.count_nonzero(live) <= known:
            return []
        total, of_others = node.total[live], of_others[:, live]
        if size >= self.least:
            chosen = list(node.chosen)
            self.counts[chosen] = np.maximum(self.counts[chosen], np.count_nonzero(total >= 0))
        if size == self.most or not len(node.others):
            return []
        above, below = np.maximum(of_others, 0).sum(axis=1), np.maximum(-of_others, 0).sum(axis=1)
        if size >= self.least and not above.any():
            return []
        both = np.minimum(above, below)
        one = int(np.argmax(both if both.any() else above - below))
        rest = np.delete(node.others, one)
        return [
            _Node(node.chosen, rest, total, node.live[live]),
            _Node((*node.chosen, int(node.others[one])), rest, total + of_others[one], node.live[live]),
        ]


@dataclass(frozen=True)
class _Node:
    """All sets with the `chosen` cells and any of the `others`; `total` of the chosen in the `live` arrangements."""

    chosen: tuple[int, ...]
    others: NDArray[np.int64]
    total: NDArray[np.float64]
    live: NDArray[np.int64]


#: At most so many blocks are left out of a cell, and so many launches where there are no blocks.
_MOST_BLOCKS, _MOST_LAUNCHES = 8, 4

#: Values that are rearranged at a time.
_AT_ONCE = 1 << 19

#: Squares of t over the degrees of freedom above this are equal: the spread is zero but for rounding.
_LARGEST = 1e9


@dataclass(frozen=True)
class Sample:
    """Logarithms of times and their positions [n]: in blocks [2, n], of base and other, otherwise [n] of both sides."""

    values: NDArray[np.float64]
    positions: NDArray[np.int64]


def statistics(cells: Sequence[Sample], rows: NDArray[np.int8], in_blocks: bool) -> NDArray[np.float32]:
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


def _alike(cells: Sequence[Sample], in_blocks: bool) -> list[list[int]]:
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
    return np.maximum(normal_score(paired, n - 1), normal_score(unpaired, 2 * n - 2)).T


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
        found[:, which] = normal_score(_largest(sides[0], sides[1], n), n - 2)
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


def normal_score(squared: NDArray[np.float64], freedom: int) -> NDArray[np.float64]:
    """About the normal score of a squared t (Wallace, Annals of Mathematical Statistics 30 (1959) 1124-1130).

    So that cells of few launches, whose t is large more often, do not outdo those of many.
    """
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    score: NDArray[np.float64] = factor * np.sqrt(freedom * np.log1p(squared / max(freedom, 1)))
    return score


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


def adjusted(cells: Sequence[Sample], arrangements: Arrangements, in_blocks: bool) -> Tested:
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


class Launches(NamedTuple):
    """Launch medians (s, above 0) of both sides of a cell and the number of each launch; in blocks those are equal."""

    base: Sequence[float]
    other: Sequence[float]
    of_base: Sequence[int]
    of_other: Sequence[int]


class PValues(NamedTuple):
    """The p values of one cell (`joint`): of it alone, and adjusted for the `cells` that were tested together.

    `left` of these stand out no more than it does, itself included: among so many it has to stand out. `arrangements`:
    how many were computed, and `seed` that of their sample, None where they are all there are.
    """

    p: float
    p_adjusted: float
    cells: int
    left: int
    arrangements: int
    seed: int | None


def p_values(cells: Sequence[Launches], in_blocks: bool) -> list[PValues | None]:
    """The p values of each cell; None for one with fewer than `FEWEST` launches a side, which no verdict is given on.

    Such a cell is not among those tested together: with two or three launches some are equal by chance, and then no
    other cell stands out.
    """
    enough = [index for index, cell in enumerate(cells) if min(len(cell.base), len(cell.other)) >= FEWEST]
    found: list[PValues | None] = [None] * len(cells)
    if enough:
        family = [cells[index] for index in enough]
        for index, p in zip(enough, _in_blocks(family) if in_blocks else _of_sides(family), strict=True):
            found[index] = p
    return found


def _in_blocks(family: Sequence[Launches]) -> list[PValues]:
    cells = paired(family)
    blocks = 1 + max(int(cell.positions.max()) for cell in cells)
    return _p_values(cells, flips(blocks, sum(len(cell.positions) for cell in cells)), True)


def paired(family: Sequence[Launches]) -> list[Sample]:
    """Logarithms of the times; the blocks that any cell has are numbered in their order."""
    blocks = sorted({number for cell in family for number in cell.of_base})
    place = {number: position for position, number in enumerate(blocks)}
    return [
        Sample(np.log([cell.base, cell.other]),
                   np.array([place[number] for number in cell.of_base]))
        for cell in family
    ]  # fmt: skip


def _of_sides(family: Sequence[Launches]) -> list[PValues]:
    """The sides in an order that does not depend on which of them is the base: then neither does a sample."""
    if [list(cell.base) for cell in family] > [list(cell.other) for cell in family]:
        family = [Launches(cell.other, cell.base, cell.of_other, cell.of_base) for cell in family]
    others = sorted({number for cell in family for number in cell.of_other})
    bases = sorted({number for cell in family for number in cell.of_base})
    places = ({number: position for position, number in enumerate(others)},
              {number: position for position, number in enumerate(bases, start=len(others))})  # fmt: skip
    cells = [
        Sample(np.log(np.array([*cell.other, *cell.base])),
                   np.array([places[0][n] for n in cell.of_other] + [places[1][n] for n in cell.of_base]))
        for cell in family
    ]  # fmt: skip
    launches = sum(len(cell.values) for cell in cells)
    return _p_values(cells, exchanges(len(bases), len(others), launches), False)


def _p_values(cells: list[Sample], arrangements: Arrangements, in_blocks: bool) -> list[PValues]:
    found = adjusted(cells, arrangements, in_blocks)
    seed = SEED if arrangements.drawn else None
    rows = zip(found.p.tolist(), found.p_adjusted.tolist(), found.left.tolist(), strict=True)
    return [PValues(p, adjusted, len(cells), left, len(arrangements.rows), seed) for p, adjusted, left in rows]


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
