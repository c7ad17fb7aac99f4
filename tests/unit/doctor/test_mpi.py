"""Every outcome of the check mpi: the library, the mpirun, and root."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import pytest
from tests.unit.doctor.machines import FOUR_RANKS, only, program, write

from collbench.bindings import mpi as loading
from collbench.doctor import mpi
from collbench.doctor.frame import Machine, Output, Severity
from collbench.doctor.mpi import MpiLibrary
from collbench.errors import BackendUnavailable
from collbench.machine.launcher import Launcher

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
    def hang(argv: tuple[str, ...]) -> Output:
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
