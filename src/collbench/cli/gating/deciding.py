"""Until decided: before each block, which cells of a gate have no answer yet, and are launched again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.deciding import TRIED, State, state_of
from collbench.analysis.gate.answers import no_slower
from collbench.analysis.observations import Cell, apply_manifests, collect
from collbench.analysis.pair import Pair
from collbench.schema.case import Case
from collbench.schema.gate_plan import SIDES, GatePlan
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.units import counted


class GateDecider:
    """Asked before each block, with the records of both sides so far. `say` gets a line and the launches left at most.

    `launched_in` is the number of the launch cell that measures a planned cell, by their order.
    """

    def __init__(
        self, plan: GatePlan, launched_in: Sequence[int], records: tuple[Sequence[Record], Sequence[Record]],
        manifests: Sequence[Manifest], margin: float, most: int, say: Callable[[str, int], None],
    ) -> None:  # fmt: skip
        self._plan, self._launched_in, self._records, self._manifests = plan, launched_in, records, manifests
        self._margin, self._most, self._say = margin, most, say

    def __call__(self, block: int) -> frozenset[int] | None:
        """The launch cells of a block. The records of the blocks before it decide alone."""
        if block < TRIED:
            return None
        found = self._compared(block)
        states = [self._state(one, block) for one in found]
        wanted = frozenset(number for number, state in zip(self._launched_in, states, strict=True) if state == "open")
        if all(record.launch < block for side in self._records for record in side):  # else it was said before
            self._say(f"# after {counted(block, 'block')}: {self._said(found, states)}",
                      2 * len(wanted) * (self._most - block))  # fmt: skip
        return wanted

    def _compared(self, block: int) -> list[Comparison]:
        sides = []
        for number, records in enumerate(self._records):
            cells: dict[Case, Cell] = {cases[number]: Cell(cases[number]) for cases in self._plan.cells}
            collect((record for record in records if record.launch < block), cells, some=0)
            apply_manifests(cells.values(), self._manifests)
            sides.append(cells)
        pairs = [Pair(sides[0][base], sides[1][other], *SIDES) for base, other in self._plan.cells]
        return compare(pairs, self._margin, in_blocks=True)

    def _state(self, comparison: Comparison, block: int) -> State:
        if no_slower(comparison, self._margin):
            return "decided"
        return state_of(comparison, block, self._most, self._margin)

    def _said(self, found: Sequence[Comparison], states: Sequence[State]) -> str:
        counts = Counter(states)
        losses = sum(one.verdict == "slower" for one in found)
        lost = f" ({counted(losses, 'loss', 'losses')})" if losses else ""
        parts = {
            f"of {counted(len(found), 'cell')} decided{lost}": counts["decided"],
            "open": counts["open"],
            f"given up as too noisy for {counted(self._most, 'launch', 'launches')}": counts["hopeless"],
            "not comparable": counts["impossible"],
        }
        return ", ".join(f"{number} {text}" for text, number in parts.items() if number or text.startswith("of "))
