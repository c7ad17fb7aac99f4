"""Storage: what lies under the files of programs that work in files, in containers and on the host.

A container has it as its temporary folder: its own writable layer (`overlay`), a volume of the engine, a folder of the
host (`bind`), or memory (`tmpfs`). The host's counterpart is a folder on the same device.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import EngineError, PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.folders import make_folder, signed_folder, signpost
from collbench.machine.cgroup import under

#: Where containers have it: every image has this folder, and every user may write to it.
INSIDE = "/tmp"  # noqa: S108 - in the container

#: Memory as a folder of the host.
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a folder in it


@dataclass(frozen=True)
class Storage:
    """What one launch has. `folder` is where its ranks find it, `source` a folder of the host that was made for it."""

    kind: str
    folder: str
    source: str | None = None


@contextlib.contextmanager
def storage_of(cell: LaunchCell, parent: str, user: tuple[int, int]) -> Iterator[Storage | None]:
    """The storage of a launch: a folder below `parent` where it is one of the host, removed at the end.

    None where its cell has none.

    Raises:
        OSError: the folder cannot be made.
    """
    if cell.storage is None:
        yield None
        return
    if (where := place_of(cell, parent)) is None:
        yield described(cell)
        return
    with signpost(where), signed_folder(Path(where)) as root:  # the post goes when all of it is removed
        root.chmod(0o711)
        folder = root / "files"
        make_folder(folder, user)
        yield described(cell, folder)


def described(cell: LaunchCell, source: Path | None = None) -> Storage | None:
    """The storage of a cell, with the folder of the host that was made for it, where one is needed."""
    if cell.storage is None:
        return None
    made = None if source is None else str(source)
    return Storage(cell.storage, made or "" if cell.engine == "host" else INSIDE, made)


def place_of(cell: LaunchCell, parent: str) -> str | None:
    """Where a folder of the host has to be made; None where there is no storage, or it is the container's own."""
    if cell.storage is None:
        return None
    absolute = str(Path(parent).absolute())  # an engine takes no other
    if cell.engine != "host":
        return absolute if cell.storage == "bind" else None
    return SHARED_MEMORY if cell.storage == "tmpfs" else absolute


def refuse_unusable_folder(cells: Iterable[LaunchCell], parent: str) -> None:
    """Whether folders can be made where these cells need one of the host.

    Raises:
        PlanError: not in one of them.
    """
    for cell in cells:
        where = place_of(cell, parent)
        if where is None or (Path(where).is_dir() and os.access(where, os.W_OK | os.X_OK)):
            continue
        reason = "nothing can be made in it" if Path(where).is_dir() else "there is no such folder"
        way = "leave it out" if where == SHARED_MEMORY else "set folder to another of the host"
        raise PlanError(f"storage {cell.storage}: folder {where}: {reason}; {way}.")


def refuse_other_device(cells: Iterable[LaunchCell], parent: str, engine_root: str) -> None:
    """Whether the files of containers, below `engine_root`, and those of the host, below `parent`, are on one device.

    Raises:
        EngineError: on two, both of which are named.
    """
    compared = {cell.storage for cell in cells if cell.storage in ("overlay", "volume")}
    if not compared:
        return
    try:
        there, here = Path(engine_root).stat().st_dev, Path(parent).stat().st_dev
    except OSError as error:
        raise EngineError(
            f"storage: {error.filename}: {error.strerror}; set folder to a folder of the host."
        ) from error
    if there != here:
        raise EngineError(
            f"storage {', '.join(sorted(compared))}: the engine keeps it in {engine_root} on "
            f"{under(Path(engine_root)).text}, and the host's counterpart would be in {parent} on "
            f"{under(Path(parent)).text}: two devices would be compared. Set folder to a folder on the engine's device."
        )
