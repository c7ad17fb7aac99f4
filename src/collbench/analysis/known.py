"""Verdicts that are known, by the two cells that were compared: whatever else is said of these has the same."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.analysis.compare import Comparison, turned
from collbench.analysis.pair import Pair


class Known:
    """Of these comparisons those with a ratio; of several on the same two cells the first."""

    def __init__(self, comparisons: Iterable[Comparison]) -> None:
        self._by_cells: dict[frozenset[int], Comparison] = {}
        for one in comparisons:
            if one.ratio is not None:
                self._by_cells.setdefault(_cells(one.pair), one)

    def of(self, pair: Pair) -> Comparison | None:
        """The comparison of these cells, with the sides as they are here; None where it is not known."""
        found = self._by_cells.get(_cells(pair))
        return found if found is None or found.pair.base is pair.base else turned(found)


def _cells(pair: Pair) -> frozenset[int]:
    return frozenset((id(pair.base), id(pair.other)))
