"""Every outcome of every check, on machines made of a directory; and the command, on the machine of the tests."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.processes import LIMIT, wait_for

from collbench import doctor
from collbench.cli import doctor as cli_doctor
from collbench.doctor import clocks, cma, compiler, contention, cores, memory, mpi, shm, tmpdir
from collbench.doctor.mpi import MpiLibrary
from collbench.doctor.parts import attach_probe
from collbench.doctor.parts.finding import Check, Finding, Problem, Severity
from collbench.doctor.parts.machine import Machine, Output, execute, here
from collbench.doctor.parts.processors import launcher_cores
from collbench.errors import BackendUnavailable
from collbench.machine import launcher
from collbench.machine.cgroup import cpu_quota
from collbench.machine.facts import parse_cores
from collbench.machine.launcher import Launcher
from collbench.units import format_bytes

NO_LAUNCHER = Launcher("none")
FOUR_RANKS = Launcher("openmpi", 0, 4, 0)


def no_program(argv: tuple[str, ...]) -> Output:
    raise FileNotFoundError(argv[0])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Four idle cores, no container, no launcher, nothing wrong."""
    made = Machine(tmp_path, {"PATH": str(tmp_path / "bin")}, NO_LAUNCHER, 1000, None, no_program)
    write(made, "sys/devices/system/cpu/online", "0-3")
    write(made, "proc/self/status", "Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t0-7\n")
    write(made, "proc/pressure/cpu", "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=99.00 total=0")
    write(made, "proc/loadavg", "0.50 0.40 0.30 2/103 5335")
    return made


def write(machine: Machine, name: str, text: str) -> None:
    path = machine.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def program(machine: Machine, name: str) -> str:
    write(machine, f"bin/{name}", "#!/bin/sh\n")
    machine.path(f"bin/{name}").chmod(0o755)
    return str(machine.path(f"bin/{name}"))


def only(finding: Finding, severity: str) -> Problem:
    """The one problem, which must say cause, effect and fix."""
    assert [problem.severity for problem in finding.problems] == [severity]
    assert finding.status == severity
    problem = finding.problems[0]
    assert problem.cause and problem.effect and problem.fix
    return problem


# The package ----------------------------------------------------------------------------------------------------------


def test_every_check_is_found_and_named_as_its_file() -> None:
    assert doctor.names() == (
        "clocks", "cma", "compiler", "contention", "cores", "cuda_aware", "gpus", "memory", "mpi", "nccl", "peers",
        "shm", "tmpdir",
    )  # fmt: skip
    for name in doctor.names():
        check = doctor.get(name)
        assert check.name == name
        assert check.summary


def test_every_check_ends_with_a_finding_here() -> None:
    found = dict(doctor.examine(here()))
    assert tuple(found) == doctor.names()
    broken = {name: finding.problems for name, finding in found.items() if "itself failed" in finding.seen}
    assert broken == {}
    for finding in found.values():
        assert all(problem.cause and problem.effect and problem.fix for problem in finding.problems)


def test_a_check_that_raises_is_unknown_and_the_others_go_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(machine: Machine) -> Finding:
        raise PermissionError("not for you")

    monkeypatch.setattr(contention, "CHECK", Check("contention", "falls", fall))
    found = dict(doctor.examine(machine))
    assert tuple(found) == doctor.names()
    assert only(found["contention"], "unknown").cause == "PermissionError: not for you"
    assert found["cores"].status == "ok"


def test_the_worst_problem_is_the_status() -> None:
    unknown, warn, fail = (row.problems[0] for row in (UNKNOWN, WARNED, FAILED))
    assert Finding("").status == "ok"
    assert Finding("", (warn, unknown)).status == "warn"
    assert Finding("", (warn, unknown, fail)).status == "fail"


# The machine ----------------------------------------------------------------------------------------------------------


def test_a_program_answers_with_code_and_both_streams() -> None:
    output = execute((sys.executable, "-c", "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)"))
    assert output.code == 3
    assert "out" in output.text
    assert "err" in output.text


