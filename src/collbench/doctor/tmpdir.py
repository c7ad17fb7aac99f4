"""Check `tmpdir`: the temporary folder, where mpirun keeps its session and ranks agree on which prints an error."""

from __future__ import annotations

import os
from pathlib import Path

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.units import format_bytes

#: Open MPI 5 starts with 256 KiB and not with 16 (measured, 2 ranks); bytes.
NEEDED = 256 << 10

_MPIRUN = "Open MPI's mpirun does not start: it has no place for its session"
_MESSAGES = "when several ranks fail, each prints its own message; Open MPI's mpirun starts only if it may create it"


def judge(folder: str, free: int) -> Finding:
    seen = f"{folder}, {format_bytes(free)} free"
    if free >= NEEDED:
        return found(seen)
    cause = f"only {format_bytes(free)} free in {folder}"
    return found(seen, Problem("fail", cause, _MPIRUN, f"free some space in {folder}, or export TMPDIR=/tmp"))


def run(machine: Machine) -> Finding:
    name = machine.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    folder = machine.path(name.lstrip("/")) if Path(name).is_absolute() else Path(name)
    if not folder.is_dir():
        problem = Problem("warn", f"{name} is not a folder", _MESSAGES, f"mkdir -p {name}, or export TMPDIR=/tmp")
        return found(f"{name} is not there", problem)
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = "mkdir -p $HOME/tmp && export TMPDIR=$HOME/tmp"
        return found(f"{name} is not writable", Problem("fail", f"this user may not write to {name}", _MPIRUN, fix))
    space = os.statvfs(folder)
    return judge(name, space.f_bavail * space.f_frsize)
