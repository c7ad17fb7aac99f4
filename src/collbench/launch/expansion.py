"""A launch plan, expanded: its cells, what each measures, the places and variables of its ranks, the order of launches.

Launches of a block live at once where they measure alike on the same processors, as far as they can.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench import collectives, workloads
from collbench.bindings.spec import USABLE_SHARE, available_bytes
from collbench.collectives.row import CollectiveCase
from collbench.errors import PlanError
from collbench.launch import cells, engines, launchers
from collbench.launch import placement as policies
from collbench.launch.cells import Launch, LaunchCell, LaunchPart, communicates
from collbench.launch.engines.spec import Engine, Sharing, Site, Stack, WorldSpec, lacking, steps_of
from collbench.launch.folders import Folders, Storage, driver_identity, user_inside
from collbench.launch.launchers import PROCESS, RankLauncher
from collbench.launch.overrides import check_overrides
from collbench.launch.placement import Placement, Slot, place
from collbench.launch.selection import describe_cores, describe_gpus
from collbench.machine import facts
from collbench.machine.facts import Topology, TopologyGpu
from collbench.machine.launcher import OWN, THREADS
from collbench.run.cases import how_to_fit
from collbench.schema.axes import DTYPES, FIRST
from collbench.schema.case import Case
from collbench.schema.manifest import Chosen
from collbench.schema.plan import Plan, named_sides
from collbench.schema.record import Alone
from collbench.schema.world import Boxes, Place, Shape
from collbench.units import counted, format_bytes, format_spans
from collbench.workloads.program import ProgramCase


@dataclass(frozen=True)
class ExpandedPlan:
    """By cell, in the plan's order: where its ranks are placed and what its worlds measure; and the order of launches.

    `expected` are the cases of a cell as its worlds record them, which do not know their place. `left_out` says which
    steps of isolation its engine lacks: they have no cells. `sites` are those of its engines.
    """

    plan: Plan
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
        return {cell: placement for cell, placement in self.placements.items() if cell.engine == engine}


def expand(plan: Plan, machine: Callable[[str], Topology] | None = None) -> ExpandedPlan:
    """Expand a plan. `machine` says what the engine of that name offers; without, the engine does.

    Every combination is placed once for all steps; then there is a cell for each step that differs for so many boxes.
    Raises PlanError: an unknown name, more is asked for than there is, or nothing would be measured.
    """
    cells.check_backends(plan)
    engine_by_policy = {policy: engine_of(plan, policy) for policy in plan.policies}
    by_name = {engine.name: engine for engine in engine_by_policy.values()}
    sites = {name: Site(machine(name)) if machine else engine.site(plan) for name, engine in by_name.items()}
    for engine in by_name.values():
        if max(plan.hosts) > 1 and not engine.starts_ranks:
            raise PlanError(f"hosts = {list(plan.hosts)}: engine {engine.name} has one machine. Use an engine that has "
                            "several: --on slurm --site FILE.")  # fmt: skip
    starting = [engine.name for engine in by_name.values() if engine.starts_ranks]
    for side in plan.sides or (None,):
        with named_sides((side,)):
            if starting and side and plan.sides[side].environments:
                raise PlanError(f"environments: engine {starting[0]} has those of its site file. A side can replace "
                                "images there, and nothing else.")  # fmt: skip
            check_overrides(plan.of_sides((side,)), starting)
    ladders = {policy: engine.ladder if policies.find_policy(policy)[0].in_containers else ()
               for policy, engine in engine_by_policy.items()}  # fmt: skip
    left_out = tuple(dict.fromkeys(
        f"isolation {', '.join(steps)}: left out; engine {engine.name} has {', '.join(s.name for s in engine.ladder)}"
        for policy, engine in engine_by_policy.items()
        if ladders[policy] and (steps := lacking(engine.ladder, plan.isolation))
    ))  # fmt: skip
    worlds = dict.fromkeys(
        LaunchCell(plan.image_of(side, image), policy, None, ranks, affinity, gpus, cores, server,
                   engine_by_policy[policy].name, storage, seccomp, hosts, side,
                   image if plan.image_of(side, image) != image else "")
        for ranks, server in cells.worlds_of(plan)
        for image in plan.images
        for policy in plan.policies
        for affinity in plan.affinity
        for gpus in plan.gpus
        for cores in plan.cores
        for storage in cells.storages_of(plan)
        for seccomp in (plan.seccomp if ladders[policy] else ("default",))
        for hosts in plan.hosts
        for side in plan.sides or (None,)
    )  # fmt: skip
    placements: dict[LaunchCell, Placement] = {}
    first: dict[tuple[LaunchCell, tuple[Slot, ...]], LaunchCell] = {}  # of several choices that come to the same
    for world in worlds:
        try:
            placement = place(sites[world.engine].machine, world, plan)
        except PlanError as error:
            raise PlanError(f"{world.title}: {error}") from error
        alike = first.setdefault((replace(world, gpus=FIRST, cores=FIRST), placement.slots), world)
        if alike is not world:
            left_out += (
                f"{_choice(world, plan.device)}: left out, the same as {_choice(alike, plan.device)} for "
                f"{counted(world.ranks, 'rank')}",
            )
            continue
        for step in steps_of(ladders[world.policy], len(placement.boxes), plan.isolation):
            placements[replace(world, isolation=step)] = placement
    if not placements:
        raise PlanError(f"{'; '.join(left_out)}, and no cell is left. Name a step that it has.")
    cases = {cell: cells.cases_in(plan, cell) for cell in placements}
    expected = {cell: frozenset(identity for case in of_cell for identity in case.identities)
                for cell, of_cell in cases.items()}  # fmt: skip
    order = cells.order_of(plan, placements)
    return ExpandedPlan(plan, placements, cases, expected, order, tuple(dict.fromkeys(left_out)), tuple(sites.values()))


def chosen_in(expanded: ExpandedPlan) -> tuple[Chosen, ...]:
    """What the choices of GPUs or cores of a plan came to, where it has any."""
    plan, machines = expanded.plan, {site.machine.name: site.machine for site in expanded.sites}
    if plan.gpus == (FIRST,) == plan.cores or len(machines) != 1:
        return ()
    [machine] = machines.values()
    placements = expanded.placements.items()
    if plan.device == "gpu":  # none of benchmarks that are skipped where there is no GPU
        choices = [describe_gpus(machine, cell.gpus, placed.gpus) for cell, placed in placements if placed.gpus]
    else:
        choices = [describe_cores(machine, cell.cores, [slot.cores for slot in placed.slots])
                   for cell, placed in placements]  # fmt: skip
    return tuple(choice for number, choice in enumerate(choices) if choice not in choices[:number])


def _choice(world: LaunchCell, device: str) -> str:
    return f"gpus {world.gpus}" if device == "gpu" else f"cores {world.cores}"


def engine_of(plan: Plan, policy: str) -> Engine:
    """What starts the worlds of a policy: the plan's engine, or the host where there are no containers and it may.

    Raises PlanError: there is no such engine or policy, or the engine makes no containers.
    """
    engine, contained = engines.get(plan.engine), policies.find_policy(policy)[0].in_containers
    if not contained:
        return engine if engine.bare else engines.get(engines.HOST)
    if not engine.ladder:
        raise PlanError(f"policy {policy}: engine {engine.name} makes no containers. Name one that does: docker.")
    return engine


def each_of(cell: LaunchCell) -> int:
    """Ranks of a cell on each host."""
    return cell.ranks // cell.hosts


def parts_of(cell: LaunchCell, placement: Placement) -> tuple[tuple[LaunchCell, Placement], ...]:
    """The parts of a cell, each with the boxes of its hosts."""
    parts, first = [], 0
    for part in cell.parts:
        boxes = tuple(box for box in placement.boxes if first <= box.host < first + part.hosts)
        parts.append((part, replace(placement, boxes=boxes)))
        first += part.hosts
    return tuple(parts)


def cores_of(placement: Placement) -> int:
    """Of each rank: the fewest, where they differ."""
    return min(len(slot.cores) for slot in placement.slots)


def shape_of(cell: LaunchCell, placement: Placement) -> Shape:
    """What ranks compare with what they find, of a cell whose hosts are alike."""
    shared = len(placement.boxes[0].ranks)
    boxes: Boxes = "rank" if cell.policy == "single" else "host" if shared == each_of(cell) else shared
    boxes = "none" if cell.isolation is None else boxes
    return Shape(hosts=cell.hosts, each=each_of(cell), cores=cores_of(placement), boxes=boxes,
                 crowded=placement.crowded)  # fmt: skip


def shapes_of(cell: LaunchCell, placement: Placement) -> tuple[Shape, ...]:
    return tuple(shape_of(part, placed) for part, placed in parts_of(cell, placement))


def library_of(image: str, libraries: Mapping[str, str], plan: Plan) -> str:
    """The library that an image stands for, by the site file, else by its name; or PlanError: neither says it."""
    named = libraries.get(image) or next((name for name in launchers.names() if name in image), "")
    if not named and communicates(plan):
        raise PlanError(f"image {image}: its name does not say which library it holds. Say it in the site file: "
                        f"libraries = {{ \"{image}\" = \"openmpi\" }} ({', '.join(launchers.names())}).")  # fmt: skip
    return named


def launcher_of(image: str, libraries: Mapping[str, str], plan: Plan) -> RankLauncher:
    """How the ranks of an image are started, before it was seen."""
    return launchers.get(library_of(image, libraries, plan), image) if communicates(plan) else PROCESS


def refuse_too_large(
    plan: Plan, by_cell: Mapping[LaunchCell, Collection[CollectiveCase | ProgramCase]], free: int | None = None
) -> None:
    """Whether the largest case fits into memory, as worlds run one after the other; `free` is in bytes, None: ask.

    With GPUs the buffers of collectives are not in host memory, and ranks check theirs. Raises PlanError.
    """
    free = available_bytes() if free is None else free
    if free is None:
        return
    for cell, cases in by_cell.items():
        needed, largest, less = max((_needed(case, plan.device) for case in cases), default=(0, "", ""))
        if needed > free * USABLE_SHARE:
            memory = f"{format_bytes(needed)} of memory, and {format_bytes(free)} are free"
            raise PlanError(f"{cell.title}: {largest} needs {memory}. {less}")


def _needed(case: CollectiveCase | ProgramCase, device: str) -> tuple[int, str, str]:
    """Bytes of host memory, the case as messages name it, and what takes less."""
    if isinstance(case, ProgramCase):
        return case.memory, case.title, how_to_fit(case)
    title = f"{case.collective} of {format_bytes(case.size)}"
    return buffers(case) if device == "cpu" else 0, title, "Lower sizes, ranks or workers."


def buffers(case: CollectiveCase) -> int:
    """Bytes of the buffers of all ranks; the library's own memory is not in it."""
    row, itemsize = collectives.get(case.collective), DTYPES[case.dtype]
    per_rank = (row.blocks(rank, case.ranks, case.root or 0) for rank in range(case.ranks))
    blocks = sum(max(held) if case.in_place else sum(held) for held in per_rank)
    return blocks * row.count(case.size, itemsize, case.ranks) * itemsize


