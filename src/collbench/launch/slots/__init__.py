"""Slots: what each rank of a world gets. Pure functions; one file for each kind of device that holds the data."""

from __future__ import annotations

from functools import cache

from collbench.launch.slots.slot import Kind, Slot, Wants
from collbench.registry import defined, modules_of

__all__ = ["Kind", "Slot", "Wants", "get", "names"]


@cache
def names() -> tuple[str, ...]:
    return modules_of(__path__, ("slot",))


def get(device: str) -> Kind:
    """How the ranks of a world share a machine when the data is on that device."""
    kind: Kind = defined(__name__, device, "slots")
    return kind
