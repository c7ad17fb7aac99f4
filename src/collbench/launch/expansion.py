"""A launch plan spelt out once: its cells, what each measures, where its ranks sit, and the order of launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collbench.errors import PlanError
from collbench.launch import engines
from collbench.launch.cells import Launch, LaunchCell, cases_in, cells_of, check_backends, order_of
from collbench.launch.placing import Placement, place
from collbench.machine.topology import Topology
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan


@dataclass(frozen=True)
class ExpandedPlan:
    """By cell, in the plan's order, where its ranks sit and what its worlds measure; and every launch in its order."""

    plan: LaunchPlan
    placements: dict[LaunchCell, Placement]
    cases: dict[LaunchCell, frozenset[Case]]
    order: tuple[Launch, ...]

    @property
    def cells(self) -> tuple[LaunchCell, ...]:
        """Each once."""
        return tuple(self.placements)

    def placements_on(self, engine: str) -> dict[LaunchCell, Placement]:
        """Of the cells that an engine is to start."""
        return {cell: placement for cell, placement in self.placements.items() if cell.engine == engine}


def machine_of(engine: str) -> Topology:
    """What an engine offers to ranks."""
    return engines.get(engine).machine()


def expand(plan: LaunchPlan, machine: Callable[[str], Topology] = machine_of) -> ExpandedPlan:
    """Spell a plan out. `machine` says what the engine of that name offers.

    Raises:
        PlanError: an unknown name, more is asked for than there is, or nothing would be measured.
    """
    check_backends(plan)
    cells = cells_of(plan)
    machines = {name: machine(name) for name in dict.fromkeys(cell.engine for cell in cells)}
    placements = {}
    for cell in cells:
        try:
            placements[cell] = place(machines[cell.engine], cell, plan)
        except PlanError as error:
            raise PlanError(f"{cell.title}: {error}") from error
    cases = {cell: frozenset(cases_in(plan, cell)) for cell in cells}
    return ExpandedPlan(plan, placements, cases, order_of(plan, cells))
