"""Every outcome of the checks of MPI, and of what its ranks and programs use on one machine."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.doctor.machines import FOUR_RANKS, Outcomes, hanging, having, only, printed, program

from collbench.bindings import mpi as loading
from collbench.doctor import Finding, Machine, ProgramOutput, Severity, execute, mpi
from collbench.doctor.mpi import MpiLibrary, judge_cma, judge_mpi, judge_shm, judge_tmpdir
from collbench.errors import BackendUnavailable
from collbench.machine import attach_probe
from collbench.machine.launcher import Launcher
from collbench.units import format_bytes

OPEN_MPI = MpiLibrary("openmpi", "Open MPI 5.0.11", "/lib/libmpi.so.40")
FOREIGN = MpiLibrary("openmpi", "Open MPI 5.0.11", "/lib/libmpi.so.40", "started by MPICH's mpiexec")
MPICH = MpiLibrary("mpich", "MPICH 5.0.2", None)
HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: today"
INTEL_MPI = MpiLibrary("intelmpi", "Intel MPI 2021.13", None)
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701"
OURS = "mpirun (Open MPI) 5.0.11\n"


def launching(machine: Machine, version: str, name: str = "mpirun") -> Machine:
    """The machine with an mpirun that prints this version."""
    path = program(machine, name)

    def answer(argv: tuple[str, ...]) -> ProgramOutput:
        assert argv == (path, "--version")
        return ProgramOutput(0, version)

    return having(machine, execute=answer)


def hanging_mpirun(machine: Machine) -> Machine:
    program(machine, "mpirun")
    return having(machine, execute=hanging)


def as_root(machine: Machine, version: str, **told: str) -> Machine:
    return having(launching(machine, version), user=0, environ={**machine.environ, **told})


ROOT, CONFIRM = {"OMPI_ALLOW_RUN_AS_ROOT": "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

LAUNCHERS: Outcomes = {
    "mpirun of the same MPI": ("ok", lambda m: judge_mpi(launching(m, OURS), OPEN_MPI)),
    "mpiexec where there is no mpirun": ("ok", lambda m: judge_mpi(launching(m, HYDRA, "mpiexec"), MPICH)),
    "mpirun of another MPI": ("fail", lambda m: judge_mpi(launching(m, HYDRA), OPEN_MPI)),
    "mpirun of another version": ("warn", lambda m: judge_mpi(launching(m, "mpirun (Open MPI) 4.1.4"), OPEN_MPI)),
    "mpirun of a library derived from ours": ("ok", lambda m: judge_mpi(launching(m, INTEL), MPICH)),
    "Intel's mpirun and library": ("ok", lambda m: judge_mpi(launching(m, INTEL), INTEL_MPI)),
    "mpirun beside Python": ("warn", lambda m: judge_mpi(having(m, {"venv/bin/mpirun": ""}), OPEN_MPI)),
    "mpirun nowhere": ("warn", lambda m: judge_mpi(m, OPEN_MPI)),
    "mpirun of nobody": ("unknown", lambda m: judge_mpi(launching(m, "wrapper 1.0\nmore"), OPEN_MPI)),
    "mpirun hangs": ("warn", lambda m: judge_mpi(hanging_mpirun(m), OPEN_MPI)),
    "foreign launcher": (
        "fail", lambda m: judge_mpi(having(launching(m, OURS), launcher=Launcher("mpich", 0, 2)), FOREIGN)),
    "right launcher, none on PATH": ("ok", lambda m: judge_mpi(having(m, launcher=FOUR_RANKS), OPEN_MPI)),
    "root": ("warn", lambda m: judge_mpi(as_root(m, OURS), OPEN_MPI)),
    "root with one variable": ("warn", lambda m: judge_mpi(as_root(m, OURS, **ROOT), OPEN_MPI)),
    "root with both variables": ("ok", lambda m: judge_mpi(as_root(m, OURS, **ROOT, **CONFIRM), OPEN_MPI)),
    "root with MPICH": ("ok", lambda m: judge_mpi(as_root(m, HYDRA), MPICH)),
}  # fmt: skip


def tried(readv: int = 0, kcmp: int | None = 0, opted_readv: int | None = None) -> mpi.Attempts:
    opted = readv if opted_readv is None else opted_readv
    return {"plain": {"readv": readv, "kcmp": kcmp}, "opted": {"readv": opted, "kcmp": kcmp}}


def attached(
    library: str | None, attempts: mpi.Attempts, scope: str | None = None, container: str | None = None, **environ: str
) -> Callable[[Machine], Finding]:
    """What is found where Yama's ptrace_scope is this."""
    files = {} if scope is None else {"proc/sys/kernel/yama/ptrace_scope": f"{scope}\n"}
    return lambda m: judge_cma(having(m, files, container=container, environ=environ), attempts, library)


