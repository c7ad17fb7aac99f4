"""What confines this process, read from the kernel: namespaces, /dev/shm, limits, capabilities, cgroup."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from collbench.machine import cgroup
from collbench.schema.record import Confinement
from collbench.schema.samples import ALL_RANKS_LIMIT

#: Of a large world so many ranks of a confinement are named.
FIRST_RANKS = 5

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


def confinement() -> Confinement:
    """Of this process; `ranks` is empty."""
    import resource  # Unix has it

    status = _status()
    bounding = status.get("CapBnd", "0")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Confinement(
        ranks=(),
        namespaces={name: number for name in _NAMESPACES if (number := _namespace(name)) is not None},
        shm=_size("/dev/shm"),  # noqa: S108 - its size, not a file in it
        memlock=None if soft == resource.RLIM_INFINITY else soft,
        capabilities=capabilities(int(bounding, 16)),
        seccomp=status.get("Seccomp", "0") == "2",
        no_new_privileges=status.get("NoNewPrivs", "0") == "1",
        cpu_quota=cgroup.cpu_quota(),
        memory_limit=cgroup.memory_limit(),
        speculation={name: value for name, value in status.items() if name.lower().startswith("specul")},
        cpu_weight=cgroup.cpu_weight(),
        priority=priority(),
    )


#: Number of the system call ioprio_get, by machine.
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31}

_SCHEDULERS = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr", os.SCHED_BATCH: "batch",
               os.SCHED_IDLE: "idle", 6: "deadline"}  # fmt: skip
_IO_CLASSES = {1: "realtime", 2: "best-effort", 3: "idle"}


def priority() -> str:
    """Niceness, scheduling policy and I/O class of this process: `nice 0, other`, `nice 0, fifo 50, io idle`.

    The I/O class is named where somebody set one that does not follow from the niceness (ioprio_set(2)).
    """
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
    own, many = _own_namespaces(by_rank, machines), len(by_rank) > ALL_RANKS_LIMIT
    members: dict[tuple[bytes, tuple[str, ...]], list[int]] = {}
    for rank, (confinement, machine) in enumerate(zip(by_rank, machines, strict=True)):
        apart = tuple(name for name in confinement.namespaces if (machine, name) in own)
        told = msgspec.structs.replace(confinement, namespaces={}) if many else confinement
        members.setdefault((msgspec.json.encode(told, order="sorted"), apart), []).append(rank)
    return tuple(_of(ranks, by_rank, apart) for (_, apart), ranks in members.items())


def _own_namespaces(by_rank: Sequence[Confinement], machines: Sequence[str]) -> set[tuple[str, str]]:
    """(machine, name) of the namespaces of which the ranks of the machine have several."""
    first: dict[tuple[str, str], int] = {}
    return {
        place
        for confinement, machine in zip(by_rank, machines, strict=True)
        for name, number in confinement.namespaces.items()
        if first.setdefault(place := (machine, name), number) != number
    }


def _of(ranks: list[int], by_rank: Sequence[Confinement], own: tuple[str, ...]) -> Confinement:
    """The confinement that these ranks have in common."""
    first, many = by_rank[ranks[0]], len(by_rank) > ALL_RANKS_LIMIT
    common = set(first.namespaces.items()).intersection(*(by_rank[rank].namespaces.items() for rank in ranks[1:]))
    return msgspec.structs.replace(
        first,
        ranks=tuple(ranks[:FIRST_RANKS] if many else ranks),
        count=len(ranks) if many else None,
        namespaces={name: number for name, number in first.namespaces.items() if (name, number) in common},
        own=own,
    )


def _status() -> dict[str, str]:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _namespace(name: str) -> int | None:
    try:
        return Path(f"/proc/self/ns/{name}").stat().st_ino
    except OSError:
        return None


def _size(folder: str) -> int | None:
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_blocks * space.f_frsize
