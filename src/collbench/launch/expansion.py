"""A launch plan, expanded: its cells, what each measures, where its ranks are placed, and the order of launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.launch import engines
from collbench.launch import placement as policies
from collbench.launch.cells import Launch, LaunchCell, cases_in, check_backends, order_of, storages_of, worlds_of
from collbench.launch.engines.ladder import steps_of
from collbench.launch.engines.spec import Engine
from collbench.launch.placing import Placement, place
from collbench.machine.topology import Topology
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan
from collbench.workloads.case import ProgramCase


@dataclass(frozen=True)
class ExpandedPlan:
    """By cell, in the plan's order: where its ranks are placed and what its worlds measure; and the order of launches.

    `expected` are the cases of a cell as its worlds record them, which do not know their place.
    """

    plan: LaunchPlan
    placements: dict[LaunchCell, Placement]
    cases: dict[LaunchCell, tuple[CollectiveCase | ProgramCase, ...]]
    expected: dict[LaunchCell, frozenset[Case]]
    order: tuple[Launch, ...]

    @property
    def cells(self) -> tuple[LaunchCell, ...]:
        return tuple(self.placements)

    def placements_on(self, engine: str) -> dict[LaunchCell, Placement]:
        """Of the cells that an engine is to start."""
        return {cell: placement for cell, placement in self.placements.items() if cell.engine == engine}


def machine_of(engine: str) -> Topology:
    """The processors and GPUs that an engine offers to ranks."""
    return engines.get(engine).machine()


def expand(plan: LaunchPlan, machine: Callable[[str], Topology] = machine_of) -> ExpandedPlan:
    """Expand a plan. `machine` says what the engine of that name offers.

    Every combination is placed once for all steps; then there is a cell for each step that differs for so many boxes.

    Raises:
        PlanError: an unknown name, more is asked for than there is, or nothing would be measured.
    """
    check_backends(plan)
    engine_by_policy = {policy: engine_of(plan, policy) for policy in plan.policies}
    machines = {name: machine(name) for name in dict.fromkeys(engine.name for engine in engine_by_policy.values())}
    worlds = dict.fromkeys(
        LaunchCell(image, policy, None, ranks, affinity, server, engine_by_policy[policy].name, storage, seccomp)
        for ranks, server in worlds_of(plan)
        for image in plan.images
        for policy in plan.policies
        for affinity in plan.affinity
        for storage in storages_of(plan)
        for seccomp in (plan.seccomp if engine_by_policy[policy].ladder else ("default",))
    )
    placements: dict[LaunchCell, Placement] = {}
    for world in worlds:
        try:
            placement = place(machines[world.engine], world, plan)
        except PlanError as error:
            raise PlanError(f"{world.title}: {error}") from error
        steps = steps_of(engine_by_policy[world.policy].ladder, len(placement.boxes), plan.isolation)
        placements |= {replace(world, isolation=step): placement for step in steps}
    cases = {cell: cases_in(plan, cell) for cell in placements}
    expected = {
        cell: frozenset(identity for case in of_cell for identity in case.identities) for cell, of_cell in cases.items()
    }
    return ExpandedPlan(plan, placements, cases, expected, order_of(plan, placements))


def engine_of(plan: LaunchPlan, policy: str) -> Engine:
    """What starts the worlds of a policy: the plan's engine, and the host where the policy has no containers.

    Raises:
        PlanError: there is no such engine or policy, or the engine makes no containers.
    """
    if not policies.find(policy)[0].in_containers:
        return engines.get(engines.HOST)
    engine = engines.get(plan.engine)
    if not engine.ladder:
        raise PlanError(f"policy {policy}: engine {engine.name} makes no containers. Name one that does: docker.")
    return engine
