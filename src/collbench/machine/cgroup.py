"""What confines this process, read from the kernel: control groups, namespaces, capabilities, priority; and mounts.

Every group above the process may have a limit, so all of them are read. In a container only those can be read that its
namespace shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from collbench.schema.manifest import Disk
from collbench.schema.record import Confinement
from collbench.schema.samples import ALL_RANKS_LIMIT

_MOUNT = "sys/fs/cgroup"
_UNLIMITED = 1 << 60  #: Version 1 writes `no limit` as a number near 2**63.


def text_of(path: Path | str) -> str | None:
    """A file's text without surrounding blanks; None where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _groups(root: Path, controller: str) -> Iterator[tuple[bool, Path]]:
    """(is version 2, folder) of every group that the process is in for `controller`, inner ones first."""
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        inner = PurePosixPath(group.lstrip("/"))
        for mount in dict.fromkeys(("", "unified") if not controllers else (controllers, controller)):
            for level in (inner, *inner.parents):
                yield not controllers, root / _MOUNT / mount / level


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processor time in cores that the smallest quota allows; None without a limit."""
    limits = []
    for unified, folder in _groups(root, "cpu"):
        names = ("cpu.max",) if unified else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota = " ".join(text_of(folder / name) or "" for name in names).split()
        if len(quota) == 2 and all(word.isdecimal() for word in quota):
            limits.append(int(quota[0]) / int(quota[1]))
    return min(limits, default=None)


def throttled_seconds(root: Path = Path("/")) -> dict[str, float]:
    """By folder of the group: CPU seconds for which its quota has throttled it, since it was made."""
    seconds = {}
    for unified, folder in _groups(root, "cpu"):
        name, unit = ("throttled_usec", 1e-6) if unified else ("throttled_time", 1e-9)
        if match := re.search(rf"^{name} (\d+)$", text_of(folder / "cpu.stat") or "", re.MULTILINE):
            seconds[str(folder)] = int(match[1]) * unit
    return seconds


def cpu_weight(root: Path = Path("/")) -> int | None:
    """The weight of the innermost group against its neighbours: `cpu.shares` (version 1) or `cpu.weight` (2)."""
    weights = (text_of(folder / ("cpu.weight" if unified else "cpu.shares")) or ""
               for unified, folder in _groups(root, "cpu"))  # fmt: skip
    return next((int(weight) for weight in weights if weight.isdecimal()), None)


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of every group that has a limit."""
    for unified, folder in _groups(root, "memory"):
        names = ("memory.max", "memory.current") if unified else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (text_of(folder / name) or "" for name in names)
        if limit.isdecimal() and int(limit) < _UNLIMITED:
            yield int(limit), int(used) if used.isdecimal() else 0


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the smallest limit allows; None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that can be allocated before any group's limit is reached; None without a limit."""
    return min((max(limit - used, 0) for limit, used in _memory(root)), default=None)


_ESCAPE = re.compile(r"\\([0-7]{3})")  #: How /proc/self/mountinfo writes blanks and backslashes (proc(5)).


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
    mount = Mount("unknown")
    for line in (text_of(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if (path == Path(point) or Path(point) in path.parents) and len(point) >= len(mount.point):
            device = ""  # of these numbers (`254:0`); a file system may have none
            with contextlib.suppress(OSError):
                device = (root / "sys/dev/block" / fields[2]).resolve(strict=True).name
            mount = Mount(kind[0], device, point)
    return mount


def disks(root: Path = Path("/")) -> tuple[Disk, ...]:
    """The block devices that have hardware behind them, by name."""
    listed = []
    for device in sorted((root / "sys/block").glob("*/device")):  # which loop devices and RAM disks have not
        block = device.parent
        rotational = text_of(block / "queue/rotational")
        scheduler = re.search(r"\[(.+)\]", text_of(block / "queue/scheduler") or "")
        listed.append(Disk(
            name=block.name, model=text_of(device / "model") or None,
            rotational=rotational == "1" if rotational else None, scheduler=scheduler[1] if scheduler else None,
        ))  # fmt: skip
    return tuple(listed)


FIRST_RANKS = 5  #: Of a large world so many ranks of a confinement are named.
_NAMESPACES = ("ipc", "mnt", "net", "pid", "time", "user", "uts")

#: By bit, as linux/capability.h numbers them.
_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip


def status_of(text: str | None) -> dict[str, str]:
    """Values by name in the text of /proc/PROCESS/status."""
    lines = (line.partition(":") for line in (text or "").splitlines())
    return {name: value.strip() for name, _, value in lines}


def confinement() -> Confinement:
    """Of this process; `ranks` is empty."""
    import resource  # Unix has it

    status, namespaces = status_of(text_of("/proc/self/status")), dict[str, int]()
    shm: int | None = None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for name in _NAMESPACES:
        with contextlib.suppress(OSError):
            namespaces[name] = Path(f"/proc/self/ns/{name}").stat().st_ino
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")  # noqa: S108 - its size, not a file in it
        shm = space.f_blocks * space.f_frsize
    return Confinement(
        ranks=(), namespaces=namespaces, shm=shm, memlock=None if soft == resource.RLIM_INFINITY else soft,
        capabilities=capabilities(int(status.get("CapBnd", "0"), 16)), seccomp=status.get("Seccomp", "0") == "2",
        no_new_privileges=status.get("NoNewPrivs", "0") == "1", cpu_quota=cpu_quota(), memory_limit=memory_limit(),
        speculation={name: value for name, value in status.items() if name.lower().startswith("specul")},
        cpu_weight=cpu_weight(), priority=priority(),
    )  # fmt: skip


_IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31}  #: Number of the system call ioprio_get, by machine.
_SCHEDULERS = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr", os.SCHED_BATCH: "batch",
               os.SCHED_IDLE: "idle", 6: "deadline"}  # fmt: skip
