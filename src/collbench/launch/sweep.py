"""Left-overs of drivers that were killed: found by label and signature, removed when their driver is surely gone."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import time
from pathlib import Path
from typing import Any

from collbench.launch.engine import Engine
from collbench.launch.identity import boot, namespace, signed
from collbench.launch.removal import remove_folder
from collbench.launch.specs import DRIVER_LABEL

#: What is younger (s) may belong to a launch that is just being made, by a driver of which nothing else is known.
YOUNG = 600.0

#: A container in one of these states does nothing; `created` will, where it is young.
IDLE = frozenset({"created", "exited", "dead"})

#: boot/PID namespace/process number/start, as `driver_identity` writes it.
_IDENTITY = re.compile(r"([^/]+)/([0-9]{1,20})/([0-9]{1,9})/([0-9]{1,20})", re.ASCII)


def sweep(engine: Engine) -> tuple[list[str], list[str]]:
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


def sweep_folders(busy: set[str]) -> list[str]:
    """Remove temporary folders of ours whose driver is dead; returns their paths.

    `busy` are drivers of which the engine has something that runs or is young.
    """
    removed = []
    for folder, driver, locked in signed():
        with contextlib.suppress(FileNotFoundError):  # its driver removed it meanwhile
            about = folder.stat()
            young = time.time() - about.st_mtime < YOUNG
            ours = about.st_uid == os.getuid()
            if ours and is_dead(driver, locked, driver in busy or young) and remove_folder(folder):
                removed.append(str(folder))
    return removed


def locks() -> dict[str, bool | None]:
    """By driver, whether a lock on one of its temporary folders is held; None where that cannot be known."""
    found: dict[str, bool | None] = {}
    for _, driver, locked in signed():
        found[driver] = True if found.get(driver) or locked else locked
    return found


def is_dead(driver: str, locked: bool | None, busy: bool) -> bool:
    """Whether the process that a label names is surely gone. A strange label: not.

    `locked`: the lock on its folder is held; None where there is no folder that could be seen from here. `busy`:
    something of it on the engine runs or is young. That decides where nothing else does: the driver may be on another
    machine, or in a container with a temporary folder of its own.
    """
    named = _IDENTITY.fullmatch(driver)
    if locked or named is None:
        return False
    started_on, place, number, started = named.groups()
    if started_on != boot():
        return not busy
    if int(place) == namespace() and Path("/proc/self").readlink() == Path(str(os.getpid())):  # and /proc speaks of it
        return _is_gone(int(number), started)
    return locked is False or not busy


def _is_gone(number: int, started: str) -> bool:
    try:
        os.kill(number, 0)
        text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's, which /proc may hide
        return False
    return text.rpartition(")")[2].split()[19] != started


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
