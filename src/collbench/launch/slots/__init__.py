"""Slots: what each rank of a world gets. Pure functions; one file is one kind of device that the data lives on."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from collbench.launch.slots.slot import Kind, Slot, Wants

__all__ = ["Kind", "Slot", "Wants", "get", "names"]


@cache
def names() -> tuple[str, ...]:
    """Every kind of device."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "slot"))


def get(device: str) -> Kind:
    """How the ranks of a world share a machine when the data lives on that device."""
    kind: Kind = importlib.import_module(f"{__name__}.{device}").slots
    return kind
