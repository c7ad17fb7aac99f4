"""Placement: the slots of ranks on a machine, and the boxes of ranks that share a container. Pure functions.

The policies of collbench itself are a table. Another package adds one by an entry point of the group
`collbench.policies` that names a `Policy`; the name of the entry point is the policy's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import EntryPoint
from itertools import chain, groupby
from typing import Literal

import msgspec

from collbench.errors import PlanError, RequestError, suggestion
from collbench.launch.cells import LaunchCell
from collbench.launch.selection import cores_for, gpus_for
from collbench.machine.facts import Core, Topology, TopologyGpu, in_order
from collbench.registry import entry_points_of, loaded
from collbench.schema.axes import POLICY, name_and_number, policy_order
from collbench.schema.plan import Plan
from collbench.units import counted, format_spans


@dataclass(frozen=True)
class Slot:
    """What one rank gets: processors, memory nodes, and no GPU or one (its UUID)."""

    cores: tuple[int, ...]
    nodes: tuple[int, ...]
    gpu: str | None = None


def _far_nodes(topology: Topology, near: Collection[int], who: str) -> tuple[int, ...]:
    """The memory nodes other than `near`, the nodes of `who`, or PlanError: there is none."""
    if others := tuple(node for node in topology.nodes if node not in near):
        return others
    if len(topology.nodes) == 1:
        raise PlanError(f"affinity far: needs two memory nodes; {topology.name} has one. Leave it out.")
    raise PlanError(f"affinity far: {who} is near to every memory node of {topology.name}. Lower cores_per_rank.")


def _slot_of(cores: tuple[Core, ...], gpu: str | None = None) -> Slot:
    """Processors with the memory of their own nodes."""
    return Slot(tuple(sorted({c.number for c in cores})), tuple(sorted({c.node for c in cores})), gpu)


def on_cores(topology: Topology, cell: LaunchCell, plan: Plan) -> tuple[Slot, ...]:
    """For data in host memory: the cores that the cell names; far: memory of all nodes but those of the processors.

    Raises PlanError: there are too few processors that ranks need not share, or no memory of another node.
    """
    offered, cores_of_each = len(topology.cores), _cores_per_rank(plan)
    each = max(1, offered // cell.ranks) if cores_of_each == "share" else cores_of_each
    needed = cell.ranks * each
    if needed > offered and not plan.oversubscribe:
        need = f"{counted(cell.ranks, 'rank')} with {counted(each, 'core')} each need {needed} cores"
        raise PlanError(f"{need}, and {topology.name} offers {offered}. Lower ranks or cores_per_rank, or set "
                        "oversubscribe = true (times are then the scheduler's).")  # fmt: skip
    cores = cores_for(topology, cell.cores, cell.ranks, each)
    near = tuple(_slot_of(cores[rank * each : (rank + 1) * each]) for rank in range(cell.ranks))
    if cell.affinity != "far":
        return near
    return tuple(replace(slot, nodes=_far_nodes(topology, slot.nodes, f"rank {rank}"))
                 for rank, slot in enumerate(near))  # fmt: skip


def on_gpus(topology: Topology, cell: LaunchCell, plan: Plan) -> tuple[Slot, ...]:
    """For data on GPUs, which the cell names. Near: processors of the GPU's node; far: of the next, with its memory.

    Parameter servers are placed on the first GPU's node, with cores that the other ranks leave there, or elsewhere.
    Raises PlanError: there are too few GPUs, or too few processors near them (or far).
    """
    workers = cell.ranks - cell.servers
    if workers > len(topology.gpus):
        reason = f" ({topology.no_gpus})" if topology.no_gpus else ""
        need = "1 worker needs a GPU" if workers == 1 else f"{workers} workers need a GPU each"
        raise PlanError(f"device gpu: {need}, and {topology.name} offers {len(topology.gpus) or 'none'}{reason}. "
                        'Lower ranks or workers, or use device = "cpu".')  # fmt: skip
    gpus = gpus_for(topology, cell.gpus, workers)
    nodes = [_node_for(topology, gpu, cell.affinity == "far") for gpu in gpus]
    each = _cores_for_each(topology, nodes, cell, plan)
    by_node = {node: in_order((core for core in topology.cores if core.node == node), each[node] * nodes.count(node))
               for node in each}  # fmt: skip
    taken, by_rank = Counter[int](), list[Slot]()
    for gpu, node in zip(gpus, nodes, strict=True):
        cores = _next_cores(by_node[node], taken[node], each[node], gpu, cell, plan)
        by_rank.append(_slot_of(cores, gpu.uuid))
        taken[node] += each[node]
    for _ in range(cell.servers):
        by_rank.insert(0, _slot_of(_for_server(topology, by_rank, each[nodes[0]], nodes[0], plan)))
    return tuple(by_rank)


def _cores_per_rank(plan: Plan) -> int | Literal["share"]:
    """Processors for each rank, or all of the machine in equal parts."""
    return plan.cores_per_rank or ("share" if plan.device == "gpu" else 1)


def _cores_for_each(topology: Topology, nodes: list[int], cell: LaunchCell, plan: Plan) -> dict[int, int]:
    """By node, the processors of each rank there."""
    if (cores_of_each := _cores_per_rank(plan)) != "share":
        return dict.fromkeys(nodes, cores_of_each)
    ranks = Counter(nodes)
    ranks[nodes[0]] += cell.servers
    cores = Counter(core.node for core in topology.cores)
    return {node: max(1, cores[node] // number) for node, number in ranks.items()}


def _node_for(topology: Topology, gpu: TopologyGpu, far: bool) -> int:
    """The node whose processors a GPU's rank gets."""
    if not far:
        return gpu.node if gpu.node in topology.nodes else topology.nodes[0]
    others = _far_nodes(topology, (gpu.node,), f"GPU {gpu.uuid}")
    return next((node for node in others if node > gpu.node), others[0])


