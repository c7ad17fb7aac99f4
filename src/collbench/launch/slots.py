"""Slots: what each rank of a world gets of a machine, by the kind of device that holds the data. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from collbench.errors import PlanError
from collbench.machine.topology import Core, Topology, TopologyGpu, in_order
from collbench.units import counted


@dataclass(frozen=True)
class Slot:
    """What one rank gets: processors, memory nodes, and no GPU or one (its UUID)."""

    cores: tuple[int, ...]
    nodes: tuple[int, ...]
    gpu: str | None = None


@dataclass(frozen=True)
class Wants:
    """What a world asks of a machine.

    The first `servers` ranks are parameter servers, which get no GPU. `cores`: processors for each rank, or `share`:
    all of them in equal parts. `far`: memory (and with GPUs, processors too) of another node.
    """

    ranks: int
    servers: int = 0
    cores: int | Literal["share"] = 1
    far: bool = False
    oversubscribe: bool = False


def _far_nodes(topology: Topology, near: Collection[int], who: str) -> tuple[int, ...]:
    """The memory nodes other than `near`, the nodes of `who`.

    Raises:
        PlanError: there is none.
    """
    others = tuple(node for node in topology.nodes if node not in near)
    if others:
        return others
    if len(topology.nodes) == 1:
        raise PlanError(f"affinity far: needs two memory nodes; {topology.name} has one. Leave it out.")
    raise PlanError(f"affinity far: {who} is near to every memory node of {topology.name}. Lower cores_per_rank.")


def _slot_of(cores: tuple[Core, ...], gpu: str | None = None) -> Slot:
    """Processors with the memory of their own nodes."""
    return Slot(tuple(sorted({c.number for c in cores})), tuple(sorted({c.node for c in cores})), gpu)


def on_cores(topology: Topology, wants: Wants) -> tuple[Slot, ...]:
    """For data in host memory: whole cores first, node by node. Ranks share them only where the plan says so.

    Far: memory of all nodes but those of the rank's processors.

    Raises:
        PlanError: more processors are asked for than there are; or memory of another node, and there is none.
    """
    offered = len(topology.cores)
    each = max(1, offered // wants.ranks) if wants.cores == "share" else wants.cores
    needed = wants.ranks * each
    if needed > offered and not wants.oversubscribe:
        raise PlanError(
            f"{counted(wants.ranks, 'rank')} with {counted(each, 'core')} each need {needed} cores, and "
            f"{topology.name} offers {offered}. Lower ranks or cores_per_rank, or set oversubscribe = true "
            "(times are then the scheduler's)."
        )
    ordered = in_order(topology.cores, needed)
    cores = tuple(ordered[i % offered] for i in range(needed))
    near = tuple(_slot_of(cores[rank * each : (rank + 1) * each]) for rank in range(wants.ranks))
    if not wants.far:
        return near
    return tuple(
        replace(slot, nodes=_far_nodes(topology, slot.nodes, f"rank {rank}")) for rank, slot in enumerate(near)
    )


def on_gpus(topology: Topology, wants: Wants) -> tuple[Slot, ...]:
    """For data on GPUs, in the machine's order. Near: processors of the GPU's node; far: of the next, with its memory.

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
        by_rank.append(_slot_of(_next_cores(by_node[node], taken[node], each[node], wants, gpu), gpu.uuid))
        taken[node] += each[node]
    for _ in range(wants.servers):
        by_rank.insert(0, _slot_of(_for_server(topology, by_rank, each[nodes[0]], nodes[0], wants)))
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
    others = _far_nodes(topology, (gpu.node,), f"GPU {gpu.uuid}")
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


#: By device, `slots(topology, wants)` -> one slot for each rank, in order. Raises PlanError where it does not fit.
BY_DEVICE: Mapping[str, Callable[[Topology, Wants], tuple[Slot, ...]]] = {"cpu": on_cores, "gpu": on_gpus}
