"""A launch plan spelt out once: its cells, what each measures, where its ranks sit, and the order of launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.launch import engines, placement
from collbench.launch.cells import Launch, LaunchCell, cases_in, check_backends, order_of, worlds_of
from collbench.launch.engines.ladder import steps_of
from collbench.launch.engines.spec import Engine
from collbench.launch.placing import Placement, place
from collbench.machine.topology import Topology
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan
from collbench.workloads.case import ProgramCase


@dataclass(frozen=True)
class ExpandedPlan:
    """By cell, in the plan's order, where its ranks sit and what its worlds measure; and every launch in its order.

    `asked` are its cases as they are recorded, but for their place.
    """

    plan: LaunchPlan
    placements: dict[LaunchCell, Placement]
    cases: dict[LaunchCell, tuple[CollectiveCase | ProgramCase, ...]]
    asked: dict[LaunchCell, frozenset[Case]]
    order: tuple[Launch, ...]

    @property
    def cells(self) -> tuple[LaunchCell, ...]:
        """Each once."""
        return tuple(self.placements)

    def placements_on(self, engine: str) -> dict[LaunchCell, Placement]:
        """Of the cells that an engine is to start."""
        return {cell: placed for cell, placed in self.placements.items() if cell.engine == engine}


def machine_of(engine: str) -> Topology:
    """What an engine offers to ranks."""
    return engines.get(engine).machine()


def expand(plan: LaunchPlan, machine: Callable[[str], Topology] = machine_of) -> ExpandedPlan:
    """Spell a plan out. `machine` says what the engine of that name offers.

    Every combination is placed once, whatever the step; then its cells are the steps that differ for so many boxes.

    Raises:
        PlanError: an unknown name, more is asked for than there is, or nothing would be measured.
    """
    check_backends(plan)
    chosen = {policy: engine_of(plan, policy) for policy in plan.policies}
    machines = {name: machine(name) for name in dict.fromkeys(engine.name for engine in chosen.values())}
    worlds = dict.fromkeys(
        LaunchCell(image, policy, None, ranks, affinity, server, chosen[policy].name)
        for ranks, server in worlds_of(plan)
        for image in plan.images
        for policy in plan.policies
        for affinity in plan.affinity
    )
    placements: dict[LaunchCell, Placement] = {}
    for world in worlds:
        try:
            placed = place(machines[world.engine], world, plan)
        except PlanError as error:
            raise PlanError(f"{world.title}: {error}") from error
        steps = steps_of(chosen[world.policy].ladder, len(placed.boxes), plan.isolation)
        placements |= {replace(world, isolation=step): placed for step in steps}
    cases = {cell: cases_in(plan, cell) for cell in placements}
    asked = {cell: frozenset(one for case in inside for one in case.identities) for cell, inside in cases.items()}
    return ExpandedPlan(plan, placements, cases, asked, order_of(plan, placements))


def engine_of(plan: LaunchPlan, policy: str) -> Engine:
    """What starts the worlds of a policy: the plan's engine, and the host where the policy has no containers.

    Raises:
        PlanError: there is no such engine or policy, or the engine makes no containers.
    """
    if not placement.find(policy)[0].in_containers:
        return engines.get(engines.HOST)
    engine = engines.get(plan.engine)
    if not engine.ladder:
        raise PlanError(f"policy {policy}: engine {engine.name} makes no containers. Name another engine: docker.")
    return engine
