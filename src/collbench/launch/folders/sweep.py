"""Folders of drivers that were killed, removed when their driver is surely gone; and who is."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from collbench.launch.folders.removal import remove_folder
from collbench.launch.folders.signature import boot, namespace, signed

#: What is younger (s) may belong to a launch that is just being made, by a driver of which nothing else is known.
YOUNG = 600.0

#: boot/PID namespace/process number/start, as `driver_identity` writes it.
_IDENTITY = re.compile(r"([^/]+)/([0-9]{1,20})/([0-9]{1,9})/([0-9]{1,20})", re.ASCII)


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