def test_a_program_that_hangs_ends_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    limits = iter((1, 10, 100))  # until it has come to start its child
    while not note.exists() or not note.read_text():
        with pytest.raises(TimeoutError, match="no answer within"):
            execute(("sh", "-c", f"sleep 3600 & echo $! > {note}; wait"), limit=next(limits))
    child = Path("/proc", note.read_text().strip(), "cmdline")
    wait_for(lambda: not child.exists() or b"sleep" not in child.read_bytes())


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, 4), ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2), ({"LOCAL_WORLD_SIZE": "3"}, 3), ({"MPI_LOCALNRANKS": "x"}, 4)],
)
def test_ranks_are_those_of_this_machine(machine: Machine, environ: dict[str, str], expected: int) -> None:
    assert replace(machine, launcher=FOUR_RANKS, environ=environ).ranks == expected


def test_without_a_launcher_there_are_no_ranks(machine: Machine) -> None:
    assert replace(machine, environ={"LOCAL_WORLD_SIZE": "3"}).ranks is None


# mpi ------------------------------------------------------------------------------------------------------------------

OPEN_MPI = MpiLibrary("openmpi", "Open MPI 5.0.11", "/lib/libmpi.so.40")
MPICH = MpiLibrary("mpich", "MPICH 5.0.2", None)
HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: today"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701"


def answering(machine: Machine, text: str, name: str = "mpirun") -> Machine:
    path = program(machine, name)

    def answer(argv: tuple[str, ...]) -> Output:
        assert argv == (path, "--version")
        return Output(0, text)

    return replace(machine, execute=answer)


def test_mpirun_of_the_same_mpi(machine: Machine) -> None:
    finding = mpi.judge(answering(machine, "mpirun (Open MPI) 5.0.11\n"), OPEN_MPI)
    assert finding.status == "ok"
    assert "/lib/libmpi.so.40" in finding.seen


def test_mpiexec_is_taken_where_there_is_no_mpirun(machine: Machine) -> None:
    assert mpi.judge(answering(machine, HYDRA, "mpiexec"), MPICH).status == "ok"


def test_mpirun_of_the_other_mpi_fails(machine: Machine) -> None:
    problem = only(mpi.judge(answering(machine, HYDRA), OPEN_MPI), "fail")
    assert "MPICH 5.0.2" in problem.cause
    assert "worlds of size 1" in problem.effect


def test_mpirun_of_another_version(machine: Machine) -> None:
    problem = only(mpi.judge(answering(machine, "mpirun (Open MPI) 4.1.4"), OPEN_MPI), "warn")
    assert "4.1.4" in problem.cause
    assert "5.0.11" in problem.cause


def test_versions_of_two_products_are_not_compared(machine: Machine) -> None:
    assert mpi.judge(answering(machine, INTEL), MPICH).status == "ok"


