"""Containers and networks of drivers that were killed: found by label, removed when their driver is surely gone."""

from __future__ import annotations

import datetime
from typing import Any

from collbench.launch.engines.docker.containers import Docker
from collbench.launch.engines.docker.specs import DRIVER_LABEL
from collbench.launch.folders.sweep import YOUNG, is_dead, locks, sweep_folders

#: A container in one of these states does nothing; `created` will, where it is young.
IDLE = frozenset({"created", "exited", "dead"})


def sweep(engine: Docker) -> tuple[list[str], list[str]]:
    """Remove what dead drivers left; returns the names that were removed, and those that are still there.

    These are of drivers that may be alive, or the engine does not remove them.
    """
    containers, networks, now = engine.labelled(), engine.networks(), engine.now()
    busy = {_driver(one) for one in containers if one.get("State") not in IDLE or is_young(one, now)}
    busy |= {_driver(one) for one in networks if is_young(one, now)}
    held = locks()
    dead = [one for one in containers if is_dead(_driver(one), held.get(_driver(one)), _driver(one) in busy)]
    orphaned = [one for one in networks if is_dead(_driver(one), held.get(_driver(one)), _driver(one) in busy)]
    engine.remove(dead, orphaned)
    kept = [_name(one) for one in (*engine.labelled(), *engine.networks())]
    removed = [_name(one) for one in (*dead, *orphaned) if _name(one) not in kept]
    return [*removed, *sweep_folders(busy)], kept


def is_young(found: dict[str, Any], now: float) -> bool:
    """Whether a container or network was made less than `YOUNG` before `now`, both by the engine's clock."""
    made = found.get("Created")
    try:
        since = datetime.datetime.fromisoformat(made).timestamp() if isinstance(made, str) else float(made or 0)
    except (TypeError, ValueError):
        return True
    return now - since < YOUNG


def _driver(found: dict[str, Any]) -> str:
    return str((found.get("Labels") or {}).get(DRIVER_LABEL, ""))


def _name(found: dict[str, Any]) -> str:
    names = found.get("Names") or [found.get("Name", "?")]
    return str(names[0]).lstrip("/")
