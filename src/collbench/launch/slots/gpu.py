"""The data lives on GPUs: a slot is a GPU with processors near to it, and for a parameter server processors alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from collbench.errors import PlanError
from collbench.launch.slots.slot import Slot, Wants, far_nodes, slot_of
from collbench.machine.topology import Core, Topology, TopologyGpu


def slots(topology: Topology, wants: Wants) -> tuple[Slot, ...]:
    """GPUs in the machine's order. Near: processors of the GPU's node; far: of the next node, with its memory.

    A parameter server sits where the first GPU does, and gets what the GPUs' ranks leave there, or elsewhere.

    Raises:
        PlanError: more GPUs are asked for than there are, or more processors than are near (or far).
    """
    workers = wants.ranks - wants.server
    if workers > len(topology.gpus):
        who = "1 worker wants a GPU" if workers == 1 else f"{workers} workers want a GPU each"
        raise PlanError(
            f"device gpu: {who}, and this machine offers {len(topology.gpus) or 'none'}{_why(topology)}. "
            'Lower ranks or workers, or use device = "cpu".'
        )
    gpus = topology.gpus[:workers]
    homes = [_home(topology, gpu, wants.far) for gpu in gpus]
    free = {node: [core for core in topology.in_order if core.node == node] for node in {*homes}}
    counts = Counter(homes)
    share = {node: max(1, len(cores) // (counts[node] + (wants.server and node == homes[0])))
             for node, cores in free.items()}  # fmt: skip
    each = {node: share[node] if wants.cores == "share" else wants.cores for node in free}
    found = [slot_of(_take(free[home], each[home], wants, gpu), gpu.uuid)
             for gpu, home in zip(gpus, homes, strict=True)]  # fmt: skip
    if wants.server:
        found.insert(0, slot_of(_for_server(topology, found, each[homes[0]], homes[0], wants)))
    return tuple(found)


def _why(topology: Topology) -> str:
    return f" ({topology.no_gpus})" if topology.no_gpus else ""


def _home(topology: Topology, gpu: TopologyGpu, far: bool) -> int:
    """The node whose processors a GPU's rank gets."""
    if not far:
        return gpu.node if gpu.node in topology.nodes else topology.nodes[0]
    others = far_nodes(topology, (gpu.node,), f"GPU {gpu.uuid}")
    return next((node for node in others if node > gpu.node), others[0])


def _take(free: list[Core], each: int, wants: Wants, gpu: TopologyGpu) -> tuple[Core, ...]:
    """The next processors of a node; each is handed out once, unless the plan says `oversubscribe`."""
    if len(free) < each and not wants.oversubscribe:
        raise PlanError(
            f"GPU {gpu.uuid}: {each} cores {'far from' if wants.far else 'near to'} it are asked for, and {len(free)} "
            "are left. Lower cores_per_rank or the workers, or say oversubscribe = true."
        )
    taken, free[:] = free[:each], free[each:] + (free[:each] if wants.oversubscribe else [])
    return tuple(taken)


def _for_server(topology: Topology, taken: list[Slot], each: int, home: int, wants: Wants) -> tuple[Core, ...]:
    used = {core for slot in taken for core in slot.cores}
    left = list(_nearest(topology, home, used))[:each]
    if left:
        return tuple(left)
    if not wants.oversubscribe:
        raise PlanError(
            "device gpu: no core is left for the parameter server. Lower cores_per_rank or the workers, or say "
            "oversubscribe = true."
        )
    return topology.in_order[:each]


def _nearest(topology: Topology, home: int, used: set[int]) -> Iterator[Core]:
    """Those of one node before all others."""
    yield from (core for core in topology.in_order if core.node == home and core.number not in used)
    yield from (core for core in topology.in_order if core.node != home and core.number not in used)
