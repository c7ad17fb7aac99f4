"""Closed testing with sums of powers: which cells differ, whichever do, where many may differ by little.

A cell is called different when every set of cells that it is in is (Marcus, Peritz and Gabriel, Biometrika 63 (1976)
655-660): the set of those that do not differ is one of them, so the chance of any false verdict is that of its own
test. A set's test is the share of arrangements in which the sum of a power of its cells' statistics is at least as
large as measured, which is exact. The power rises with the size of the set: in small sets several cells that differ
by little add up, in large ones the largest counts, so that one among many is seen.

There are 2^m sets. That none has a larger p than those known is shown by branch and bound (as Vesely, Finos and
Goeman, JRSS B 85 (2023) 664-683, do for sum tests): of all sets with some cells in it and some not, at most those
arrangements count in which the others' differences that are above 0 make up for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

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
