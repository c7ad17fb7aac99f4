"""A launch plan, expanded: its cells, what each measures, where its ranks are placed, and the order of launches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from collbench import collectives
from collbench.bindings.host_buffers import USABLE_SHARE, available_bytes
from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.launch import engines, starters
from collbench.launch import placement as policies
from collbench.launch.cells import (
    Launch,
    LaunchCell,
    cases_in,
    check_backends,
    communicates,
    order_of,
    storages_of,
    worlds_of,
)
from collbench.launch.engines.ladder import lacking, steps_of
from collbench.launch.engines.spec import Engine, Site
from collbench.launch.given import refuse_given, refuse_missing_files
from collbench.launch.placing import Placement, place
from collbench.launch.starters.starter import PROCESS, Starter
from collbench.machine.topology import Topology
from collbench.run.expand import how_to_fit
from collbench.schema.axes import DTYPES
from collbench.schema.case import Case
from collbench.schema.plan import LaunchPlan, named_sides
from collbench.schema.world import Boxes, Shape
from collbench.units import format_bytes
from collbench.workloads.program import ProgramCase


@dataclass(frozen=True)
class ExpandedPlan:
    """By cell, in the plan's order: where its ranks are placed and what its worlds measure; and the order of launches.

    `expected` are the cases of a cell as its worlds record them, which do not know their place. `left_out` says which
    steps of isolation its engine lacks: they have no cells. `sites` are those of its engines.
    """

    plan: LaunchPlan
    placements: dict[LaunchCell, Placement]
    cases: dict[LaunchCell, tuple[CollectiveCase | ProgramCase, ...]]
    expected: dict[LaunchCell, frozenset[Case]]
    order: tuple[Launch, ...]
    left_out: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()

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
    sites = {name: Site(machine(name)) if machine else engine.site(plan) for name, engine in by_name.items()}
    for engine in by_name.values():
        if max(plan.hosts) > 1 and not engine.starts_ranks:
            raise PlanError(
                f"hosts = {list(plan.hosts)}: engine {engine.name} has one machine. Use an engine that has several: "
                "--on slurm --site FILE."
            )
    for side in plan.sides or (None,):
        with named_sides((side,)):
            for engine in by_name.values():
                if engine.starts_ranks:
                    refuse_given(plan.of_sides((side,)), engine.name)
            refuse_missing_files(plan.of_sides((side,)))
    ladders = {policy: engine.ladder if policies.find(policy)[0].in_containers else ()
               for policy, engine in engine_by_policy.items()}  # fmt: skip
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
            placement = place(sites[world.engine].machine, world, plan)
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
    return ExpandedPlan(plan, placements, cases, expected, order_of(plan, placements), left_out, tuple(sites.values()))


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


def _left_out(plan: LaunchPlan, contained: Iterable[Engine]) -> tuple[str, ...]:
    """A line on the steps of a plan that the engine of its containers lacks."""
    lines = {}
    for engine in contained:
        if steps := lacking(engine.ladder, plan.isolation):
            known = ", ".join(step.name for step in engine.ladder)
            lines[engine.name] = f"isolation {', '.join(steps)}: left out; engine {engine.name} has {known}"
    return tuple(lines.values())


def each_of(cell: LaunchCell) -> int:
    """Ranks of a cell on each host."""
    return cell.ranks // cell.hosts


def parts_of(cell: LaunchCell, placement: Placement) -> tuple[tuple[LaunchCell, Placement], ...]:
    """The parts of a cell, each with the boxes of its hosts."""
    found, first = [], 0
    for part in cell.parts:
        boxes = tuple(box for box in placement.boxes if first <= box.host < first + part.hosts)
        found.append((part, replace(placement, boxes=boxes)))
        first += part.hosts
    return tuple(found)


def cores_of(placement: Placement) -> int:
    """Of each rank: the fewest, where they differ."""
    return min(len(slot.cores) for slot in placement.slots)


def shape_of(cell: LaunchCell, placement: Placement) -> Shape:
    """What ranks compare with what they find, of a cell whose hosts are alike."""
    shared = len(placement.boxes[0].ranks)
    boxes: Boxes = "rank" if cell.policy == "single" else "host" if shared == each_of(cell) else shared
    return Shape(
        hosts=cell.hosts, each=each_of(cell), cores=cores_of(placement),
        boxes="none" if cell.isolation is None else boxes, crowded=placement.crowded,
    )  # fmt: skip


def shapes_of(cell: LaunchCell, placement: Placement) -> tuple[Shape, ...]:
    """The same of every part of a cell."""
    return tuple(shape_of(part, placed) for part, placed in parts_of(cell, placement))


def library_of(image: str, libraries: Mapping[str, str], plan: LaunchPlan) -> str:
    """The library that an image stands for: as the site file says, or its name.

    Raises:
        PlanError: neither says it.
    """
    named = libraries.get(image) or next((name for name in starters.names() if name in image), "")
    if not named and communicates(plan):
        raise PlanError(f"image {image}: its name does not say which library it holds. Say it in the site file: "
                        f"libraries = {{ {image} = \"openmpi\" }} ({', '.join(starters.names())}).")  # fmt: skip
    return named


def starter_of(image: str, libraries: Mapping[str, str], plan: LaunchPlan) -> Starter:
    """How the ranks of an image are started, before it was seen."""
    return starters.get(library_of(image, libraries, plan), image) if communicates(plan) else PROCESS


def refuse_too_large(
    plan: LaunchPlan, by_cell: Mapping[LaunchCell, Collection[CollectiveCase | ProgramCase]], free: int | None = None
) -> None:
    """The worlds of a launch run one after the other, so the largest decides. `free` is in bytes; None: ask.

    With GPUs the buffers of collectives are not in host memory, and the ranks check theirs themselves.

    Raises:
        PlanError: a case needs more memory than is free.
    """
    free = available_bytes() if free is None else free
    if free is None:
        return
    for cell, cases in by_cell.items():
        needed, largest, less = max((_needed(case, plan.device) for case in cases), default=(0, "", ""))
        if needed > free * USABLE_SHARE:
            raise PlanError(
                f"{cell.title}: {largest} needs {format_bytes(needed)} of memory, and {format_bytes(free)} are free. "
                f"{less}"
            )


def _needed(case: CollectiveCase | ProgramCase, device: str) -> tuple[int, str, str]:
    """Bytes of host memory, the case as messages name it, and what takes less."""
    if isinstance(case, ProgramCase):
        return case.memory, case.title, how_to_fit(case)
    of = f"{case.collective} of {format_bytes(case.size)}"
    return buffers(case) if device == "cpu" else 0, of, "Lower sizes, ranks or workers."


def buffers(case: CollectiveCase) -> int:
    """Bytes of the buffers of all ranks; the library's own memory is not in it."""
    row, itemsize = collectives.get(case.collective), DTYPES[case.dtype]
    per_rank = (row.blocks(rank, case.ranks, case.root or 0) for rank in range(case.ranks))
    blocks = sum(max(held) if case.in_place else sum(held) for held in per_rank)
    return blocks * row.count(case.size, itemsize, case.ranks) * itemsize