def _next_cores(
    cores: tuple[Core, ...], taken: int, each: int, gpu: TopologyGpu, cell: LaunchCell, plan: Plan
) -> tuple[Core, ...]:
    """Processors of a node after those that are taken; from the first again where the plan says `oversubscribe`."""
    left = len(cores) - taken
    if left < each and not plan.oversubscribe:
        where = f"{'far from' if cell.affinity == 'far' else 'near to'} it"
        raise PlanError(f"GPU {gpu.uuid}: {each} cores {where} are asked for, and {left} are left. Lower "
                        "cores_per_rank or the workers, or set oversubscribe = true.")  # fmt: skip
    return tuple(cores[(taken + i) % len(cores)] for i in range(min(each, len(cores))))


def _for_server(topology: Topology, others: list[Slot], each: int, node: int, plan: Plan) -> tuple[Core, ...]:
    """Of cores that no rank has before others, then processors of a node before others."""
    used = {core for slot in others for core in slot.cores}
    shared = topology.physical(used)
    free = [core for core in in_order(topology.cores) if core.number not in used]
    free.sort(key=lambda core: (core.physical in shared, core.node != node))
    if not free and not plan.oversubscribe:
        raise PlanError("device gpu: no core is left for the parameter server. Lower cores_per_rank or the workers, or "
                        "set oversubscribe = true.")  # fmt: skip
    return tuple(free or in_order(topology.cores))[:each]


#: The group of entry points by which other packages add policies.
ENTRY_POINTS = "collbench.policies"

