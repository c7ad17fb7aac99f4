"""Every outcome of the checks of MPI, and of what its ranks use on one machine: mpi, cma, shm, tmpdir."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import sys
from dataclasses import replace

import pytest
from tests.unit.doctor.machines import FOUR_RANKS, only, program, write

from collbench.bindings import mpi as loading
from collbench.doctor import attach_probe, mpi
from collbench.doctor.frame import Machine, ProgramOutput, Severity, execute
from collbench.doctor.mpi import MpiLibrary
from collbench.errors import BackendUnavailable
from collbench.machine.launcher import Launcher
from collbench.units import format_bytes

OPEN_MPI = MpiLibrary("openmpi", "Open MPI 5.0.11", "/lib/libmpi.so.40")
MPICH = MpiLibrary("mpich", "MPICH 5.0.2", None)
HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: today"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701"


def answering(machine: Machine, text: str, name: str = "mpirun") -> Machine:
    path = program(machine, name)

    def answer(argv: tuple[str, ...]) -> ProgramOutput:
        assert argv == (path, "--version")
        return ProgramOutput(0, text)

    return replace(machine, execute=answer)


def test_mpirun_of_the_same_mpi(machine: Machine) -> None:
    finding = mpi.judge_mpi(answering(machine, "mpirun (Open MPI) 5.0.11\n"), OPEN_MPI)
    assert finding.status == "ok"
    assert "/lib/libmpi.so.40" in finding.seen


def test_mpiexec_is_taken_where_there_is_no_mpirun(machine: Machine) -> None:
    assert mpi.judge_mpi(answering(machine, HYDRA, "mpiexec"), MPICH).status == "ok"


def test_mpirun_of_the_other_mpi_fails(machine: Machine) -> None:
    problem = only(mpi.judge_mpi(answering(machine, HYDRA), OPEN_MPI), "fail")
    assert "MPICH 5.0.2" in problem.cause
    assert "worlds of size 1" in problem.effect


def test_mpirun_of_another_version(machine: Machine) -> None:
    problem = only(mpi.judge_mpi(answering(machine, "mpirun (Open MPI) 4.1.4"), OPEN_MPI), "warn")
    assert "4.1.4" in problem.cause
    assert "5.0.11" in problem.cause


def test_versions_of_two_products_are_not_compared(machine: Machine) -> None:
    assert mpi.judge_mpi(answering(machine, INTEL), MPICH).status == "ok"


def test_no_mpirun_names_the_one_beside_python(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write(machine, "venv/bin/mpirun", "")
    monkeypatch.setattr(sys, "executable", str(machine.path("venv/bin/python")))
    problem = only(mpi.judge_mpi(machine, OPEN_MPI), "warn")
    assert problem.fix == f"export PATH={machine.path('venv/bin')}:$PATH"


def test_no_mpirun_anywhere(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(machine.path("venv/bin/python")))
    assert "pip install" in only(mpi.judge_mpi(machine, OPEN_MPI), "warn").fix


def test_an_mpirun_that_says_nothing_known(machine: Machine) -> None:
    assert "wrapper 1.0" in only(mpi.judge_mpi(answering(machine, "wrapper 1.0\nmore"), OPEN_MPI), "unknown").cause


def test_an_mpirun_that_hangs(machine: Machine) -> None:
    def hang(argv: tuple[str, ...]) -> ProgramOutput:
        raise TimeoutError("gave no answer within 10 s")

    program(machine, "mpirun")
    assert "no answer" in only(mpi.judge_mpi(replace(machine, execute=hang), OPEN_MPI), "warn").cause


def test_started_by_a_foreign_launcher_fails_whatever_is_on_path(machine: Machine) -> None:
    started = replace(answering(machine, "mpirun (Open MPI) 5.0.11"), launcher=Launcher("mpich", 0, 2))
    problem = only(mpi.judge_mpi(started, replace(OPEN_MPI, foreign="started by MPICH's mpiexec")), "fail")
    assert problem.cause == "started by MPICH's mpiexec"


def test_started_by_the_right_launcher_needs_none_on_path(machine: Machine) -> None:
    finding = mpi.judge_mpi(replace(machine, launcher=FOUR_RANKS), OPEN_MPI)
    assert finding.status == "ok"
    assert "started by Open MPI's mpirun" in finding.seen


def test_root_must_tell_open_mpi(machine: Machine) -> None:
    root = replace(answering(machine, "mpirun (Open MPI) 5.0.11"), user=0)
    problem = only(mpi.judge_mpi(root, OPEN_MPI), "warn")
    assert "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in problem.fix
    half_told = {**root.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    only(mpi.judge_mpi(replace(root, environ=half_told), OPEN_MPI), "warn")
    told = {**half_told, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert mpi.judge_mpi(replace(root, environ=told), OPEN_MPI).status == "ok"
    assert mpi.judge_mpi(replace(answering(machine, HYDRA), user=0), MPICH).status == "ok"


@pytest.mark.parametrize(("torch", "status"), [(None, "fail"), (object(), "warn")])
def test_no_mpi_library_fails_unless_there_is_torch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, torch: object, status: Severity
) -> None:
    def lack(machine: Machine) -> MpiLibrary:
        raise BackendUnavailable(f"mpi4py is not installed; {loading.how_to_install()}")

    monkeypatch.setattr(mpi, "find_library", lack)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: torch)
    problem = only(mpi.mpi(machine), status)
    assert (problem.cause, problem.fix) == ("mpi4py is not installed", loading.how_to_install())


SCOPE = "proc/sys/kernel/yama/ptrace_scope"


def tried(readv: int = 0, kcmp: int | None = 0, opted_readv: int | None = None) -> mpi.Attempts:
    opted = readv if opted_readv is None else opted_readv
    return {"plain": {"readv": readv, "kcmp": kcmp}, "opted": {"readv": opted, "kcmp": kcmp}}


@pytest.mark.parametrize("library", ["openmpi", "mpich", None])
@pytest.mark.parametrize("scope", ["0", None])
def test_attach_allowed(machine: Machine, library: str | None, scope: str | None) -> None:
    if scope is not None:
        write(machine, SCOPE, scope)
    assert mpi.judge_cma(machine, tried(), library).status == "ok"
    assert mpi.judge_cma(machine, tried(kcmp=None), library).status == "ok"


def test_mpich_would_abort(machine: Machine) -> None:
    problem = only(mpi.judge_cma(replace(machine, container="c"), tried(readv=1, kcmp=1), "mpich"), "fail")
    assert "EPERM" in problem.cause
    assert "abort" in problem.effect
    assert "--cap-add SYS_PTRACE" in problem.fix
    assert "MPIR_CVAR_CH4_CMA_ENABLE=0" in problem.fix


def test_mpich_told_to_copy_twice(machine: Machine) -> None:
    told = replace(machine, environ={"MPIR_CVAR_CH4_CMA_ENABLE": "0"})
    problem = only(mpi.judge_cma(told, tried(readv=1), "mpich"), "warn")
    assert problem.fix == "unset MPIR_CVAR_CH4_CMA_ENABLE"


def test_mpich_copies_twice_where_yama_restricts_although_it_could(machine: Machine) -> None:
    write(machine, SCOPE, "1\n")
    problem = only(mpi.judge_cma(machine, tried(readv=1, opted_readv=0), "mpich"), "warn")
    assert "copied twice" in problem.effect
    assert "sysctl kernel.yama.ptrace_scope=0" in problem.fix


def test_open_mpi_opts_in_where_yama_restricts(machine: Machine) -> None:
    write(machine, SCOPE, "1")
    finding = mpi.judge_cma(machine, tried(readv=1, opted_readv=0), "openmpi")
    assert finding.status == "ok"
    assert "opted in: allowed" in finding.seen


def test_open_mpi_copies_twice_where_kcmp_is_refused(machine: Machine) -> None:
    problem = only(mpi.judge_cma(replace(machine, container="c"), tried(kcmp=1), "openmpi"), "warn")
    assert problem.cause.startswith("kcmp refused")
    assert "copied twice" in problem.effect
    assert "--cap-add SYS_PTRACE" in problem.fix


def test_open_mpi_where_yama_forbids(machine: Machine) -> None:
    write(machine, SCOPE, "3")
    assert "sysctl" in only(mpi.judge_cma(machine, tried(readv=1, kcmp=1), "openmpi"), "warn").fix


def test_a_filter_on_a_host(machine: Machine) -> None:
    assert "Seccomp" in only(mpi.judge_cma(machine, tried(readv=1, kcmp=1), "openmpi"), "warn").fix


def test_without_a_library_both_are_warned_of(machine: Machine) -> None:
    finding = mpi.judge_cma(machine, tried(readv=1, kcmp=1), None)
    assert [problem.severity for problem in finding.problems] == ["warn", "warn"]


def test_the_attempt_reads_the_childs_answer(machine: Machine) -> None:
    assert mpi.attempt_attach(
        replace(machine, execute=lambda argv: ProgramOutput(0, json.dumps(tried(readv=38))))
    ) == tried(readv=38)
    with pytest.raises(OSError, match="ended with 1: no ctypes"):
        mpi.attempt_attach(replace(machine, execute=lambda argv: ProgramOutput(1, "no ctypes")))


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
    attempts = mpi.attempt_attach(replace(machine, execute=execute))
    assert set(attempts) == {"plain", "opted"}
    assert isinstance(attempts["opted"]["readv"], int)


MIB = 1 << 20


def test_shm_large_enough(machine: Machine) -> None:
    assert mpi.judge_shm(machine, 1024 * MIB, 1000 * MIB).status == "ok"


def test_shm_of_dockers_default(machine: Machine) -> None:
    problem = only(mpi.judge_shm(replace(machine, container="c"), 64 * MIB, 64 * MIB), "warn")
    assert "4 ranks" in problem.cause
    assert problem.fix.startswith("docker run --shm-size=1g")


def test_shm_too_small_for_the_ranks(machine: Machine) -> None:
    many = replace(machine, container="c", launcher=Launcher("openmpi", 0, 64))
    problem = only(mpi.judge_shm(many, 64 * MIB, 64 * MIB), "fail")
    assert "64 ranks" in problem.cause
    assert "bus error" in problem.effect
    assert problem.fix.startswith("docker run --shm-size=2g")


def test_shm_full_of_what_others_left(machine: Machine) -> None:
    problem = only(mpi.judge_shm(machine, 1024 * MIB, 10 * MIB), "fail")
    assert "4 ranks" in problem.cause
    assert "mount -o remount" in problem.fix
    assert "ls -l /dev/shm" in problem.fix


def in_tmpdir(machine: Machine, name: str) -> Machine:
    return replace(machine, environ={**machine.environ, "TMPDIR": name})


def test_tmpdir(machine: Machine) -> None:
    machine.path("scratch").mkdir()
    assert mpi.tmpdir(in_tmpdir(machine, "/scratch")).status == "ok"
    assert "is not a folder" in only(mpi.tmpdir(in_tmpdir(machine, "/nowhere")), "warn").cause


def test_tmpdir_unset_is_tmp(machine: Machine) -> None:
    machine.path("tmp").mkdir()
    assert mpi.tmpdir(replace(machine, environ={})).seen.split(",")[0] == "/tmp"  # noqa: S108


def test_tmpdir_not_writable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("scratch").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write to /scratch" in only(mpi.tmpdir(in_tmpdir(machine, "/scratch")), "fail").cause


def test_tmpdir_full() -> None:
    assert "only 16.00 KiB free in /scratch" in only(mpi.judge_tmpdir("/scratch", 16 << 10), "fail").cause
    assert mpi.judge_tmpdir("/scratch", 256 << 10).status == "ok"


def test_shm_missing(machine: Machine) -> None:
    assert "mkdir -p /dev/shm" in only(mpi.shm(machine), "fail").fix


def test_shm_not_writable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "may not write" in only(mpi.shm(machine), "fail").cause


def test_shm_is_measured(machine: Machine) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    space = os.statvfs(machine.path("dev/shm"))
    assert mpi.shm(machine).seen.startswith(format_bytes(space.f_blocks * space.f_frsize))
