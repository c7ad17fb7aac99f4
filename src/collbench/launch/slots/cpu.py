"""The data lives in host memory: a slot is a set of processors that no other rank has."""

from __future__ import annotations

from dataclasses import replace

from collbench.errors import PlanError
from collbench.launch.slots.slot import Slot, Wants, far_nodes, slot_of
from collbench.machine.topology import Topology


def slots(topology: Topology, wants: Wants) -> tuple[Slot, ...]:
    """Node by node, whole cores first. Ranks share processors only where the plan says `oversubscribe`.

    Far: memory of all nodes but those of the rank's processors.

    Raises:
        PlanError: more processors are asked for than there are; or memory of another node, and there is none.
    """
    there = len(topology.cores)
    each = max(1, there // wants.ranks) if wants.cores == "share" else wants.cores
    wanted = wants.ranks * each
    if wanted > there and not wants.oversubscribe:
        who = f"{wants.ranks} rank{'s' if wants.ranks > 1 else ''} with {each} core{'s' if each > 1 else ''} each"
        raise PlanError(
            f"{who} want {wanted} cores, and this machine offers {there}. Lower ranks or cores_per_rank, or say "
            "oversubscribe = true (times are the scheduler's then)."
        )
    ordered = topology.in_order
    cores = tuple(ordered[i % there] for i in range(wanted))
    found = tuple(slot_of(cores[rank * each : (rank + 1) * each]) for rank in range(wants.ranks))
    if not wants.far:
        return found
    return tuple(
        replace(slot, nodes=far_nodes(topology, slot.nodes, f"rank {rank}")) for rank, slot in enumerate(found)
    )
