"""Which process drives a launch: a name that no later process has, in a file that is locked while the process lives."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from collbench.machine.facts import machine_id

#: Prefix of temporary folders, and the file in each that names its driver.
FOLDER, DRIVER = "collbench-", "driver"

#: Further places of such folders: for files that outlive a restart, and for files in memory.
_MORE_PLACES = ("/var/tmp", "/dev/shm")  # noqa: S108 - folders in them

#: The file in such a folder that names another place of them, and most bytes of a path (PATH_MAX).
ELSEWHERE, _LONGEST_PATH = "elsewhere", 4096

#: Longest identity that is read from a file (bytes).
_LONGEST = 200


def driver_identity() -> str:
    """A name of this process that no other ever has: boot, PID namespace, process number, start, time namespace."""
    return f"{boot()}/{namespace('pid')}/{os.getpid()}/{started_at('self')}/{namespace('time')}"


def started_at(process: str) -> str:
    """When a process of this PID namespace started, in clock ticks after boot as this process's time namespace has it.

    Raises:
        OSError: there is none, or it may not be seen.
    """
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()[19]


def boot() -> str:
    """A name of this start of the machine."""
    return machine_id()


def namespace(kind: Literal["pid", "time"]) -> int:
    """The one in which process numbers are unique, or ticks after boot comparable; 0: the kernel has no such thing."""
    try:
        return Path(f"/proc/self/ns/{kind}").stat().st_ino
    except FileNotFoundError:  # time namespaces are of Linux 5.6
        return 0


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


@contextlib.contextmanager
def signpost(place: str) -> Iterator[None]:
    """Where folders of this process are made in another place than the usual ones: a temporary folder names it.

    It is removed at the end; a sweep finds the place by that of a killed process.

    Raises:
        OSError: it cannot be made.
    """
    if place in _usual_places():
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix=FOLDER))
    try:
        with sign(folder):
            (folder / ELSEWHERE).write_text(place, encoding="utf-8", errors="replace")
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def opened(path: Path, encoding: str = "ascii") -> IO[str]:
    """A text file in the folder of another launch, which may hold anything: a link is refused, a pipe not waited for.

    Raises:
        OSError: it cannot be opened.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding=encoding)


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
    places = dict.fromkeys((*_usual_places(), *_named_places()))
    for folder in sorted(folder for place in places for folder in Path(place).glob(f"{FOLDER}*")):
        try:
            if not folder.is_symlink():
                driver, locked = signature_of(folder)
                yield folder, driver, locked if locked or _is_trusted(folder) else None
        except (OSError, UnicodeDecodeError):
            continue


def _usual_places() -> tuple[str, ...]:
    return (tempfile.gettempdir(), *_MORE_PLACES)


def _named_places() -> Iterator[str]:
    """Absolute paths, as signposts name them."""
    for post in (post for place in _usual_places() for post in Path(place).glob(f"{FOLDER}*/{ELSEWHERE}")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if _is_trusted(post.parent) and not post.parent.is_symlink():
                with opened(post, "utf-8") as file:
                    place = file.read(_LONGEST_PATH)
                if Path(place).is_absolute() and Path(place).is_dir():
                    yield place


def _is_trusted(folder: Path) -> bool:
    """Of this user or of root; others could sign in a living driver's name."""
    return folder.stat().st_uid in (0, os.getuid())
