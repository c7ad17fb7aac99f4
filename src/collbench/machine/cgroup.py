"""What the control groups of this process allow: processor time and memory, in either hierarchy of the kernel.

A limit may sit on any group above the process, so all of them are asked. In a container only the groups that its
namespace shows can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MOUNT = "sys/fs/cgroup"
#: The first hierarchy writes `no limit` as a number near 2**63.
_UNLIMITED = 1 << 60


def _groups(root: Path, controller: str) -> Iterator[tuple[bool, Path]]:
    """(second hierarchy?, folder) of every group that the process is in for `controller`, inner ones first."""
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
    """Cores' worth of time that the tightest group grants; None without a limit."""
    limits = []
    for unified, folder in _groups(root, "cpu"):
        if unified:
            share = (_read(folder / "cpu.max") or "").split()
        else:
            share = [_read(folder / "cpu.cfs_quota_us") or "", _read(folder / "cpu.cfs_period_us") or ""]
        if len(share) == 2 and all(word.isdecimal() for word in share):
            limits.append(int(share[0]) / int(share[1]))
    return min(limits, default=None)


def throttled_seconds(root: Path = Path("/")) -> dict[str, float]:
    """By group (its folder): CPU seconds in which its quota stopped it, since it exists."""
    found = {}
    for unified, folder in _groups(root, "cpu"):
        name, unit = ("throttled_usec", 1e-6) if unified else ("throttled_time", 1e-9)
        for line in (_read(folder / "cpu.stat") or "").splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.isdecimal():
                found[str(folder)] = int(value) * unit
    return found


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of every group that has a limit."""
    for unified, folder in _groups(root, "memory"):
        names = ("memory.max", "memory.current") if unified else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (_read(folder / name) or "" for name in names)
        if limit.isdecimal() and int(limit) < _UNLIMITED:
            yield int(limit), int(used) if used.isdecimal() else 0


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the tightest group allows; None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that can still be taken before the tightest group's limit is reached; None without a limit."""
    return min((max(limit - used, 0) for limit, used in _memory(root)), default=None)