#: The ranks of each container, container by container.
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Policy:
    """A way to put ranks into containers. Pure: it is asked before anything is started.

    `groups(ranks, k, topology)`: `ranks` are slots by rank; `k` is the number that the plan gives (`packed:4`), or 0;
    `topology` is the machine. The result are the ranks of each container: every rank from 0 on, in order, because an
    MPI numbers its ranks container by container. It may raise PlanError where the policy does not fit.

    `takes_number`: it is spelled NAME:K. `in_containers` is False for the host. `server_apart`: every parameter server
    has a container of its own, and `groups` is asked about the workers alone. `note(groups, topology)` is what a reader
    of the plan and of the records must know of these groups; may be empty.
    """

    name: str
    summary: str
    groups: Callable[[Sequence[Slot], int, Topology], Groups]
    takes_number: bool = False
    in_containers: bool = True
    server_apart: bool = False
    note: Callable[[Groups, Topology], str] = lambda groups, topology: ""

    @property
    def spelling(self) -> str:
        """As a plan names it: `single`, `packed:K`."""
        return f"{self.name}:K" if self.takes_number else self.name


def _neighbours(ranks: Sequence[Slot], k: int, topology: Topology) -> Groups:
    """Neighbours by rank share a container."""
    return tuple(tuple(range(first, min(first + k, len(ranks)))) for first in range(0, len(ranks), k))


def _by_node(ranks: Sequence[Slot], k: int, topology: Topology) -> Groups:
    """Ranks with cores of one memory node share a container; PlanError: a rank has several, or they take turns."""
    nodes = []
    for rank, (node, *others) in enumerate(topology.nodes_of(slot.cores) for slot in ranks):
        if others:
            of_rank = format_spans((node, *others))
            raise PlanError(f"policy numa: rank {rank} has cores of the memory nodes {of_rank}, and a container is on "
                            "one. Choose cores_per_rank so that a whole number of ranks fits on a node.")  # fmt: skip
        nodes.append(node)
    by_node = tuple(tuple(group) for _, group in groupby(range(len(nodes)), key=nodes.__getitem__))
    if len(by_node) > len(set(nodes)):
        in_turns = ", ".join(map(str, nodes))
        raise PlanError(f"policy numa: the ranks are on the memory nodes {in_turns} in this order, and an MPI numbers "
                        "its ranks container by container. Lower ranks or workers, or use another policy.")  # fmt: skip
    return by_node


def _one_node(groups: Groups, topology: Topology) -> str:
    """A single container is the same as policy `multi`."""
    if len(groups) > 1:
        return ""
    where = f"{topology.name} has one memory node" if len(topology.nodes) == 1 else "all ranks are on one memory node"
    return f"{where}: policy numa is one container, as multi is"


HOST = Policy("host", "no container: the ranks run on the host", lambda ranks, k, topology: (tuple(range(len(ranks))),),
              in_containers=False)  # fmt: skip
MULTI = Policy("multi", "one container for all ranks", HOST.groups)
NUMA = Policy("numa", "a container for each memory node that ranks have cores of", _by_node, note=_one_node)
PACKED = Policy("packed", "K ranks in each container", _neighbours, takes_number=True, server_apart=True)
SINGLE = Policy("single", "a container for every rank", lambda ranks, k, topology: _neighbours(ranks, 1, topology),
                server_apart=True)  # fmt: skip


@cache
def _registered() -> dict[str, tuple[EntryPoint, ...]]:
    """By name, where each policy is found: here, and in other packages."""
    added = entry_points_of(ENTRY_POINTS)
    here = {policy.name: EntryPoint(policy.name, f"{__name__}:{policy.name.upper()}", ENTRY_POINTS)
            for policy in (HOST, MULTI, NUMA, PACKED, SINGLE)}  # fmt: skip
    return added | {name: (point, *added.get(name, ())) for name, point in here.items()}


def policy_names() -> tuple[str, ...]:
    """Every policy without its number, from the least isolated to the most."""
    return tuple(sorted(_registered(), key=policy_order))


def named_policy(name: str) -> Policy:
    """The policy of that name; PlanError: there is none, or its package does not define it."""
    if (points := _registered().get(name)) is None:
        raise PlanError(f"policy {name!r}: unknown. {suggestion(name, policy_names())}")
    try:
        policy = loaded(points)
    except RequestError as error:
        raise PlanError(f"policy {name!r}: {error}") from error
    if not isinstance(policy, Policy) or policy.name != name or POLICY.fullmatch(name) is None:
        raise PlanError(f"policy {name!r}: {points[0].value} is not a Policy of that name. Update its package.")
    return policy


