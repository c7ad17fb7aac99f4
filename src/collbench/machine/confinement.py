"""What confines this process, read from the kernel: namespaces, /dev/shm, limits, capabilities, cgroup."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import msgspec

from collbench.machine import cgroup
from collbench.schema.record import Confinement

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
    )


def capabilities(mask: int) -> tuple[str, ...]:
    """Names of the bits, without CAP_; `all` where none is missing."""
    names = tuple(name for bit, name in enumerate(_CAPABILITIES) if mask >> bit & 1)
    return ("all",) if names == _CAPABILITIES else names


def distinct(by_rank: tuple[Confinement, ...]) -> tuple[Confinement, ...]:
    """Each different one, with the ranks that have it."""
    different: list[Confinement] = []
    for confinement in by_rank:
        if confinement not in different:
            different.append(confinement)
    return tuple(
        msgspec.structs.replace(
            confinement, ranks=tuple(rank for rank, other in enumerate(by_rank) if other == confinement)
        )
        for confinement in different
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