#: Bytes of its GPU's memory that a rank takes beside its buffers: its CUDA context, communicators and their channels.
GPU_CONTEXT = 2 << 30
GPU_SHARE = 0.8  #: How much of a GPU's memory all worlds may take together.

#: Most worlds that live at once. Of more, each group has the reference among them.
MOST_WORLDS = 6


@dataclass(frozen=True)
class Group:
    """Launches that live at once, in the order in which they are started; of one, why it is `alone`.

    All others are compared by way of `reference`, if there is one; where it `repeats`, its records are known already,
    or come from another group.
    """

    launches: tuple[Launch, ...]
    alone: Alone | None = None
    reference: Launch | None = None
    repeats: bool = False

    @property
    def kept(self) -> tuple[Launch, ...]:
        """Those whose records are kept."""
        return tuple(launch for launch in self.launches if not (self.repeats and launch is self.reference))


def groups_of(
    expanded: ExpandedPlan, launches: Sequence[Launch], refused: Mapping[object, Alone], free: int | None = None,
    left: Collection[Launch] | None = None,
) -> tuple[Group, ...]:  # fmt: skip
    """The launches of a block, in groups, in the order of their first launches.

    `refused` says which worlds (`key_of`) cannot live at once, and why. `free` is memory in bytes; None: ask. Of an
    interrupted block those that are `left` are in the groups that they were in.
    """
    remaining = frozenset(launches if left is None else left)
    together: dict[object, list[Launch]] = {}
    for launch in launches:
        alone = why_alone(expanded, launch.cell)
        together.setdefault(launch if alone else key_of(expanded, launch.cell), []).append(launch)
    groups: list[Group] = []
    for key, whole in together.items():
        members = tuple(launch for launch in whole if launch in remaining)
        alone = why_alone(expanded, whole[0].cell) or refused.get(key) or _too_large(expanded, whole, free)
        if alone is None and len(whole) > MOST_WORLDS:
            groups += _around_reference(expanded, whole, remaining)
        elif alone is None and len(members) > 1:
            groups.append(Group(members))
        else:
            groups += [Group((launch,), alone or "single") for launch in members]
    return tuple(groups)


