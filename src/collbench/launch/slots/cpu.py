"""For data in host memory: a slot is a set of processors that no other rank has."""

from __future__ import annotations

from dataclasses import replace

from collbench.errors import PlanError
from collbench.launch.slots.slot import Slot, Wants, far_nodes, slot_of
from collbench.machine.topology import Topology, in_order
from collbench.units import counted


def slots(topology: Topology, wants: Wants) -> tuple[Slot, ...]:
    """Whole cores first, node by node. Ranks share processors only where the plan says `oversubscribe`.

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
    near = tuple(slot_of(cores[rank * each : (rank + 1) * each]) for rank in range(wants.ranks))
    if not wants.far:
        return near
    return tuple(replace(slot, nodes=far_nodes(topology, slot.nodes, f"rank {rank}")) for rank, slot in enumerate(near))
