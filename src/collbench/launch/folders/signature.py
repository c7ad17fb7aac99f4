"""Which process drives a launch: a name that no later process has, in a file that is locked while the process lives."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from collbench.machine.facts import machine_id

#: Prefix of temporary folders, and the file in each that names its driver.
FOLDER, DRIVER = "collbench-", "driver"

#: Further places of such folders: for files that outlive a restart, and for files in memory.
_MORE_PLACES = ("/var/tmp", "/dev/shm")  # noqa: S108 - folders in them

#: Longest identity that is read from a file (bytes).
_LONGEST = 200


def driver_identity() -> str:
    """A name of this process that no other ever has: boot, PID namespace, process number, start (ticks after boot)."""
    return f"{boot()}/{namespace()}/{os.getpid()}/{started_at('self')}"


def started_at(process: str) -> str:
    """When a process of this PID namespace started, in clock ticks after boot.

    Raises:
        OSError: there is none, or it may not be seen.
    """
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()[19]


def boot() -> str:
    """A name of this start of the machine."""
    return machine_id()


def namespace() -> int:
    """The PID namespace, in which process numbers are unique."""
    return Path("/proc/self/ns/pid").stat().st_ino


def sign(folder: Path) -> IO[str]:
    """Write this process's name into a folder, in a file that stays locked until it is closed or this process ends.

    A lock is seen from every PID namespace, process numbers are not. The file gets its name when it is locked, so that
    nobody meets an unlocked signature of a living driver.
    """
    import fcntl  # Unix has it

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
    """A text file in the folder of another launch, which may hold anything: a link is refused, a pipe not waited for.

    Raises:
        OSError: it cannot be opened.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="ascii")


def signature_of(folder: Path) -> tuple[str, bool | None]:
    """The driver that a folder names, and whether its lock is held; None where that cannot be known.

    Raises:
        OSError, UnicodeDecodeError: it has no signature.
    """
    import fcntl

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
    """Temporary folders of launches, of all users: path, driver, whether its lock is held."""
    places = dict.fromkeys((tempfile.gettempdir(), *_MORE_PLACES))
    for folder in sorted(folder for place in places for folder in Path(place).glob(f"{FOLDER}*")):
        try:
            if not folder.is_symlink():
                driver, locked = signature_of(folder)
                trusted = folder.stat().st_uid in (0, os.getuid())  # others could sign in a living driver's name
                yield folder, driver, locked if locked or trusted else None
        except (OSError, UnicodeDecodeError):
            continue