def at_once(expanded: ExpandedPlan) -> dict[LaunchCell, Alone | int]:
    """Of each cell how many worlds live at once where its own does, in a block of all cells; or why it is alone."""
    first = [launch for launch in expanded.order if launch.number == 0]
    living: dict[LaunchCell, Alone | int] = {}
    for group in groups_of(expanded, first, {}):
        for launch in group.launches:
            living.setdefault(launch.cell, group.alone or len(group.launches))
    return {cell: living[cell] for cell in expanded.cells}


def key_of(expanded: ExpandedPlan, cell: LaunchCell) -> object:
    """Cells with the same can live at once: the plan's image, the world with its hosts, what each rank is placed on."""
    places = tuple((slot.cores, slot.gpu) for slot in expanded.placements[cell].slots)
    return cell.plan_image, cell.hosts, cell.ranks, cell.servers, places


def why_alone(expanded: ExpandedPlan, cell: LaunchCell) -> Alone | None:
    """Why no other world can live beside one of this cell; None: one can."""
    placement, engine = expanded.placements[cell], engines.get(cell.engine)
    turns = all(isinstance(case, CollectiveCase) or workloads.get(case.case.workload).takes_turns(case.case)
                for case in expanded.cases[cell])  # fmt: skip
    reasons: dict[Alone, bool] = {
        "plan": expanded.plan.how == "blocks",
        "engine": not (engine.local or engine.overlaps),
        "gpus": (bool(placement.gpus) or expanded.plan.device == "gpu") and not _shares_gpus(expanded, cell),
        "programs": not turns,
        "oversubscribed": placement.crowded,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _shares_gpus(expanded: ExpandedPlan, cell: LaunchCell) -> bool:
    """Whether its GPUs take several worlds: of this machine, with known memory, measured by collectives alone."""
    known = _gpus_of(expanded)
    gpus = [known.get(uuid) for uuid in expanded.placements[cell].gpus]
    collectives_alone = all(isinstance(case, CollectiveCase) for case in expanded.cases[cell])
    usable = all(gpu is not None and gpu.memory is not None and not gpu.exclusive for gpu in gpus)
    return engines.get(cell.engine).local and collectives_alone and usable


def _gpus_of(expanded: ExpandedPlan) -> dict[str, TopologyGpu]:
    return {gpu.uuid: gpu for site in expanded.sites for gpu in site.machine.gpus}


def _too_large(expanded: ExpandedPlan, members: Sequence[Launch], free: int | None) -> Alone | None:
    """Each world holds the buffers of the case that all of them measure; what other machines have is not known.

    On a GPU each of its ranks has a context too, and NCCL's own buffers (`GPU_CONTEXT`).
    """
    free = available_bytes() if free is None else free
    if free is None or not engines.get(members[0].cell.engine).local:
        return None
    largest = [max(_needed(case, "cpu")[0] for case in expanded.cases[launch.cell]) for launch in members]
    needed, known, ranks = sum(sorted(largest)[-MOST_WORLDS:]), _gpus_of(expanded), members[0].cell.ranks
    gpus = [known[uuid].memory or 0 for uuid in expanded.placements[members[0].cell].gpus]
    on_each = needed / ranks + min(len(members), MOST_WORLDS) * GPU_CONTEXT
    too_large = needed > free * USABLE_SHARE or any(on_each > memory * GPU_SHARE for memory in gpus)
    return "memory" if too_large else None


def _around_reference(expanded: ExpandedPlan, members: Sequence[Launch], left: Collection[Launch]) -> Iterator[Group]:
    """Equally large groups that all have the first launch in the plan's order, which measures what the others do.

    Of members that are not `left`, only the reference is in a group.
    """
    positions = {cell: position for position, cell in enumerate(expanded.cells)}
    reference = min(members, key=lambda launch: positions[launch.cell])
    others = [launch for launch in members if launch is not reference]
    number = -(-len(others) // (MOST_WORLDS - 1))
    for turn in range(number):
        of_group = [launch for launch in others[turn::number] if launch in left]
        repeats = turn > 0 or reference not in left
        if of_group:
            # it is started where it stands among all, so that which world is started first is as random as without it
            repeated = _measuring(expanded, reference, of_group) if repeats else reference
            started = (repeated if launch is reference else launch for launch in members
                       if launch is reference or launch in of_group)  # fmt: skip
            yield Group(tuple(started), None, repeated, repeats)
        elif not repeats:
            yield Group((reference,), "single", reference)


def _measuring(expanded: ExpandedPlan, reference: Launch, others: Iterable[Launch]) -> Launch:
    """The reference, of which only what these launches measure is executed."""
    parts = [launch.only or LaunchPart(expanded.expected[launch.cell]) for launch in others]
    expected = expanded.expected[reference.cell]
    measured = expected & frozenset[Case]().union(*(part.measured for part in parts))
    brief = expected & frozenset[Case]().union(*(part.brief for part in parts)) - measured
    return replace(reference, only=None if measured == expected else LaunchPart(measured, brief))


# What ranks are given besides their place, and what a reader of their numbers must know -------------------------------


def places(cell: LaunchCell, placement: Placement) -> tuple[Place, ...]:
    """The place of each rank, to be compared with what it finds; none where the engine starts ranks where it likes."""
    engine = engines.get(cell.engine)
    if engine.starts_ranks:
        return ()
    return tuple(Place(container=box.name if engine.makes_containers else facts.container(),
                       cores=format_spans(slot.cores), gpu=slot.gpu)
                 for box in placement.boxes for slot in box.slots)  # fmt: skip


def sharing_of(cell: LaunchCell) -> Sharing:
    """What the boxes of a cell share; everything where they isolate nothing."""
    if cell.isolation is None:
        return Sharing()
    return next(step.sharing for step in engines.get(cell.engine).ladder if step.name == cell.isolation)


def refuses_cma(cell: LaunchCell, placement: Placement, stack: Stack) -> bool:
    """Whether ranks in one container may not read each other's memory."""
    return bool(stack.refused) and not sharing_of(cell).ipc and placement.shares_boxes


def shares_hostname(cell: LaunchCell, placement: Placement) -> bool:
    """Whether several containers share a network namespace, and so a hostname.

    Where an engine starts the ranks its nodes have names, and their containers are one node to the library.
    """
    return not engines.get(cell.engine).starts_ranks and len(placement.boxes) > 1 and sharing_of(cell).net


#: Where each container has shared memory of its own, beside the /dev/shm that it shares with others.
SHM_FOLDER = "/collbench/shm"


def needs_shm_folder(cell: LaunchCell, placement: Placement, stack: Stack) -> bool:
    """Whether ranks in different containers would give the same name to files in the /dev/shm that they share."""
    return bool(stack.launcher.shm_folder) and shares_hostname(cell, placement) and placement.shares_boxes


#: Bytes of /dev/shm that NCCL (2.7 to 2.30) takes for a connection through host memory, in each of its channels:
#: buffers of its three protocols at their default sizes (init.cc, transport/shm.cc), as its messages name them.
NCCL_CONNECTION = 9637888


def hides_peers(cell: LaunchCell, placement: Placement, stack: Stack) -> bool:
    """Whether NCCL takes several containers for one machine though none sees the GPUs of another.

    It connects GPUs of one hostname and one /dev/shm directly where links allow it; a process that does not see the
    other GPU cannot open its memory (CUDA error 101, NCCL issue 1647). Without peers NCCL goes through shared memory.
    Containers with hostnames of their own it connects by sockets anyway.
    """
    hidden = len(placement.gpus) > 1 and not sharing_of(cell).all_gpus
    return hidden and stack.nccl and shares_hostname(cell, placement)


def notes(cell: LaunchCell, placement: Placement, stack: Stack) -> tuple[str, ...]:
    """What a reader of this cell's numbers must know."""
    # of variables that the plan sets, its own are in force
    workarounds = [f"{name}={value}, because {reason}" for name, value, reason in _workarounds(cell, placement, stack)
                   if name not in stack.overrides.variables]  # fmt: skip
    if refuses_cma(cell, placement, stack):
        calls = " and ".join(sorted(stack.refused, reverse=True))
        workarounds.insert(0, f"{calls} refused at this step: {stack.launcher.vendor} copies twice")
    if sharing_of(cell).all_gpus and placement.gpus and len(placement.boxes) > 1:
        workarounds.append("every container sees every GPU of this world: devices are not isolated at this step")
    return (*filter(None, (placement.note,)), *workarounds)


def _workarounds(cell: LaunchCell, placement: Placement, stack: Stack) -> Iterator[tuple[str, str, str]]:
    """Variables without which the library fails in such containers: name, value, and why it is set."""
    if refuses_cma(cell, placement, stack):
        yield from ((*variable, "it would abort otherwise") for variable in stack.launcher.without_cma.items())
    if shares_hostname(cell, placement):
        reason = "it would take the containers for one node otherwise"
        yield from ((*variable, reason) for variable in stack.launcher.one_hostname.items())
    if shares_hostname(cell, placement) and sharing_of(cell).host:
        yield from ((*variable, "it would hang otherwise") for variable in stack.launcher.host_network.items())
    if needs_shm_folder(cell, placement, stack):
        yield stack.launcher.shm_folder, SHM_FOLDER, "containers would overwrite each other's shared memory otherwise"
    if hides_peers(cell, placement, stack):
        yield "NCCL_P2P_DISABLE", "1", "NCCL would take the containers for one machine and fail to reach hidden GPUs"


def nccl_shortage(cell: LaunchCell, placement: Placement, stack: Stack, output: str) -> str | None:
    """What helps where NCCL failed on a system call, by its output, in a container with GPUs and a small /dev/shm."""
    if not stack.nccl or len(placement.gpus) < 2 or "system error" not in output.lower():  # ncclSystemError
        return None
    size, larger = sharing_of(cell).shm_bytes, _step_with_more(cell)
    if size is None or larger is None or not placement.shares_boxes:
        return None
    needed, there = format_bytes(NCCL_CONNECTION), f"the step {cell.isolation} has {format_bytes(size)}"
    return (f"where GPUs are connected through host memory NCCL takes {needed} of /dev/shm for each connection and "
            f"channel, and {there}. Use the step {larger}")  # fmt: skip


def _step_with_more(cell: LaunchCell) -> str | None:
    """The first step of the cell's engine whose boxes have a larger /dev/shm of their own, if there is one."""
    size, ladder = sharing_of(cell).shm_bytes, engines.get(cell.engine).ladder
    sizes = {step.name: step.sharing.shm_bytes for step in ladder if not step.sharing.host}
    return next((name for name, larger in sizes.items() if size and (larger is None or larger > size)), None)


def shm_shortage(cell: LaunchCell, placement: Placement, stack: Stack) -> str | None:
    """Where a container of the cell has less /dev/shm than the library needs, which then ends without a message."""
    sharing = sharing_of(cell)
    ranks = cell.ranks if sharing.ipc else max(len(box.ranks) for box in placement.boxes)
    needed = ranks * stack.launcher.shm_per_rank
    if sharing.shm_bytes is None or needed <= sharing.shm_bytes:
        return None
    larger, there = _step_with_more(cell), f"the step {cell.isolation} has {format_bytes(sharing.shm_bytes)}"
    need = f"{ranks} ranks of {stack.launcher.vendor} need about {format_bytes(needed)} of shared memory"
    instead = f"the step {larger}, or fewer" if larger else "fewer"
    return f"{need}, and /dev/shm at {there}. Use {instead} ranks per container"


def with_threads(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of ranks of every engine: one thread each, marked as ours, where they say nothing else."""
    return {**({} if THREADS in given else {THREADS: "1", OWN: THREADS}), **given}


def variables(cell: LaunchCell, placement: Placement, stack: Stack) -> dict[str, str]:
    """The environment that every rank shares."""
    workarounds = {name: value for name, value, _ in _workarounds(cell, placement, stack)}
    return with_threads({**stack.launcher.environment, **workarounds, **stack.overrides.variables})


def user_of(cell: LaunchCell) -> tuple[int, int]:
    """User and group of its ranks: the driver's, but root's only where it makes no containers for them."""
    return user_inside() if engines.get(cell.engine).makes_containers else (os.getuid(), os.getgid())


def world_of(
    launch: Launch, stack: Stack, placement: Placement, run: str, at: Folders, storage: Storage | None = None
) -> WorldSpec:
    return WorldSpec(run, f"{run}-{launch.sequence}", driver_identity(), launch.cell, placement, stack, at,
                     user_of(launch.cell), storage)  # fmt: skip
