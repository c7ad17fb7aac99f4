"""Policy `packed:K`: K ranks in each container; the last may hold fewer."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.launch.placement.policy import Groups, Policy
from collbench.launch.slots import Slot
from collbench.machine.topology import Topology


def groups(ranks: Sequence[Slot], k: int, topology: Topology) -> Groups:
    """Neighbours by rank share a container."""
    return tuple(tuple(range(first, min(first + k, len(ranks)))) for first in range(0, len(ranks), k))


POLICY = Policy("packed", "K ranks in each container", groups, takes_number=True, server_apart=True)
