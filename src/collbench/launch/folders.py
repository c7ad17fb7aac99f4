"""The folders of one launch on this machine: what its ranks read, and what they may write to."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.launch.identity import FOLDER, sign
from collbench.launch.neighbours import CORES
from collbench.launch.removal import remove_folder
from collbench.schema.plan import Plan


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