ATTACHING: Outcomes = {
    **{
        f"{library} may attach, ptrace_scope {scope}, kcmp {kcmp}": ("ok", attached(library, tried(kcmp=kcmp), scope))
        for library in ("openmpi", "mpich", None) for scope in ("0", None) for kcmp in (0, None)
    },
    "MPICH would abort": ("fail", attached("mpich", tried(1, 1), container="c")),
    "MPICH told to copy twice": ("warn", attached("mpich", tried(1), MPIR_CVAR_CH4_CMA_ENABLE="0")),
    "MPICH where Yama restricts": ("warn", attached("mpich", tried(1, opted_readv=0), "1")),
    "Open MPI where Yama restricts": ("ok", attached("openmpi", tried(1, opted_readv=0), "1")),
    "Open MPI without kcmp": ("warn", attached("openmpi", tried(kcmp=1), container="c")),
    "Open MPI where Yama forbids": ("warn", attached("openmpi", tried(1, 1), "3")),
    "Open MPI behind a filter on a host": ("warn", attached("openmpi", tried(1, 1))),
    "no library": ("warn warn", attached(None, tried(1, 1))),
}  # fmt: skip

MIB = 1 << 20


def in_tmpdir(machine: Machine, name: str, *folders: str) -> Finding:
    for folder in folders:
        machine.path(folder).mkdir(parents=True)
    return mpi.tmpdir(having(machine, environ={"TMPDIR": name} if name else {}))


def unwritable(find: Callable[[], Finding]) -> Finding:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        return find()


def unwritable_shm(machine: Machine, **fields: Any) -> Finding:
    machine.path("dev/shm").mkdir(parents=True)
    return unwritable(lambda: mpi.shm(having(machine, **fields)))


FOLDERS: Outcomes = {
    "shm is large": ("ok", lambda m: judge_shm(m, 1024 * MIB, 1000 * MIB)),
    "shm of Docker": ("warn", lambda m: judge_shm(having(m, container="c"), 64 * MIB, 64 * MIB)),
    "shm of Docker and 64 ranks": ("fail", lambda m: judge_shm(
        having(m, container="c", launcher=Launcher("openmpi", 0, 64)), 64 * MIB, 64 * MIB)),
    "shm filled by others": ("fail", lambda m: judge_shm(m, 1024 * MIB, 10 * MIB)),
    "no shm": ("fail", mpi.shm),
    "shm not writable": ("fail", unwritable_shm),
    "shm not writable in a container": ("fail", lambda m: unwritable_shm(m, container="c")),
    "tmpdir is no folder": ("warn", lambda m: in_tmpdir(m, "/nowhere")),
    "tmpdir not writable": ("fail", lambda m: unwritable(lambda: in_tmpdir(m, "/scratch", "scratch"))),
    "tmpdir almost full": ("fail", lambda m: judge_tmpdir("/scratch", 16 << 10)),
    "tmpdir with enough": ("ok", lambda m: judge_tmpdir("/scratch", 256 << 10)),
}  # fmt: skip

DISKS = {"vda": "254:0", "vdb": "254:16"}


