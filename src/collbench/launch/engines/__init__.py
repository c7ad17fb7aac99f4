"""Engines, which start worlds somewhere. A file or package `NAME` here defines `ENGINE`, and is found by being here."""

from __future__ import annotations

from functools import cache

from collbench.errors import PlanError, suggestion
from collbench.launch.engines.spec import Engine
from collbench.registry import defined, modules_of

#: The engine of cells without containers, whichever engine a plan names.
HOST = "host"


@cache
def names() -> tuple[str, ...]:
    """Every engine's name, without importing any."""
    return modules_of(__path__, ("spec",), packages=True)


def get(name: str) -> Engine:
    """The engine of that name, whether it runs here or not; PlanError: there is none."""
    if name not in names():
        raise PlanError(f"engine {name!r}: unknown. {suggestion(name, names())}")
    engine: Engine = defined(__name__, name, "ENGINE")
    return engine
