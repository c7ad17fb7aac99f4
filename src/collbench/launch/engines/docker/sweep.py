"""Containers and networks of drivers that were killed: found by label, removed when their driver is certainly gone."""

from __future__ import annotations

import datetime
from typing import Any

from collbench.launch.engines.docker.containers import Docker
from collbench.launch.engines.docker.specs import DRIVER_LABEL
from collbench.launch.folders.layout import user_inside
from collbench.launch.folders.shared_memory import remove_left
from collbench.launch.folders.signature import namespace
from collbench.launch.folders.sweep import YOUNG, is_dead, locks, sweep_folders

#: A container in one of these states does nothing; `created` will, where it is young.
IDLE = frozenset({"created", "exited", "dead"})


def sweep(engine: Docker) -> tuple[list[str], list[str]]:
    """Remove what dead drivers left; returns the names that were removed, and those that remain.

    Those are of drivers that may be alive, or the engine does not remove them.
    """
    containers, networks, now = engine.labelled(), engine.networks(), engine.now()
    busy = {_driver(container) for container in containers if container.get("State") not in IDLE}
    busy |= {_driver(made) for made in (*containers, *networks) if is_young(made, now)}
    held = locks()

    def orphaned(made: dict[str, Any]) -> bool:
        driver = _driver(made)
        return is_dead(driver, held.get(driver), driver in busy)

    old = ([*filter(orphaned, containers)], [*filter(orphaned, networks)])
    engine.remove(*old)
    kept = [_name(made) for made in (*engine.labelled(), *engine.networks())]
    removed = [_name(made) for made in (*old[0], *old[1]) if _name(made) not in kept]
    return [*removed, *_shared_memory(old[0]), *sweep_folders(busy)], kept


def _shared_memory(containers: list[dict[str, Any]]) -> list[str]:
    """Remove what the ranks of such containers left in the host's /dev/shm; they have its network too.

    Their driver was in the host's PID namespace. From another it cannot be seen what is in use.
    """
    of_host = (
        made
        for made in containers
        if (made.get("HostConfig") or {}).get("NetworkMode") == "host" and f"/{namespace('pid')}/" in _driver(made)
    )
    since = min((created for made in of_host if (created := _created(made)) is not None), default=None)
    return [] if since is None else remove_left(user_inside()[0], since)


def is_young(made: dict[str, Any], now: float) -> bool:
    """Whether a container or network was made less than `YOUNG` before `now`, both by the engine's clock."""
    created = _created(made)
    return created is None or now - created < YOUNG


def _created(made: dict[str, Any]) -> float | None:
    """When, in seconds since the epoch; None where the engine says that in a form of its own."""
    created = made.get("Created")
    try:
        if isinstance(created, str):
            return datetime.datetime.fromisoformat(created).timestamp()
        return float(created or 0)
    except (TypeError, ValueError):
        return None


def _driver(made: dict[str, Any]) -> str:
    return str((made.get("Labels") or {}).get(DRIVER_LABEL, ""))


def _name(made: dict[str, Any]) -> str:
    names = made.get("Names") or [made.get("Name", "?")]
    return str(names[0]).lstrip("/")
