"""Launches until decided: before each block, which comparisons are decided and which cells are launched again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from collbench.analysis.deciding import TRIED, Standing, questions, standing, still_open
from collbench.analysis.observations import Cell, apply_manifests, collect
from collbench.launch.cells import LaunchCell
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.keeping import placed
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.units import counted, format_long

#: How many open comparisons are named.
_NAMED = 3


def cells_of(expanded: ExpandedPlan) -> dict[Case, LaunchCell]:
    """The launch cell that measures each case, by the case as it is recorded."""
    return {placed(case, cell): cell for cell, cases in expanded.expected.items() for case in cases}


def decides(expanded: ExpandedPlan) -> str:
    """`decides 12 comparisons (8 by policy, 4 by image) ...`: what `until = "decided"` asks of a plan."""
    found = questions([Cell(case) for case in cells_of(expanded)])
    number = sum(map(len, found.values()))
    if not number:
        return "decides nothing: no two of its cells are compared, so every cell has all its launches"
    listed = ", ".join(f"{len(pairs)} by {name}" for name, pairs in found.items())
    return f"decides {counted(number, 'comparison')} ({listed}), each side with the first one that it is compared with"


class Decider:
    """Asked before each block, with the records so far. `say` gets a line, and how many launches may still come."""

    def __init__(
        self, expanded: ExpandedPlan, manifest: Manifest, records: Sequence[Record], say: Callable[[str, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._expanded, self._manifest, self._records, self._say, self._clock = expanded, manifest, records, say, clock
        self._cells = cells_of(expanded)
        self._begun, self._before, self._over = clock(), len(_launches(records)), False

    def __call__(self, block: int) -> frozenset[LaunchCell] | None:
        """The cells of a block: those of which a comparison is open. The records of blocks before it decide alone."""
        if block < TRIED:
            return None
        found = self._standing(block)
        if not found:
            return None
        wanted = frozenset(self._cells[cell.case] for cell in still_open(found))
        most = self._expanded.plan.launches
        left, self._over = len(wanted) * (most - block), not wanted
        if all(record.launch < block for record in self._records):  # else it was said before the run was interrupted
            self._say(f"after {counted(block, 'block')}: {_said(found, most)}{self._next(wanted, left)}", left)
        return wanted

    def _standing(self, block: int) -> list[Standing]:
        cells = {case: Cell(case) for case in self._cells}
        collect((record for record in self._records if record.launch < block), cells)
        apply_manifests(cells.values(), [self._manifest])
        return standing(list(cells.values()), block, self._expanded.plan.launches)

    def finish(self) -> None:
        """Say how it ended, unless that was said when nothing was left."""
        most = self._expanded.plan.launches
        if not self._over and (found := self._standing(most)):
            self._say(f"in the end: {_said(found, most, ended=True)}", 0)

    def _next(self, wanted: frozenset[LaunchCell], left: int) -> str:
        if not wanted:
            return ". Nothing is left to decide"
        each = f"; {len(wanted)} of {counted(len(self._expanded.cells), 'cell')} launched again"
        performed = len(_launches(self._records)) - self._before
        seconds = (self._clock() - self._begun) / max(performed, 1) * left
        return (
            f"{each}, at most {counted(left, 'launch', 'launches')}{f', {format_long(seconds)}' if performed else ''}"
        )


def _launches(records: Sequence[Record]) -> set[tuple[object, int]]:
    return {(record.case.where, record.launch) for record in records}


def _said(found: Sequence[Standing], most: int, ended: bool = False) -> str:
    """`9 of 14 comparisons decided (5 same, 4 slower), 2 given up as too noisy for 20 launches, 3 open (...)`."""
    states = Counter(one.state for one in found)
    verdicts = Counter(one.comparison.verdict for one in found if one.state == "decided").most_common()
    listed = f" ({', '.join(f'{number} {verdict}' for verdict, number in verdicts)})" if verdicts else ""
    names = dict.fromkeys(f"{one.pair.base_name} > {one.pair.other_name}" for one in found if one.state == "open")
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    parts = {
        f"of {counted(len(found), 'comparison')} decided{listed}": states["decided"],
        f"given up as too noisy for {counted(most, 'launch', 'launches')}": 0 if ended else states["hopeless"],
        "not comparable": states["impossible"],
        f"open ({', '.join(list(names)[:_NAMED])}{more})": 0 if ended else states["open"],
        "not decided": states["open"] + states["hopeless"] if ended else 0,
    }
    return ", ".join(f"{number} {text}" for text, number in parts.items() if number or text.startswith("of "))