def stored(machine: Machine, engine: bool = True, **devices: str) -> Finding:
    """Mounts below `/`, by path with `_` for `/`: the device of each, or a kind without one."""
    lines = []
    for name, device in devices.items():
        numbers, kind = (DISKS[device], "ext4") if device in DISKS else ("0:25", device)
        lines.append(f"27 1 {numbers} / /{name.strip('_').replace('_', '/')} rw,relatime shared:1 - {kind} none rw")
    having(machine, {"proc/self/mountinfo": "\n".join(lines) + "\n"})
    for device, numbers in DISKS.items():
        queue = f"sys/block/{device}/queue"
        having(machine, {f"{queue}/rotational": "0", f"{queue}/scheduler": "[none] mq-deadline"})
        machine.path(f"sys/block/{device}/device").mkdir()
        link = machine.path(f"sys/dev/block/{numbers}")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(machine.path(f"sys/block/{device}"))
    if engine:
        machine.path("var/lib/docker").mkdir(parents=True)
    return mpi.storage(machine, lambda: Path("/work"))


STORAGE: Outcomes = {
    "files on one device": ("ok", lambda m: stored(m, _="vda", dev_shm="tmpfs", work="vdb")),
    "engine on another device": ("warn", lambda m: stored(m, _="vda", var_lib_docker="vdb")),
    "no engine": ("ok", lambda m: stored(m, engine=False, _="vda")),
    "device of the host unknown": ("ok", lambda m: stored(m, _="overlay", var_lib_docker="vdb")),
    "no mounts known": ("ok", lambda m: mpi.storage(m, lambda: Path("/work"))),
}


def test_outcomes(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    golden("doctor-mpi.txt", printed({**LAUNCHERS, **ATTACHING, **FOLDERS, **STORAGE}, tmp_path))


@pytest.mark.parametrize(("torch", "status"), [(None, "fail"), (object(), "warn")])
def test_no_mpi_library_fails_unless_there_is_torch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, torch: object, status: Severity
) -> None:
    def lack(machine: Machine) -> MpiLibrary:
        raise BackendUnavailable(f"mpi4py is not installed; {loading.how_to_install()}")

    monkeypatch.setattr(mpi, "find_library", lack)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: torch)
    problem = only(mpi.mpi(machine), status)
    assert problem.cause.startswith("mpi4py ") and problem.fix == loading.how_to_install()


def test_the_attempt_reads_the_childs_answer(machine: Machine) -> None:
    said = having(machine, execute=lambda argv: ProgramOutput(0, json.dumps(tried(readv=38))))
    assert mpi.attempt_attach(said) == tried(readv=38)
    with pytest.raises(OSError, match="1: no ctypes"):
        mpi.attempt_attach(having(machine, execute=lambda argv: ProgramOutput(1, "no ctypes")))


#: Runs the probe as an ordinary user, who may not be able to read Python's own files, in a process that the kernel
#: lets nobody else read: not dumpable.
HIDDEN = """
import ctypes, os, runpy, sys
probe = runpy.run_path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
probe["main"]()
"""


def test_the_attempt_sees_what_the_kernel_refuses() -> None:
    output = execute((sys.executable, "-c", HIDDEN, attach_probe.__file__))
    assert output.code == 0, output.text
    assert json.loads(output.text)["plain"]["readv"] in (errno.EPERM, errno.ENOSYS)


def test_the_attempt_works_here(machine: Machine) -> None:
    attempts = mpi.attempt_attach(having(machine, execute=execute))
    assert set(attempts) == {"plain", "opted"}
    assert isinstance(attempts["opted"]["readv"], int)


@pytest.mark.parametrize(("name", "folder"), [("/scratch", "/scratch"), ("", "/tmp")])  # noqa: S108
def test_a_tmpdir_that_is_there(machine: Machine, name: str, folder: str) -> None:
    finding = in_tmpdir(machine, name, folder.lstrip("/"))
    assert (finding.status, finding.observed.split(",")[0]) == ("ok", folder)


def test_shm_is_measured(machine: Machine) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    space = os.statvfs(machine.path("dev/shm"))
    assert mpi.shm(machine).observed.startswith(format_bytes(space.f_blocks * space.f_frsize))


def test_storage_of_the_current_folder(machine: Machine) -> None:
    finding = mpi.storage(machine)
    assert finding.status == "ok" and str(Path.cwd()) in finding.observed
