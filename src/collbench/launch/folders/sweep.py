"""The folders that killed drivers left are removed; and whether a driver is certainly gone."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from collbench.launch.folders.removal import remove_folder
from collbench.launch.folders.signature import boot, namespace, signed, started_at

#: Something younger than this (s) may belong to a launch that is just being made, by a driver not known otherwise.
YOUNG = 600.0

#: boot/PID namespace/process number/start/time namespace, as `driver_identity` writes it.
_IDENTITY = re.compile(r"([^/]+)/([0-9]{1,20})/([0-9]{1,9})/([0-9]{1,20})/([0-9]{1,20})", re.ASCII)


def sweep_folders(busy: set[str]) -> list[str]:
    """Remove this user's temporary folders whose driver is gone; returns their paths.

    `busy` are drivers of which the engine has something that runs or is young.
    """
    removed = []
    for folder, driver, locked in signed():
        with contextlib.suppress(FileNotFoundError):  # its driver removed it meanwhile
            status = folder.stat()
            young = time.time() - status.st_mtime < YOUNG
            own = status.st_uid == os.getuid()
            if own and is_dead(driver, locked, driver in busy or young) and remove_folder(folder):
                removed.append(str(folder))
    return removed


def locks() -> dict[str, bool | None]:
    """By driver, whether a lock on one of its temporary folders is held; None where that cannot be known."""
    held: dict[str, bool | None] = {}
    for _, driver, locked in signed():
        held[driver] = held.get(driver) or locked
    return held


def is_dead(driver: str, locked: bool | None, busy: bool) -> bool:
    """Whether the process of that name is certainly gone. A name in another form: it is not.

    `locked`: the lock on its folder is held; None where no folder can be seen from here. `busy`: something of it on the
    engine runs or is young. That decides where nothing else does: the driver may be on another machine, or in a
    container with a temporary folder of its own.
    """
    identity = _IDENTITY.fullmatch(driver)
    if locked or identity is None:
        return False
    booted, pid_namespace, number, started, time_namespace = identity.groups()
    if booted != boot():
        return not busy
    of_here = int(pid_namespace) == namespace("pid")
    if of_here and Path("/proc/self").readlink() == Path(str(os.getpid())):  # /proc is of this namespace
        return _is_gone(number, started if int(time_namespace) == namespace("time") else None)
    return locked is False or not busy


def _is_gone(number: str, started: str | None) -> bool:
    """`started`: when the process did; None: by another clock."""
    try:
        os.kill(int(number), 0)
        return started is not None and started_at(number) != started
    except ProcessLookupError:
        return True
    except OSError:  # of another user, which /proc may hide
        return False
