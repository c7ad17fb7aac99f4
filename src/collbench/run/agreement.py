"""What ranks agree on."""

from __future__ import annotations

from typing import TypeVar

from collbench.bindings.spec import World, allgather

T = TypeVar("T")


def first_value(world: World, value: T | None) -> T | None:
    """The value of the first rank that has one, on all ranks. Collective."""
    return next((value for value in allgather(world, value) if value is not None), None)
