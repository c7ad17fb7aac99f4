"""Placement: which ranks share a container, and which slot each gets. Pure functions; one file is one policy."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from collbench.errors import PlanError
from collbench.launch.placement.policy import Policy
from collbench.spelling import suggestion

_NO_POLICY = ("policy",)


@cache
def names() -> tuple[str, ...]:
    """Every policy."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_POLICY))


def get(name: str) -> Policy:
    """The policy of that name, without its number.

    Raises:
        PlanError: there is none.
    """
    if name not in names():
        raise PlanError(f"policy {name!r}: unknown. {suggestion(name, names())}")
    policy: Policy = importlib.import_module(f"{__name__}.{name}").POLICY
    return policy


def groups_of(policy: str, ranks: int, server: bool = False) -> tuple[tuple[int, ...], ...]:
    """The ranks of each container under `NAME` or `NAME:K`; on the host, of the one place they all share.

    With a parameter server, which is rank 0, the policy is that of the workers.
    """
    name, _, text = policy.partition(":")
    chosen, number = get(name), int(text) if text else 0
    if not (server and chosen.server_apart):
        return chosen.groups(ranks, number)
    workers = chosen.groups(ranks - 1, number)
    return ((0,), *(tuple(rank + 1 for rank in group) for group in workers))