def find_policy(spelling: str) -> tuple[Policy, int]:
    """The policy that a plan names, and its number or 0; PlanError: it is unknown, or is to have a number or none."""
    name, number = name_and_number(spelling)
    policy = named_policy(name)
    if policy.takes_number != (number > 0):
        how = f"takes a number, such as {name}:2" if policy.takes_number else f"takes no number; write {name}"
        raise PlanError(f"policy {spelling!r}: {how}.")
    return policy, number


def container_groups(
    policy: Policy, number: int, ranks: Sequence[Slot], topology: Topology, servers: int = 0
) -> Groups:
    """The ranks of each container; on the host, of the one place they all share. `ranks` are slots by rank.

    Parameter servers, which are the first ranks, have containers of their own where the policy keeps them apart. Raises
    PlanError: the policy does not fit, or its groups are not all ranks in order.
    """
    apart = servers if policy.server_apart else 0
    groups = policy.groups(ranks[apart:], number, topology)
    if apart:
        alone = ((server,) for server in range(apart))
        groups = (*alone, *(tuple(rank + apart for rank in group) for group in groups))
    if [*chain.from_iterable(groups)] != [*range(len(ranks))] or not all(groups):
        raise PlanError(
            f"policy {policy.name!r}: gives the containers {groups} for {len(ranks)} ranks. Every container has to "
            "hold a rank, and every rank has to be in one, in the order of ranks."
        )
    return groups


@dataclass(frozen=True)
class Box:
    """One container (or a host): its ranks with their slots, in the same order. `host` is its machine, from 0."""

    name: str
    ranks: tuple[int, ...]
    slots: tuple[Slot, ...]
    host: int = 0

    @property
    def cores(self) -> str:
        """All its processors, in the kernel's list format."""
        return format_spans({core for slot in self.slots for core in slot.cores})

    @property
    def nodes(self) -> str:
        """All its memory nodes, in the same format."""
        return format_spans({node for slot in self.slots for node in slot.nodes})

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of its ranks' GPUs."""
        return tuple(slot.gpu for slot in self.slots if slot.gpu is not None)