_IO_CLASSES = {1: "realtime", 2: "best-effort", 3: "idle"}


def priority() -> str:
    """`nice 0, fifo 50, io idle`; the I/O class where it does not follow from the niceness (ioprio_set(2))."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    number, realtime = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    policy = _SCHEDULERS.get(number & ~os.SCHED_RESET_ON_FORK, str(number))
    words = [f"nice {nice}", f"{policy} {realtime}" if realtime else policy]
    call = _IOPRIO_GET.get(platform.machine())
    value = ctypes.CDLL(None).syscall(call, 1, 0) if call is not None else 0
    io, level = value >> 13, value & 0x1FFF
    if io in _IO_CLASSES and (io, level) != (2, (nice + 20) // 5):
        words.append(f"io {_IO_CLASSES[io]}" + (f" {level}" if io != 3 else ""))
    return ", ".join(words)


def capabilities(mask: int) -> tuple[str, ...]:
    """Names of the bits, without CAP_; `all` where none is missing."""
    names = tuple(name for bit, name in enumerate(_CAPABILITIES) if mask >> bit & 1)
    return ("all",) if names == _CAPABILITIES else names


def distinct(by_rank: Sequence[Confinement], machines: Sequence[str]) -> tuple[Confinement, ...]:
    """Each different one, with the ranks that have it. `machines` are the identities of the machine of each rank.

    In a large world namespaces differ where ranks have them for their own or share them with all of their machine, not
    by their numbers: a container for each rank makes one confinement, not as many as ranks.
    """
    private, many = _own_namespaces(by_rank, machines), len(by_rank) > ALL_RANKS_LIMIT
    members: dict[tuple[bytes, tuple[str, ...]], list[int]] = {}
    for rank, (confinement, machine) in enumerate(zip(by_rank, machines, strict=True)):
        apart = tuple(name for name in confinement.namespaces if (machine, name) in private)
        unnumbered = msgspec.structs.replace(confinement, namespaces={}) if many else confinement
        members.setdefault((msgspec.json.encode(unnumbered, order="sorted"), apart), []).append(rank)
    differing = []
    for (_, apart), ranks in members.items():
        first, *others = (by_rank[rank].namespaces for rank in ranks)
        common = {name: number for name, number in first.items() if all(other.get(name) == number for other in others)}
        named, count = (ranks[:FIRST_RANKS], len(ranks)) if many else (ranks, None)
        differing.append(
            msgspec.structs.replace(by_rank[ranks[0]], ranks=tuple(named), count=count, namespaces=common, own=apart)
        )
    return tuple(differing)


def _own_namespaces(by_rank: Sequence[Confinement], machines: Sequence[str]) -> set[tuple[str, str]]:
    """(machine, name) of the namespaces of which the ranks of the machine have several."""
    first: dict[tuple[str, str], int] = {}
    return {place for confinement, machine in zip(by_rank, machines, strict=True)
            for name, number in confinement.namespaces.items()
            if first.setdefault(place := (machine, name), number) != number}  # fmt: skip
