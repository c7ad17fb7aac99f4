"""Placement: which ranks share a container. Pure functions; one file is one policy.

A file `NAME.py` in this package defines `POLICY`. Another package adds a policy by an entry point of the group
`collbench.policies` that names such an object; the name of the entry point is the policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint

from collbench.errors import PlanError, RequestError
from collbench.launch.placement.policy import Groups, Policy
from collbench.launch.slots import Slot
from collbench.machine.topology import Topology
from collbench.registry import entry_points_of, loaded, modules_of
from collbench.schema.place import is_spelling, name_and_number, policy_order
from collbench.spelling import suggestion

__all__ = ["ENTRY_POINTS", "Groups", "Policy", "find", "groups_of", "named", "names"]

#: The group of entry points by which other packages add policies.
ENTRY_POINTS = "collbench.policies"

_NO_POLICY = ("policy",)


@cache
def _registered() -> dict[str, tuple[EntryPoint, ...]]:
    """By name, where each policy is found: its own file, and what other packages define."""
    added = entry_points_of(ENTRY_POINTS)
    own = modules_of(__path__, _NO_POLICY)
    files = {name: EntryPoint(name, f"{__name__}.{name}:POLICY", ENTRY_POINTS) for name in own}
    return added | {name: (point, *added.get(name, ())) for name, point in files.items()}


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
