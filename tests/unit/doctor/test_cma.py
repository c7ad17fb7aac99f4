"""Every outcome of the check cma: whether a rank may read the memory of another."""

from __future__ import annotations

import errno
import json
import sys
from dataclasses import replace

import pytest
from tests.unit.doctor.machines import only, write

from collbench.doctor import attach_probe, mpi
from collbench.doctor.frame import Machine, Output, execute

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
    assert mpi.attempt_attach(replace(machine, execute=lambda argv: Output(0, json.dumps(tried(readv=38))))) == tried(
        readv=38
    )
    with pytest.raises(OSError, match="ended with 1: no ctypes"):
        mpi.attempt_attach(replace(machine, execute=lambda argv: Output(1, "no ctypes")))


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
