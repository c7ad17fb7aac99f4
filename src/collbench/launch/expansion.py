"""A launch plan, expanded: its cells, what each measures, where its ranks are placed, and the order of launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.launch import engines
from collbench.launch import placement as policies
from collbench.launch.cells import Launch, LaunchCell, cases_in, check_backends, order_of, storages_of, worlds_of
from collbench.launch.engines.ladder import Ladder, lacking, steps_of
from collbench.launch.engines.spec import Engine
from collbench.launch.given import refuse_given, refuse_missing_files
from collbench.launch.placing import Placement, place
from collbench.machine.topology import Topology
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan, named_sides
from collbench.workloads.case import ProgramCase


@dataclass(frozen=True)
class ExpandedPlan:
    """By cell, in the plan's order: where its ranks are placed and what its worlds measure; and the order of launches.

    `expected` are the cases of a cell as its worlds record them, which do not know their place. `left_out` says which
    steps of isolation its engine lacks: they have no cells.
    """

    plan: LaunchPlan
    placements: dict[LaunchCell, Placement]
    cases: dict[LaunchCell, tuple[CollectiveCase | ProgramCase, ...]]
    expected: dict[LaunchCell, frozenset[Case]]
    order: tuple[Launch, ...]
    left_out: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[LaunchCell, ...]:
        return tuple(self.placements)

    def placements_on(self, engine: str) -> dict[LaunchCell, Placement]:
        """Of the cells that an engine is to start."""
        return {cell: placement for cell, placement in self.placements.items() if cell.engine == engine}


def expand(plan: LaunchPlan, machine: Callable[[str], Topology] | None = None) -> ExpandedPlan:
    """Expand a plan. `machine` says what the engine of that name offers; without, the engine does.

    Every combination is placed once for all steps; then there is a cell for each step that differs for so many boxes.

    Raises:
        PlanError: an unknown name, more is asked for than there is, or nothing would be measured.
    """
    check_backends(plan)
    engine_by_policy = {policy: engine_of(plan, policy) for policy in plan.policies}
    by_name = {engine.name: engine for engine in engine_by_policy.values()}
    machines = {
        name: machine(name) if machine else engine.machine(engine.address(plan)) for name, engine in by_name.items()
    }
    for engine in by_name.values():
        _refuse_hosts(plan, engine)
    for side in plan.sides or (None,):
        with named_sides((side,)):
            for engine in by_name.values():
                if engine.starts_ranks:
                    refuse_given(plan.of_sides((side,)), engine.name)
            refuse_missing_files(plan.of_sides((side,)))
    ladders = {policy: ladder_for(engine, policy) for policy, engine in engine_by_policy.items()}
    left_out = _left_out(plan, [engine for policy, engine in engine_by_policy.items() if ladders[policy]])
    worlds = dict.fromkeys(
        LaunchCell(
            plan.image_of(side, image),
            policy,
            None,
            ranks,
            affinity,
            server,
            engine_by_policy[policy].name,
            storage,
            seccomp,
            hosts,
            side,
            image if plan.image_of(side, image) != image else "",
        )
        for ranks, server in worlds_of(plan)
        for image in plan.images
        for policy in plan.policies
        for affinity in plan.affinity
        for storage in storages_of(plan)
        for seccomp in (plan.seccomp if ladders[policy] else ("default",))
        for hosts in plan.hosts
        for side in plan.sides or (None,)
    )
    placements: dict[LaunchCell, Placement] = {}
    for world in worlds:
        try:
            placement = place(machines[world.engine], world, plan)
        except PlanError as error:
            raise PlanError(f"{world.title}: {error}") from error
        steps = steps_of(ladders[world.policy], len(placement.boxes), plan.isolation)
        placements |= {replace(world, isolation=step): placement for step in steps}
    if not placements:
        raise PlanError(f"{'; '.join(left_out)}, and no cell is left. Name a step that it has.")
    cases = {cell: cases_in(plan, cell) for cell in placements}
    expected = {
        cell: frozenset(identity for case in of_cell for identity in case.identities) for cell, of_cell in cases.items()
    }
    return ExpandedPlan(plan, placements, cases, expected, order_of(plan, placements), left_out)


def engine_of(plan: LaunchPlan, policy: str) -> Engine:
    """What starts the worlds of a policy: the plan's engine, or the host.

    The host starts those of a policy without containers, unless the engine does that too.

    Raises:
        PlanError: there is no such engine or policy, or the engine makes no containers.
    """
    engine, contained = engines.get(plan.engine), policies.find(policy)[0].in_containers
    if not contained:
        return engine if engine.bare else engines.get(engines.HOST)
    if not engine.ladder:
        raise PlanError(f"policy {policy}: engine {engine.name} makes no containers. Name one that does: docker.")
    return engine


def ladder_for(engine: Engine, policy: str) -> Ladder:
    """The steps of isolation that a policy has on an engine: none without containers."""
    return engine.ladder if policies.find(policy)[0].in_containers else ()


def _left_out(plan: LaunchPlan, contained: Iterable[Engine]) -> tuple[str, ...]:
    """A line on the steps of a plan that the engine of its containers lacks."""
    lines = {}
    for engine in contained:
        if steps := lacking(engine.ladder, plan.isolation):
            known = ", ".join(step.name for step in engine.ladder)
            lines[engine.name] = f"isolation {', '.join(steps)}: left out; engine {engine.name} has {known}"
    return tuple(lines.values())


def _refuse_hosts(plan: LaunchPlan, engine: Engine) -> None:
    if max(plan.hosts) > 1 and not engine.starts_ranks:
        raise PlanError(
            f"hosts = {list(plan.hosts)}: engine {engine.name} has one machine. Use an engine that has several: "
            "--on slurm --site FILE."
        )
