"""For data on GPUs: a slot is a GPU with processors near to it; for a parameter server it is processors alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from collbench.errors import PlanError
from collbench.launch.slots.slot import Slot, Wants, far_nodes, slot_of
from collbench.machine.topology import Core, Topology, TopologyGpu, in_order


def slots(topology: Topology, wants: Wants) -> tuple[Slot, ...]:
    """GPUs in the machine's order. Near: processors of the GPU's node; far: of the next node, with its memory.

    Parameter servers are placed on the first GPU's node, with cores that the other ranks leave there, or elsewhere.

    Raises:
        PlanError: more GPUs are asked for than there are, or more processors than are near (or far).
    """
    workers = wants.ranks - wants.servers
    if workers > len(topology.gpus):
        reason = f" ({topology.no_gpus})" if topology.no_gpus else ""
        need = "1 worker needs a GPU" if workers == 1 else f"{workers} workers need a GPU each"
        raise PlanError(
            f"device gpu: {need}, and {topology.name} offers {len(topology.gpus) or 'none'}{reason}. "
            'Lower ranks or workers, or use device = "cpu".'
        )
    gpus = topology.gpus[:workers]
    nodes = [_node_for(topology, gpu, wants.far) for gpu in gpus]
    each = _cores_for_each(topology, nodes, wants)
    ranks = Counter(nodes)
    by_node = {
        node: in_order((core for core in topology.cores if core.node == node), each[node] * ranks[node])
        for node in each
    }
    taken = Counter[int]()
    by_rank = []
    for gpu, node in zip(gpus, nodes, strict=True):
        by_rank.append(slot_of(_next_cores(by_node[node], taken[node], each[node], wants, gpu), gpu.uuid))
        taken[node] += each[node]
    for _ in range(wants.servers):
        by_rank.insert(0, slot_of(_for_server(topology, by_rank, each[nodes[0]], nodes[0], wants)))
    return tuple(by_rank)


def _cores_for_each(topology: Topology, nodes: list[int], wants: Wants) -> dict[int, int]:
    """By node, the processors of each rank there."""
    if wants.cores != "share":
        return dict.fromkeys(nodes, wants.cores)
    ranks = Counter(nodes)
    ranks[nodes[0]] += wants.servers
    cores = Counter(core.node for core in topology.cores)
    return {node: max(1, cores[node] // number) for node, number in ranks.items()}


def _node_for(topology: Topology, gpu: TopologyGpu, far: bool) -> int:
    """The node whose processors a GPU's rank gets."""
    if not far:
        return gpu.node if gpu.node in topology.nodes else topology.nodes[0]
    others = far_nodes(topology, (gpu.node,), f"GPU {gpu.uuid}")
    return next((node for node in others if node > gpu.node), others[0])


def _next_cores(cores: tuple[Core, ...], taken: int, each: int, wants: Wants, gpu: TopologyGpu) -> tuple[Core, ...]:
    """Processors of a node after those that are taken; from the first again where the plan says `oversubscribe`."""
    left = len(cores) - taken
    if left < each and not wants.oversubscribe:
        raise PlanError(
            f"GPU {gpu.uuid}: {each} cores {'far from' if wants.far else 'near to'} it are asked for, and {left} are "
            "left. Lower cores_per_rank or the workers, or set oversubscribe = true."
        )
    return tuple(cores[(taken + i) % len(cores)] for i in range(min(each, len(cores))))


def _for_server(topology: Topology, others: list[Slot], each: int, node: int, wants: Wants) -> tuple[Core, ...]:
    used = {core for slot in others for core in slot.cores}
    free = tuple(_nearest(topology, node, used))[:each]
    if free:
        return free
    if not wants.oversubscribe:
        raise PlanError(
            "device gpu: no core is left for the parameter server. Lower cores_per_rank or the workers, or set "
            "oversubscribe = true."
        )
    return topology.in_order[:each]


def _nearest(topology: Topology, node: int, used: set[int]) -> Iterator[Core]:
    """Those that are not used: of cores that no rank has before others, processors of a node before others."""
    cores = topology.physical(used)
    free = (core for core in topology.in_order if core.number not in used)
    yield from sorted(free, key=lambda core: (core.physical in cores, core.node != node))
