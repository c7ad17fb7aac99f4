"""Check `shm`: /dev/shm, through which ranks on one machine communicate, exists, is writable and large enough."""

from __future__ import annotations

import os

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, allowed
from collbench.units import format_bytes

#: What Open MPI 5 asks for, for each rank (bytes); MPICH 5 takes about a third of it (measured).
PER_RANK = 16 << 20

#: Docker's default size (bytes).
DOCKER_DEFAULT = 64 << 20

_TOO_SMALL = (
    "Open MPI prints one warning and uses another transport, which is then what is measured; "
    "MPICH dies of a bus error; NCCL fails to start"
)
_UNUSABLE = (
    "Open MPI uses another transport without a message: 8 bytes in 60 us and more instead of less than 1 us; "
    "MPICH aborts in MPI_Init"
)


def judge(machine: Machine, total: int, free: int) -> Finding:
    """`total` and `free` bytes, against the need of the ranks: those started, or one for each usable core."""
    seen = f"{format_bytes(total)}, {format_bytes(free)} free"
    ranks = machine.ranks or len(allowed(machine))
    needed = ranks * PER_RANK
    # Twice what is needed, in whole GiB.
    size = f"{max(1, -(-2 * needed >> 30))}g"
    if machine.container is not None:
        fix = f"docker run --shm-size={size} ... (in a shared IPC namespace: of the container that owns it)"
    else:
        fix = f"sudo mount -o remount,size={size} /dev/shm"
    if free < needed:
        cause = f"{format_bytes(free)} free for {ranks} ranks, which may take {format_bytes(needed)}"
        fix += "; ls -l /dev/shm shows what killed jobs left there" if total >= needed else ""
        return found(seen, Problem("fail", cause, _TOO_SMALL, fix))
    if total <= DOCKER_DEFAULT:
        cause = f"{format_bytes(total)} in all: Docker's default, enough for {total // PER_RANK} ranks"
        return found(seen, Problem("warn", cause, f"with more ranks: {_TOO_SMALL}", fix))
    return found(seen)


def run(machine: Machine) -> Finding:
    folder = machine.path("dev/shm")
    if not folder.is_dir():
        fix = "sudo mkdir -p /dev/shm && sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
        return found("not there", Problem("fail", f"{folder} does not exist", _UNUSABLE, fix))
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = "docker run --tmpfs /dev/shm ..." if machine.container is not None else "sudo chmod 1777 /dev/shm"
        return found("not writable", Problem("fail", f"this user may not write to {folder}", _UNUSABLE, fix))
    space = os.statvfs(folder)
    return judge(machine, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)
