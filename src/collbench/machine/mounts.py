"""What lies under a folder: its file system and block device, by the kernel's table of mounts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from collbench.schema.manifest import Disk

#: How /proc/self/mountinfo writes blanks and backslashes (proc(5)).
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A file system. `device` is the name of its block device, empty where it has none that can be seen from here."""

    kind: str
    device: str = ""
    point: str = "/"

    @property
    def text(self) -> str:
        """`ext4 (vda1)`, `overlay`, `tmpfs`."""
        return f"{self.kind} ({self.device})" if self.device else self.kind


def under(folder: Path, root: Path = Path("/")) -> Mount:
    """The mount that a folder is in: the last one whose mount point is above it. Unknown without /proc."""
    path = folder.resolve()
    found = Mount("unknown")
    try:
        lines = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = _plain(fields[4])
        if (path == Path(point) or Path(point) in path.parents) and len(point) >= len(found.point):
            found = Mount(kind[0], _device(fields[2], root), point)
    return found


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _device(numbers: str, root: Path) -> str:
    """The block device of these numbers (`254:0`); empty for a file system without one."""
    try:
        return (root / "sys/dev/block" / numbers).resolve(strict=True).name
    except OSError:
        return ""


def disks(root: Path = Path("/")) -> tuple[Disk, ...]:
    """The block devices that have hardware behind them, by name."""
    known = []
    blocks = root / "sys/block"
    for block in sorted(blocks.iterdir()) if blocks.is_dir() else ():
        if not (block / "device").exists():  # loop devices, RAM disks
            continue
        queue = block / "queue"
        rotational = _read(queue / "rotational")
        scheduler = re.search(r"\[(.+)\]", _read(queue / "scheduler") or "")
        known.append(
            Disk(
                name=block.name,
                model=_read(block / "device/model"),
                rotational=None if rotational is None else rotational == "1",
                scheduler=scheduler[1] if scheduler else None,
            )
        )
    return tuple(known)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
