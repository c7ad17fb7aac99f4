"""Control groups and mounts: limits of this process on processor time and memory, and devices under paths.

Every group above the process may have a limit, so all of them are read. In a container only those can be read that its
namespace shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from collbench.schema.manifest import Disk

_MOUNT = "sys/fs/cgroup"
#: Version 1 writes `no limit` as a number near 2**63.
_UNLIMITED = 1 << 60


def _groups(root: Path, controller: str) -> Iterator[tuple[bool, Path]]:
    """(is version 2, folder) of every group that the process is in for `controller`, inner ones first."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        inner = PurePosixPath(group.lstrip("/"))
        for mount in dict.fromkeys(("", "unified") if not controllers else (controllers, controller)):
            for level in (inner, *inner.parents):
                yield not controllers, root / _MOUNT / mount / level


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processor time in cores that the smallest quota allows; None without a limit."""
    limits = []
    for unified, folder in _groups(root, "cpu"):
        if unified:
            quota = (_read(folder / "cpu.max") or "").split()
        else:
            quota = [_read(folder / "cpu.cfs_quota_us") or "", _read(folder / "cpu.cfs_period_us") or ""]
        if len(quota) == 2 and all(word.isdecimal() for word in quota):
            limits.append(int(quota[0]) / int(quota[1]))
    return min(limits, default=None)


def throttled_seconds(root: Path = Path("/")) -> dict[str, float]:
    """By folder of the group: CPU seconds for which its quota has throttled it, since it was made."""
    seconds = {}
    for unified, folder in _groups(root, "cpu"):
        name, unit = ("throttled_usec", 1e-6) if unified else ("throttled_time", 1e-9)
        for line in (_read(folder / "cpu.stat") or "").splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.isdecimal():
                seconds[str(folder)] = int(value) * unit
    return seconds


def cpu_weight(root: Path = Path("/")) -> int | None:
    """The weight of the innermost group against its neighbours: `cpu.shares` (version 1) or `cpu.weight` (2)."""
    for unified, folder in _groups(root, "cpu"):
        weight = _read(folder / ("cpu.weight" if unified else "cpu.shares")) or ""
        if weight.isdecimal():
            return int(weight)
    return None


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of every group that has a limit."""
    for unified, folder in _groups(root, "memory"):
        names = ("memory.max", "memory.current") if unified else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (_read(folder / name) or "" for name in names)
        if limit.isdecimal() and int(limit) < _UNLIMITED:
            yield int(limit), int(used) if used.isdecimal() else 0


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the smallest limit allows; None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that can be allocated before any group's limit is reached; None without a limit."""
    return min((max(limit - used, 0) for limit, used in _memory(root)), default=None)


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
        rotational = _read_or_none(queue / "rotational")
        scheduler = re.search(r"\[(.+)\]", _read_or_none(queue / "scheduler") or "")
        known.append(
            Disk(
                name=block.name,
                model=_read_or_none(block / "device/model"),
                rotational=None if rotational is None else rotational == "1",
                scheduler=scheduler[1] if scheduler else None,
            )
        )
    return tuple(known)


def _read_or_none(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
