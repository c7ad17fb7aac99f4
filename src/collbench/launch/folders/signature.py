"""Who drives a launch: a name for this process that no later process has, and a lock that is held while it lives.

And who ranks in containers are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from collbench.machine.facts import machine_id

#: How temporary folders begin, and the file in each that says who drives it.
FOLDER, DRIVER = "collbench-", "driver"

#: Longest identity that is read from a file (bytes).
_LONGEST = 200


def driver_identity() -> str:
    """Names this process for good: boot, PID namespace, process number, start (clock ticks after boot)."""
    started = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    return f"{boot()}/{namespace()}/{os.getpid()}/{started}"


def boot() -> str:
    """Names this start of the machine."""
    return machine_id()


def namespace() -> int:
    """In which a process number means something."""
    return Path("/proc/self/ns/pid").stat().st_ino


def sign(folder: Path) -> IO[str]:
    """Write into a folder who drives it, and lock that file until it is closed, or this process is gone.

    A lock is seen from every PID namespace, where process numbers are not. The file has its name only once it is
    locked: nobody meets a signature of a living driver that is not.
    """
    draft = folder / f"{DRIVER}.draft"
    signature = draft.open("w", encoding="ascii")
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(signature, fcntl.LOCK_EX | fcntl.LOCK_NB)
        signature.write(driver_identity())
        signature.flush()
        draft.rename(folder / DRIVER)
    except BaseException:
        signature.close()
        raise
    return signature


def opened(path: Path) -> IO[str]:
    """A small text of another launch, to be read. Somebody else's folder may hold anything: no link, and no wait.

    Raises:
        OSError: it cannot be opened.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="ascii")


def signature_of(folder: Path) -> tuple[str, bool | None]:
    """Who drives a folder, and whether the lock on it is held; None where that cannot be known.

    Raises:
        OSError, UnicodeDecodeError: nobody signed it.
    """
    with opened(folder / DRIVER) as signature:
        driver = signature.read(_LONGEST)
        try:
            fcntl.flock(signature, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return driver, True
        except OSError:
            return driver, None
    return driver, False


def signed() -> Iterator[tuple[Path, str, bool | None]]:
    """Temporary folders of launches, whoever they belong to: path, driver, whether its lock is held."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{FOLDER}*")):
        try:
            if not folder.is_symlink():
                driver, locked = signature_of(folder)
                trusted = folder.stat().st_uid in (0, os.getuid())  # others could sign as a driver that lives
                yield folder, driver, locked if locked or trusted else None
        except (OSError, UnicodeDecodeError):
            continue