def test_no_mpirun_names_the_one_beside_python(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write(machine, "venv/bin/mpirun", "")
    monkeypatch.setattr(sys, "executable", str(machine.path("venv/bin/python")))
    problem = only(mpi.judge(machine, OPEN_MPI), "warn")
    assert problem.fix == f"export PATH={machine.path('venv/bin')}:$PATH"


def test_no_mpirun_anywhere(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(machine.path("venv/bin/python")))
    assert "pip install" in only(mpi.judge(machine, OPEN_MPI), "warn").fix


def test_an_mpirun_that_says_nothing_known(machine: Machine) -> None:
    assert "wrapper 1.0" in only(mpi.judge(answering(machine, "wrapper 1.0\nmore"), OPEN_MPI), "unknown").cause


def test_an_mpirun_that_hangs(machine: Machine) -> None:
    def hang(argv: tuple[str, ...]) -> Output:
        raise TimeoutError("gave no answer within 10 s")

    program(machine, "mpirun")
    assert "no answer" in only(mpi.judge(replace(machine, execute=hang), OPEN_MPI), "warn").cause


def test_started_by_a_foreign_launcher_fails_whatever_is_on_path(machine: Machine) -> None:
    started = replace(answering(machine, "mpirun (Open MPI) 5.0.11"), launcher=Launcher("mpich", 0, 2))
    problem = only(mpi.judge(started, replace(OPEN_MPI, foreign="started by MPICH's mpiexec")), "fail")
    assert problem.cause == "started by MPICH's mpiexec"


def test_started_by_the_right_launcher_needs_none_on_path(machine: Machine) -> None:
    finding = mpi.judge(replace(machine, launcher=FOUR_RANKS), OPEN_MPI)
    assert finding.status == "ok"
    assert "started by Open MPI's mpirun" in finding.seen


def test_root_must_tell_open_mpi(machine: Machine) -> None:
    root = replace(answering(machine, "mpirun (Open MPI) 5.0.11"), user=0)
    problem = only(mpi.judge(root, OPEN_MPI), "warn")
    assert "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in problem.fix
    half_told = {**root.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    only(mpi.judge(replace(root, environ=half_told), OPEN_MPI), "warn")
    told = {**half_told, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert mpi.judge(replace(root, environ=told), OPEN_MPI).status == "ok"
    assert mpi.judge(replace(answering(machine, HYDRA), user=0), MPICH).status == "ok"


@pytest.mark.parametrize(("torch", "status"), [(None, "fail"), (object(), "warn")])
def test_no_mpi_library_fails_unless_there_is_torch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, torch: object, status: Severity
) -> None:
    def lack(machine: Machine) -> MpiLibrary:
        raise BackendUnavailable("mpi4py is not installed")

    monkeypatch.setattr(mpi, "find_library", lack)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: torch)
    problem = only(mpi.run(machine), status)
    assert problem.cause == "mpi4py is not installed"
    assert "pip install" in problem.fix


# cores ----------------------------------------------------------------------------------------------------------------


def ranks(machine: Machine, count: int, mine: str, theirs: str | None = "0-3", kind: str = "openmpi") -> Machine:
    """The machine as rank 0 sees it: a shell between it and its launcher."""
    write(machine, "proc/self/status", f"Name:\tpython\nPPid:\t12\nCpus_allowed_list:\t{mine}\n")
    write(machine, "proc/12/status", f"Name:\tsh\nPPid:\t{11 if theirs else 0}\nCpus_allowed_list:\t{mine}\n")
    write(machine, "proc/11/status", f"Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t{theirs}\n")
    return replace(machine, launcher=Launcher(kind, 0, count))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "cores"), [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_core_lists(text: str, cores: set[int]) -> None:
    assert parse_cores(text) == cores


def test_cores_alone(machine: Machine) -> None:
    finding = cores.run(machine)
    assert finding.status == "ok"
    assert finding.seen == "4 of 4 usable (0-3), no quota; no launcher: one rank"


def test_one_core_alone(machine: Machine) -> None:
    write(machine, "proc/self/status", "PPid:\t0\nCpus_allowed_list:\t2\n")
    assert only(cores.run(machine), "warn").fix == "taskset -cp 0-3 $$"
    assert only(cores.run(replace(machine, container="c")), "warn").fix == "docker run --cpuset-cpus=0-3 ..."
    write(machine, "sys/devices/system/cpu/online", "2")
    assert "taskset" not in only(cores.run(machine), "warn").fix


def test_bound_ranks(machine: Machine) -> None:
    finding = cores.run(ranks(machine, 4, mine="2"))
    assert finding.status == "ok"
    assert finding.seen == "4 ranks on 4 cores (0-3), no quota; rank 0 bound to 2"


def test_bound_to_some_cores_is_bound(machine: Machine) -> None:
    assert cores.run(ranks(machine, 2, mine="0-1")).status == "ok"


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("openmpi", "mpirun --bind-to core"), ("mpich", "mpiexec -bind-to core"), ("torchrun", "mpirun --bind-to core")],
)
def test_unbound_ranks(machine: Machine, kind: str, flag: str) -> None:
    assert flag in only(cores.run(ranks(machine, 2, mine="0-3", kind=kind)), "warn").fix


def test_one_rank_need_not_be_bound(machine: Machine) -> None:
    assert cores.run(ranks(machine, 1, mine="0-3")).status == "ok"


def test_more_ranks_than_cores(machine: Machine) -> None:
    problem = only(cores.run(ranks(machine, 5, mine="0-3")), "warn")
    assert problem.cause == "5 ranks, 4 cores"
    assert "mpirun -n 4" in problem.fix


def test_ranks_share_what_the_launcher_may_use_not_the_machine(machine: Machine) -> None:
    assert only(cores.run(ranks(machine, 3, mine="0", theirs="0-1")), "warn").cause == "3 ranks, 2 cores"


def test_a_launcher_out_of_sight_is_given_every_core(machine: Machine) -> None:
    unseen = ranks(machine, 4, mine="0", theirs=None)
    assert launcher_cores(unseen) is None
    assert cores.run(unseen).status == "ok"