@dataclass(frozen=True)
class Placement:
    """Where every rank of a world is placed. `crowded`: some share a core, as its hardware threads or in turns.

    `load` are how many ranks are on how many cores, of the host where most share one. `idle` are processors of the
    machine that no rank gets. `note` is the policy's remark. On each of several hosts processors have the same numbers.
    """

    boxes: tuple[Box, ...]
    crowded: bool = False
    idle: tuple[int, ...] = ()
    note: str = ""
    load: tuple[int, int] = (0, 0)

    @property
    def shares_boxes(self) -> bool:
        """Whether some box holds several ranks."""
        return any(len(box.ranks) > 1 for box in self.boxes)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Slots by rank: an MPI numbers its ranks box by box."""
        return tuple(slot for box in self.boxes for slot in box.slots)

    @property
    def cores(self) -> frozenset[int]:
        return frozenset(core for box in self.boxes for slot in box.slots for core in slot.cores)

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(uuid for box in self.boxes for uuid in box.gpus)


def place(topology: Topology, cell: LaunchCell, plan: Plan) -> Placement:
    """Boxes for a cell of a plan on a machine, or on several that are alike; its step makes no difference.

    Raises PlanError: there is too little, no such policy, or one that does not fit; ranks cannot be spread evenly.
    """
    if cell.hosts > 1:
        return _over_hosts(topology, cell, plan)
    policy, number = find_policy(cell.policy)
    without = ""  # benchmarks of GPUs are planned on cores, where no GPU is there and they may be skipped
    if plan.device == "gpu" and not (topology.gpus or plan.collectives) and plan.unusable == "skip":
        reason = f" ({topology.no_gpus})" if topology.no_gpus else ""
        without = f"{topology.name} offers no GPU{reason}: benchmarks that need one are skipped"
    by_rank = (on_gpus if plan.device == "gpu" and not without else on_cores)(topology, cell, plan)
    if cell.affinity == "unpinned":
        by_rank = _unpinned(by_rank, topology)
    elif plan.spare == "chief":
        by_rank = _with_spare(by_rank, cell.servers, topology)
    groups = container_groups(policy, number, by_rank, topology, cell.servers)
    boxes = tuple(Box(f"c{i}", ranks, tuple(by_rank[rank] for rank in ranks)) for i, ranks in enumerate(groups))
    used = {core for slot in by_rank for core in slot.cores}
    on_core = Counter(core for slot in by_rank for core in topology.physical(slot.cores))
    idle = tuple(core.number for core in in_order(topology.cores) if core.number not in used)
    load = (len(by_rank), len(on_core))
    crowded = load[0] > load[1] if cell.affinity == "unpinned" else max(on_core.values(), default=0) > 1
    return Placement(boxes, crowded, idle, without or policy.note(groups, topology), load)


def _over_hosts(topology: Topology, cell: LaunchCell, plan: Plan) -> Placement:
    """As many ranks on each host, in the order of ranks; servers on the first, with as many cores as a worker has."""
    *servers, workers = cell.parts
    each, left = divmod(workers.ranks, workers.hosts)
    if left or not each:
        who, beside = ("worker", " beside that of the servers") if servers else ("rank", "")
        spread = f"spread evenly over {counted(workers.hosts, 'host')}{beside}"
        raise PlanError(f"{counted(workers.ranks, who)} cannot be {spread}. Take a multiple of it.")
    on_each = place(topology, replace(workers, hosts=1, ranks=each), plan)
    hosts = [on_each] * workers.hosts
    for part in servers:
        fewest = min(len(slot.cores) for slot in on_each.slots)
        hosts.insert(0, place(topology, part, msgspec.structs.replace(plan, device="cpu", cores_per_rank=fewest)))
    fullest = max(hosts, key=lambda host: (host.crowded, Fraction(*host.load)))
    boxes: list[Box] = []
    for number, host in enumerate(hosts):
        first = sum(len(box.ranks) for box in boxes)
        boxes += [Box(f"h{number}{box.name}", tuple(first + rank for rank in box.ranks), box.slots, number)
                  for box in host.boxes]  # fmt: skip
    return replace(on_each, boxes=tuple(boxes), crowded=fullest.crowded, load=fullest.load)


def _unpinned(by_rank: tuple[Slot, ...], topology: Topology) -> tuple[Slot, ...]:
    """The slots with every processor of the machine, of which the kernel's scheduler chooses. PlanError: on a cluster.

    A resource manager counts the processors of each rank, and would refuse all of them for several ranks.
    """
    if topology.of_cluster:
        raise PlanError("affinity unpinned: a resource manager gives each rank cores of its own. Leave it out.")
    everywhere = _slot_of(topology.cores)
    return tuple(replace(everywhere, gpu=slot.gpu) for slot in by_rank)


def _with_spare(by_rank: tuple[Slot, ...], chief: int, topology: Topology) -> tuple[Slot, ...]:
    """The slots with the processors of cores that no other rank has added to those of the chief, the first worker."""
    slot = by_rank[chief]
    others = topology.physical({core for other in by_rank if other is not slot for core in other.cores})
    spare = [core for core in in_order(topology.cores) if core.physical not in others]
    cores = {*slot.cores, *(core.number for core in spare)}
    nodes = {*slot.nodes, *(core.node for core in spare)}
    return (*by_rank[:chief], Slot(tuple(sorted(cores)), tuple(sorted(nodes)), slot.gpu), *by_rank[chief + 1 :])
