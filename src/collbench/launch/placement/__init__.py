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


def groups_of(policy: str, ranks: int) -> tuple[tuple[int, ...], ...]:
    """The ranks of each container under `NAME` or `NAME:K`; on the host, of the one place they all share."""
    name, _, number = policy.partition(":")
    return get(name).groups(ranks, int(number) if number else 0)