def test_ranks_on_hardware_threads(machine: Machine) -> None:
    for core in range(4):
        write(machine, f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", f"{core % 2},{core % 2 + 2}")
    assert cores.run(ranks(machine, 2, mine="0")).status == "ok"
    problem = only(cores.run(ranks(machine, 3, mine="0")), "warn")
    assert "3 ranks on 2 physical cores" in problem.cause
    assert "mpirun -n 2" in problem.fix


def test_a_quota_below_the_cores(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "0::/a/b")
    write(machine, "sys/fs/cgroup/a/cpu.max", "150000 100000")
    write(machine, "sys/fs/cgroup/a/b/cpu.max", "max 100000")
    problem = only(cores.run(machine), "warn")
    assert "1.5 cores, on a set of 4" in problem.cause
    assert "CPUQuota" in problem.fix
    contained = ranks(replace(machine, container="c"), 2, mine="0")
    problem = only(cores.run(contained), "warn")
    assert "2 ranks" in problem.cause
    assert problem.fix == "docker run --cpuset-cpus=0-3 ... instead of --cpus"


def test_the_tightest_quota_counts(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "0::/a/b")
    write(machine, "sys/fs/cgroup/a/cpu.max", "100000 100000")
    write(machine, "sys/fs/cgroup/a/b/cpu.max", "300000 100000")
    assert cpu_quota(machine.root) == 1.0


def test_a_quota_above_the_cores_is_none(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "0::/")
    write(machine, "sys/fs/cgroup/cpu.max", "400000 100000")
    assert cpu_quota(machine.root) == 4.0
    assert cores.run(machine).status == "ok"


@pytest.mark.parametrize("folder", ["cpu,cpuacct/docker/x", "cpu/docker/x", "cpu"])
def test_a_quota_in_the_old_hierarchy(machine: Machine, folder: str) -> None:
    """The last: inside a container, where the group's own path is not to be seen."""
    write(machine, "proc/self/cgroup", "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/")
    write(machine, f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us", "50000")
    write(machine, f"sys/fs/cgroup/{folder}/cpu.cfs_period_us", "100000")
    assert cpu_quota(machine.root) == 0.5


def test_no_limit_in_the_old_hierarchy(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "4:cpu:/")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert cpu_quota(machine.root) is None


# cma ------------------------------------------------------------------------------------------------------------------

SCOPE = "proc/sys/kernel/yama/ptrace_scope"


def tried(readv: int = 0, kcmp: int | None = 0, opted_readv: int | None = None) -> cma.Attempts:
    opted = readv if opted_readv is None else opted_readv
    return {"plain": {"readv": readv, "kcmp": kcmp}, "opted": {"readv": opted, "kcmp": kcmp}}


@pytest.mark.parametrize("library", ["openmpi", "mpich", None])
@pytest.mark.parametrize("scope", ["0", None])
def test_attach_allowed(machine: Machine, library: str | None, scope: str | None) -> None:
    if scope is not None:
        write(machine, SCOPE, scope)
    assert cma.judge(machine, tried(), library).status == "ok"
    assert cma.judge(machine, tried(kcmp=None), library).status == "ok"


def test_mpich_would_abort(machine: Machine) -> None:
    problem = only(cma.judge(replace(machine, container="c"), tried(readv=1, kcmp=1), "mpich"), "fail")
    assert "EPERM" in problem.cause
    assert "abort" in problem.effect
    assert "--cap-add SYS_PTRACE" in problem.fix
    assert "MPIR_CVAR_CH4_CMA_ENABLE=0" in problem.fix


def test_mpich_told_to_copy_twice(machine: Machine) -> None:
    told = replace(machine, environ={"MPIR_CVAR_CH4_CMA_ENABLE": "0"})
    problem = only(cma.judge(told, tried(readv=1), "mpich"), "warn")
    assert problem.fix == "unset MPIR_CVAR_CH4_CMA_ENABLE"


def test_mpich_copies_twice_where_yama_restricts_although_it_could(machine: Machine) -> None:
    write(machine, SCOPE, "1\n")
    problem = only(cma.judge(machine, tried(readv=1, opted_readv=0), "mpich"), "warn")
    assert "copied twice" in problem.effect
    assert "sysctl kernel.yama.ptrace_scope=0" in problem.fix


def test_open_mpi_opts_in_where_yama_restricts(machine: Machine) -> None:
    write(machine, SCOPE, "1")
    finding = cma.judge(machine, tried(readv=1, opted_readv=0), "openmpi")
    assert finding.status == "ok"
    assert "opted in: allowed" in finding.seen


def test_open_mpi_copies_twice_where_kcmp_is_refused(machine: Machine) -> None:
    problem = only(cma.judge(replace(machine, container="c"), tried(kcmp=1), "openmpi"), "warn")
    assert problem.cause.startswith("kcmp refused")
    assert "copied twice" in problem.effect
    assert "--cap-add SYS_PTRACE" in problem.fix


def test_open_mpi_where_yama_forbids(machine: Machine) -> None:
    write(machine, SCOPE, "3")
    assert "sysctl" in only(cma.judge(machine, tried(readv=1, kcmp=1), "openmpi"), "warn").fix


def test_a_filter_on_a_host(machine: Machine) -> None:
    assert "Seccomp" in only(cma.judge(machine, tried(readv=1, kcmp=1), "openmpi"), "warn").fix


def test_without_a_library_both_are_warned_of(machine: Machine) -> None:
    finding = cma.judge(machine, tried(readv=1, kcmp=1), None)
    assert [problem.severity for problem in finding.problems] == ["warn", "warn"]


def test_the_attempt_reads_the_childs_answer(machine: Machine) -> None:
    assert cma.attempt(replace(machine, execute=lambda argv: Output(0, json.dumps(tried(readv=38))))) == tried(readv=38)
    with pytest.raises(OSError, match="ended with 1: no ctypes"):
        cma.attempt(replace(machine, execute=lambda argv: Output(1, "no ctypes")))


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
    attempts = cma.attempt(replace(machine, execute=execute))
    assert set(attempts) == {"plain", "opted"}
    assert isinstance(attempts["opted"]["readv"], int)


# shm ------------------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def test_shm_large_enough(machine: Machine) -> None:
    assert shm.judge(machine, 1024 * MIB, 1000 * MIB).status == "ok"


def test_shm_of_dockers_default(machine: Machine) -> None:
    problem = only(shm.judge(replace(machine, container="c"), 64 * MIB, 64 * MIB), "warn")
    assert "4 ranks" in problem.cause
    assert problem.fix.startswith("docker run --shm-size=1g")


def test_shm_too_small_for_the_ranks(machine: Machine) -> None:
    many = replace(machine, container="c", launcher=Launcher("openmpi", 0, 64))
    problem = only(shm.judge(many, 64 * MIB, 64 * MIB), "fail")
    assert "64 ranks" in problem.cause
    assert "bus error" in problem.effect
    assert problem.fix.startswith("docker run --shm-size=2g")


def test_shm_full_of_what_others_left(machine: Machine) -> None:
    problem = only(shm.judge(machine, 1024 * MIB, 10 * MIB), "fail")
    assert "4 ranks" in problem.cause
    assert "mount -o remount" in problem.fix
    assert "ls -l /dev/shm" in problem.fix


def in_tmpdir(machine: Machine, name: str) -> Machine:
    return replace(machine, environ={**machine.environ, "TMPDIR": name})


def test_tmpdir(machine: Machine) -> None:
    machine.path("scratch").mkdir()
    assert tmpdir.run(in_tmpdir(machine, "/scratch")).status == "ok"
    assert "is not a folder" in only(tmpdir.run(in_tmpdir(machine, "/nowhere")), "warn").cause


def test_tmpdir_unset_is_tmp(machine: Machine) -> None:
    machine.path("tmp").mkdir()
    assert tmpdir.run(replace(machine, environ={})).seen.split(",")[0] == "/tmp"  # noqa: S108


def test_tmpdir_not_writable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("scratch").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write to /scratch" in only(tmpdir.run(in_tmpdir(machine, "/scratch")), "fail").cause


def test_tmpdir_full() -> None:
    assert "only 16.00 KiB free in /scratch" in only(tmpdir.judge("/scratch", 16 << 10), "fail").cause
    assert tmpdir.judge("/scratch", 256 << 10).status == "ok"


def test_shm_missing(machine: Machine) -> None:
    assert "mkdir -p /dev/shm" in only(shm.run(machine), "fail").fix


def test_shm_not_writable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "may not write" in only(shm.run(machine), "fail").cause


def test_shm_is_measured(machine: Machine) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    space = os.statvfs(machine.path("dev/shm"))
    assert shm.run(machine).seen.startswith(format_bytes(space.f_blocks * space.f_frsize))


# clocks ---------------------------------------------------------------------------------------------------------------

SOURCE = "sys/devices/system/clocksource/clocksource0"


def test_clock_of_user_space(machine: Machine) -> None:
    write(machine, "proc/self/timens_offsets", "monotonic           0         0\nboottime            0         0\n")
    write(machine, f"{SOURCE}/current_clocksource", "tsc\n")
    finding = clocks.judge(machine, 51.2)
    assert finding.status == "ok"
    assert finding.seen == "tsc, 51 ns a read; no shift by a time namespace"


def test_a_kernel_that_tells_nothing_has_no_time_namespaces(machine: Machine) -> None:
    assert clocks.judge(machine, 60.0).status == "ok"


@pytest.mark.parametrize("offsets", ["monotonic 100 0\nboottime 0 0", "monotonic 0 -5\nboottime 0 0"])
def test_a_time_namespace(machine: Machine, offsets: str) -> None:
    write(machine, "proc/self/timens_offsets", offsets)
    problem = only(clocks.judge(machine, 50.0), "warn")
    assert "monotonic" in problem.cause
    assert "boottime" not in problem.cause
    assert "roundtime" in problem.effect


@pytest.mark.parametrize(("source", "cost"), [("hpet", 90.0), ("tsc", 900.0)])
def test_a_slow_clock(machine: Machine, source: str, cost: float) -> None:
    write(machine, f"{SOURCE}/current_clocksource", source)
    problem = only(clocks.judge(machine, cost), "warn")
    assert source in problem.cause
    assert "boot with" in problem.fix


def test_a_slow_clock_beside_a_tsc(machine: Machine) -> None:
    write(machine, f"{SOURCE}/current_clocksource", "acpi_pm")
    write(machine, f"{SOURCE}/available_clocksource", "tsc hpet acpi_pm")
    assert only(clocks.judge(machine, 800.0), "warn").fix.startswith("echo tsc | sudo tee")


def test_the_clock_is_read() -> None:
    assert 0 < clocks.read_cost() < 1e6


# contention -----------------------------------------------------------------------------------------------------------


def test_nobody_else(machine: Machine) -> None:
    finding = contention.run(machine)
    assert finding.status == "ok"
    assert finding.seen == "tasks waited 1.5 % of the last 10 s, load average 0.5 on 4 cores"


def test_tasks_wait(machine: Machine) -> None:
    write(machine, "proc/pressure/cpu", "some avg10=10.00 avg60=0.00 avg300=0.00 total=12")
    assert "10 %" in only(contention.run(machine), "warn").cause


def test_a_load_that_is_over_is_only_shown(machine: Machine) -> None:
    write(machine, "proc/loadavg", "9.00 4.00 3.00 2/103 5335")
    assert contention.run(machine).status == "ok"


def test_without_pressure_nothing_is_known(machine: Machine) -> None:
    machine.path("proc/pressure/cpu").unlink()
    assert "psi=1" in only(contention.run(machine), "unknown").fix


def test_without_pressure_the_load_tells(machine: Machine) -> None:
    machine.path("proc/pressure/cpu").unlink()
    write(machine, "proc/loadavg", "4.10 4.00 3.00 2/103 5335")
    finding = contention.run(machine)
    assert [problem.severity for problem in finding.problems] == ["unknown", "warn"]
    assert finding.status == "warn"


# compiler -------------------------------------------------------------------------------------------------------------


def test_loop_built(machine: Machine) -> None:
    finding = compiler.judge(machine, "/x/_loop.abi3.so", Path("/nowhere"))
    assert finding.status == "ok"
    assert "/x/_loop.abi3.so" in finding.seen


@pytest.mark.parametrize(("has_compiler", "has_header"), [(False, False), (False, True), (True, False), (True, True)])
def test_loop_not_built(machine: Machine, has_compiler: bool, has_header: bool) -> None:
    machine = replace(machine, environ={**machine.environ, "CC": "mycc -pthread"})
    if has_compiler:
        program(machine, "mycc")
    if has_header:
        write(machine, "include/Python.h", "")
    problem = only(compiler.judge(machine, None, machine.path("include")), "warn")
    assert ("no C compiler (mycc)" in problem.cause) == (not has_compiler)
    assert ("no Python.h" in problem.cause) == (not has_header)
    assert ("apt-get install -y gcc libc6-dev python3-dev" in problem.fix) == (not (has_compiler and has_header))
    assert "pip install --force-reinstall" in problem.fix


# memory ---------------------------------------------------------------------------------------------------------------


def test_memory_enough(machine: Machine) -> None:
    write(machine, "proc/meminfo", "MemTotal: 9 kB\nSwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n")
    write(machine, "proc/self/cgroup", "0::/")
    write(machine, "sys/fs/cgroup/memory.max", str(8 << 30))
    finding = memory.judge(machine, 4 << 30)
    assert finding.status == "ok"
    assert finding.seen == "4.00 GiB available, swap 1.00 GiB of 2.00 GiB used, cgroup limit 8.00 GiB"


def test_memory_without_swap_or_limit(machine: Machine) -> None:
    write(machine, "proc/meminfo", "SwapTotal: 0 kB\n")
    write(machine, "sys/fs/cgroup/memory.max", "max\n")
    assert memory.judge(machine, 4 << 30).seen == "4.00 GiB available, no swap, no cgroup limit"


def test_little_memory(machine: Machine) -> None:
    assert "smaller -e" in only(memory.judge(machine, 1 << 20), "warn").fix
    assert "--memory" in only(memory.judge(replace(machine, container="c"), 1 << 20), "warn").fix


def test_memory_not_told(machine: Machine) -> None:
    only(memory.judge(machine, None), "unknown")


# The command ----------------------------------------------------------------------------------------------------------

GOOD = Finding("all well")
WARNED = Finding("so so", (Problem("warn", "why " * 40, "what", "do this"),))
FAILED = Finding("bad", (Problem("fail", "why", "what", "do " * 60),))
UNKNOWN = Finding("?", (Problem("unknown", "why", "what", "do this"),))


def invoke(monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(launcher, "detect", lambda environ=None: NO_LAUNCHER)
    monkeypatch.setattr(doctor, "examine", lambda machine, without: iter(findings.items()))
    result = CliRunner().invoke(cli_doctor.command, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("findings", "code", "verdict"),
    [
        ({"a": GOOD}, 0, "Ready: nothing found"),
        ({"a": GOOD, "b": UNKNOWN}, 0, "Ready, as far as could be seen: b could"),
        ({"a": WARNED, "b": UNKNOWN, "c": WARNED}, 0, "mind a, c."),
        ({"a": WARNED, "b": FAILED}, 1, "Not ready: b failed."),
    ],
)
def test_verdict_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], code: int, verdict: str
) -> None:
    ended, output = invoke(monkeypatch, findings)
    assert ended == code
    assert verdict in output.splitlines()[-1]


def test_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = invoke(monkeypatch, {"cma": GOOD, "shm": FAILED})
    lines = output.splitlines()
    assert lines[0] == "ok       cma         all well"
    assert lines[1] == "fail     shm         bad"
    assert lines[2:4] == ["         cause   why", "         effect  what"]
    assert lines[4] == "         fix     " + "do " * 60


def test_long_causes_are_wrapped_under_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke(monkeypatch, {"shm": WARNED})[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].startswith(" " * 17 + "why")


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = invoke(monkeypatch, {"cma": GOOD, "shm": FAILED}, "--json")
    found = json.loads(output)
    assert code == 1
    assert found["verdict"].startswith("Not ready: shm failed.")
    assert found["findings"][0] == {"check": "cma", "status": "ok", "seen": "all well", "problems": []}
    assert found["findings"][1]["problems"] == [
        {"severity": "fail", "cause": "why", "effect": "what", "fix": "do " * 60}
    ]


def test_only_rank_0_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine) -> None:
        pytest.fail("rank 1 looked")

    monkeypatch.setattr(doctor, "examine", look)
    monkeypatch.setattr(launcher, "detect", lambda environ=None: Launcher("mpich", 1, 2))
    result = CliRunner().invoke(cli_doctor.command, [])
    assert (result.exit_code, result.output) == (0, "")


def test_the_script_on_this_machine() -> None:
    """Whatever is found here: no traceback, the exit code that goes with the findings, every check there."""
    argv = [sys.executable, "-m", "collbench", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    found = json.loads(done.stdout)
    failed = any(row["status"] == "fail" for row in found["findings"])
    assert done.returncode == (1 if failed else 0)
    assert tuple(row["check"] for row in found["findings"]) == doctor.names()
    assert "Traceback" not in done.stderr
