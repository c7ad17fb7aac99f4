"""Files that MPI and NCCL keep in /dev/shm while they run, and that stay there when ranks are killed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

PLACE = Path("/dev/shm")  # noqa: S108 - files of others in it

#: How MPICH (5.0.2), Open MPI (5.0.11) and NCCL (2.30) name theirs.
NAMES = ("mpich_shm_*", "sm_segment.*", "nccl-*")

#: How long ranks that were killed may take to let go of theirs, and the interval of looking whether they did (s).
PATIENCE, LOOK = 2.0, 0.05


def remove_left(owner: int, since: float, place: Path = PLACE) -> list[str]:
    """Remove such files of a user that are not older than `since` and that no process uses any more; their names.

    `since` is in seconds since the epoch. The processes of all ranks must be seen from here.
    """
    removed: list[str] = []
    until = time.monotonic() + PATIENCE
    while left := _left(owner, since, place):
        used = _used()
        for path, file in left:
            if file not in used:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                    removed.append(path.name)
        if time.monotonic() > until:
            break
        time.sleep(LOOK)
    return removed


def _left(owner: int, since: float, place: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Paths, with device and number of the file."""
    found = []
    for path in sorted(path for name in NAMES for path in place.glob(name)):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if status.st_uid == owner and status.st_mtime >= since:
                found.append((path, (status.st_dev, status.st_ino)))
    return found


def _used() -> set[tuple[int, int]]:
    """Device and number of every file that a process has mapped or open, as far as this user may see that."""
    used: set[tuple[int, int]] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            used.update(_mapped((process / "maps").read_text("utf-8", "replace")))
        with contextlib.suppress(OSError):
            used.update(_opened(process / "fd"))
    return used


def _mapped(maps: str) -> Iterator[tuple[int, int]]:
    """Of the lines of /proc/PID/maps: address, permissions, offset, device, number, and perhaps a path (proc(5))."""
    for line in maps.splitlines():
        _, _, _, device, number, *_ = line.split(None, 5)
        major, _, minor = device.partition(":")
        yield os.makedev(int(major, 16), int(minor, 16)), int(number)


def _opened(descriptors: Path) -> Iterator[tuple[int, int]]:
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            status = descriptor.stat()
            yield status.st_dev, status.st_ino
