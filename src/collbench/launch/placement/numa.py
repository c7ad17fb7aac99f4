"""Policy `numa`: a container for each memory node that ranks have cores of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from collbench.errors import PlanError
from collbench.launch.placement.policy import Groups, Policy
from collbench.launch.slots import Slot
from collbench.machine.facts import format_cores
from collbench.machine.topology import Topology


def groups(ranks: Sequence[Slot], k: int, topology: Topology) -> Groups:
    """Ranks with cores of one memory node share a container.

    Raises:
        PlanError: a rank has cores of several nodes, or the nodes of the ranks take turns.
    """
    nodes = [_node_of(rank, slot, topology) for rank, slot in enumerate(ranks)]
    by_node = tuple(tuple(group) for _, group in groupby(range(len(nodes)), key=nodes.__getitem__))
    if len(by_node) > len(set(nodes)):
        raise PlanError(
            f"policy numa: the ranks are on the memory nodes {', '.join(map(str, nodes))} in this order, and an MPI "
            "numbers its ranks container by container. Lower ranks or workers, or use another policy."
        )
    return by_node


def note(groups: Groups, topology: Topology) -> str:
    """A single container is the same as policy `multi`."""
    if len(groups) > 1:
        return ""
    where = f"{topology.name} has one memory node" if len(topology.nodes) == 1 else "all ranks are on one memory node"
    return f"{where}: policy numa is one container, as multi is"


def _node_of(rank: int, slot: Slot, topology: Topology) -> int:
    nodes = topology.nodes_of(slot.cores)
    if len(nodes) > 1:
        raise PlanError(
            f"policy numa: rank {rank} has cores of the memory nodes {format_cores(nodes)}, and a container is on one. "
            "Choose cores_per_rank so that a whole number of ranks fits on a node."
        )
    return nodes[0]


POLICY = Policy("numa", "a container for each memory node that ranks have cores of", groups, note=note)
