"""Placement: which ranks share a container. Pure functions, and a table of the policies of collbench itself.

Another package adds a policy by an entry point of the group `collbench.policies` that names a `Policy`; the name of the
entry point is the policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from itertools import groupby

from collbench.errors import PlanError, RequestError, suggestion
from collbench.launch.slots import Slot
from collbench.machine.facts import format_cores
from collbench.machine.topology import Topology
from collbench.registry import entry_points_of, loaded
from collbench.schema.axes import is_spelling, name_and_number, policy_order

#: The group of entry points by which other packages add policies.
ENTRY_POINTS = "collbench.policies"

#: The ranks of each container, container by container.
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Policy:
    """A way to put ranks into containers. Pure: it is asked before anything is started.

    `groups(ranks, k, topology)`: `ranks` are the slots of the ranks, by rank (processors, memory nodes, GPU); `k` is
    the number that the plan gives (`packed:4`), 0 where the policy does not take one; `topology` is the machine. The
    result are the ranks of each container: every rank from 0 on, in order, because an MPI numbers its ranks container
    by container. It may raise PlanError where the policy does not fit.

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


def _one_node(groups: Groups, topology: Topology) -> str:
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
    own = {policy.name: EntryPoint(policy.name, f"{__name__}:{policy.name.upper()}", ENTRY_POINTS)
           for policy in (HOST, MULTI, NUMA, PACKED, SINGLE)}  # fmt: skip
    return added | {name: (point, *added.get(name, ())) for name, point in own.items()}


def names() -> tuple[str, ...]:
    """Every policy without its number, from the least isolated to the most."""
    return tuple(sorted(_registered(), key=policy_order))


def named(name: str) -> Policy:
    """The policy of that name.

    Raises:
        PlanError: there is none; the package that defines it cannot be imported, or defines something else.
    """
    if name not in _registered():
        raise PlanError(f"policy {name!r}: unknown. {suggestion(name, names())}")
    points = _registered()[name]
    try:
        policy = loaded(points)
    except RequestError as error:
        raise PlanError(f"policy {name!r}: {error}") from error
    if not isinstance(policy, Policy) or policy.name != name or not is_spelling(name):
        raise PlanError(f"policy {name!r}: {points[0].value} is not a Policy of that name. Update its package.")
    return policy


def find(spelling: str) -> tuple[Policy, int]:
    """The policy that a plan names, and its number; 0 where it does not take one.

    Raises:
        PlanError: as `named`; or the policy takes a number and has none here, or the other way round.
    """
    name, number = name_and_number(spelling)
    policy = named(name)
    if policy.takes_number != (number > 0):
        how = f"takes a number, such as {name}:2" if policy.takes_number else f"takes no number; write {name}"
        raise PlanError(f"policy {spelling!r}: {how}.")
    return policy, number


def groups_of(policy: Policy, number: int, ranks: Sequence[Slot], topology: Topology, servers: int = 0) -> Groups:
    """The ranks of each container; on the host, of the one place they all share. `ranks` are slots by rank.

    With parameter servers, which are the first ranks, the policy is that of the workers where it keeps servers apart:
    each has a container of its own.

    Raises:
        PlanError: the policy does not fit, or its groups are not all ranks in order.
    """
    apart = servers if policy.server_apart else 0
    groups = policy.groups(ranks[apart:], number, topology)
    if apart:
        alone = ((server,) for server in range(apart))
        groups = (*alone, *(tuple(rank + apart for rank in group) for group in groups))
    if [rank for group in groups for rank in group] != list(range(len(ranks))) or not all(groups):
        raise PlanError(
            f"policy {policy.name!r}: gives the containers {groups} for {len(ranks)} ranks. Every container has to "
            "hold a rank, and every rank has to be in one, in the order of ranks."
        )
    return groups
