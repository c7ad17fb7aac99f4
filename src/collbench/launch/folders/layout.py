"""The folders of one launch on this machine: what its ranks read, and what they may write to."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.launch.folders.neighbours import CORES
from collbench.launch.folders.removal import remove_folder
from collbench.launch.folders.signature import FOLDER, sign
from collbench.schema.plan import Plan

#: The user inside when the driver is root: beyond the people of a machine (up to 60000), what systemd gives to services
#: (to 65519) and nobody (65534), and below the first that containers without root are mapped to (100000, subuid(5)).
UNPRIVILEGED = 98_417


@dataclass(frozen=True)
class Folders:
    """The inner plan, what the first rank may write to, and where daemons are asked for."""

    plan: Path
    out: Path
    relay: Path


def folders_in(root: Path) -> Folders:
    """Their names in a launch's own folder."""
    return Folders(root / "plan.json", root / "out", root / "relay")


@contextlib.contextmanager
def folders(plan: Plan, user: tuple[int, int], cores: str = "") -> Iterator[Folders]:
    """Temporary ones, which only the driver and the user inside can enter. Others can read which `cores` are taken."""
    root = Path(tempfile.mkdtemp(prefix=FOLDER))
    with contextlib.ExitStack() as signed:  # until all of it is gone
        try:
            signed.enter_context(sign(root))
            (root / CORES).write_text(cores, encoding="ascii")
            found = folders_in(root)
            found.plan.write_bytes(msgspec.json.encode(plan))
            found.plan.chmod(0o644)
            for folder in (found.out, found.relay):
                folder.mkdir(mode=0o700)
                if os.getuid() == 0:
                    os.chown(folder, *user)
            root.chmod(0o711)
            yield found
        finally:
            remove_folder(root)


def user_inside() -> tuple[int, int]:
    """The driver's own user and group; where that is root, a number that nobody on this machine has."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    number = next(number for number in itertools.count(UNPRIVILEGED) if not _is_known(number))
    return number, number


def _is_known(number: int) -> bool:
    try:
        return bool(pwd.getpwuid(number))
    except KeyError:
        return False
