"""Check `cuda_aware`, and what it asks of an MPI: built for device pointers, claims to take them, takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.backends import mpi_cuda as levels_of
from collbench.backends.mpi_cuda import Levels
from collbench.doctor import gpus
from collbench.doctor.frame import Finding, Machine, Problem, execute
from collbench.errors import BackendUnavailable
from collbench.machine.launcher import Launcher


def only(finding: Finding, severity: str) -> Problem:
    """The one problem, which must say cause, effect and fix."""
    assert [problem.severity for problem in finding.problems] == [severity]
    problem = finding.problems[0]
    assert problem.cause and problem.effect and problem.fix
    return problem


NAME = "Open MPI 5.0.11"


@pytest.mark.parametrize(
    ("levels", "seen"),
    [
        (Levels(True, True, True), "built: yes, claimed: yes, works: yes"),
        (Levels(True, True, None), "built: yes, claimed: yes, works: unknown"),
        (Levels(True, None), "built: yes, claimed: unknown"),
        (Levels(False, why="reason"), "built: no (reason)"),
        (Levels(None), "built: unknown"),
    ],
)
def test_levels_without_a_problem(levels: Levels, seen: str) -> None:
    assert gpus.judge_cuda_aware("openmpi", NAME, levels, gpu=True) == Finding(f"{NAME}: {seen}")


@pytest.mark.parametrize(
    ("vendor", "fix"),
    [("openmpi", "export OMPI_MCA_accelerator=cuda"), ("mpich", "export MPIR_CVAR_ENABLE_GPU=1"), ("x", "export MPIR")],
)
def test_built_and_not_claimed(vendor: str, fix: str) -> None:
    problem = only(gpus.judge_cuda_aware(vendor, NAME, Levels(True, False), gpu=True), "warn")
    assert "mpi-cuda" in problem.effect
    assert problem.fix.startswith(fix)
    assert gpus.judge_cuda_aware(vendor, NAME, Levels(True, False), gpu=False).status == "ok"


def test_claimed_and_not_true() -> None:
    problem = only(gpus.judge_cuda_aware("openmpi", NAME, Levels(True, True, False), gpu=True), "warn")
    assert "device buffer" in problem.cause
    assert "mpi-cuda" in problem.effect
    assert problem.fix.startswith("--backend mpi-staged")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """What the library would say; the list fills with the levels that are asked, the third with its GPU."""

    def tell(built: bool | None, claimed: bool | None = None, works: bool = False, why: str = "") -> list[str]:
        asked: list[str] = []
        levels_of.levels.cache_clear()

        def claim(library: str | None) -> bool | None:
            asked.append("claimed")
            return claimed

        def work(gpu: str) -> tuple[bool, str]:
            asked.append(gpu)
            return works, why

        monkeypatch.setattr(levels_of, "built", lambda version: built)
        monkeypatch.setattr(levels_of, "claimed", claim)
        monkeypatch.setattr(levels_of, "works", work)
        return asked

    yield tell
    levels_of.levels.cache_clear()


def test_levels_are_asked_in_turn(told: Callable[..., list[str]]) -> None:
    """Each only where the one before does not deny it; the third on the first GPU."""
    uuids = ("GPU-a", "GPU-b")
    asked = told(True, True, False, "no arrival")
    assert gpus.cuda_levels("", "/lib", uuids) == Levels(True, True, False, "no arrival")
    assert asked == ["claimed", "GPU-a"]
    asked = told(None, None, True)
    assert gpus.cuda_levels("", "/lib", uuids) == Levels(None, None, True, levels_of.NOT_TRIED)
    assert asked == ["claimed", "GPU-a"]
    asked = told(True, False, True)
    levels = gpus.cuda_levels("", "/lib", uuids)
    assert replace(levels, why="") == Levels(True, False) and "CUDA component" in levels.why
    assert asked == ["claimed"]
    asked = told(False, True, True)
    for levels, why in ((gpus.cuda_levels("", "/lib", uuids), "mpi-cuda"), (levels_of.levels("", "/lib", "GPU-a"), "")):
        assert replace(levels, why="") == Levels(False) and why in levels.why and "CUDA" in levels.why
    assert asked == []


def test_levels_without_a_gpu_end_with_the_claim(told: Callable[..., list[str]]) -> None:
    asked = told(True, True, True)
    levels = gpus.cuda_levels("", "/lib", ())
    assert replace(levels, why="") == Levels(True, True) and "no GPU" in levels.why
    assert asked == ["claimed"]


def test_a_child_that_tries_is_a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a launcher left in the environment would make it wait for ranks that never come."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE", "HYDI_CONTROL_FD", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMPI_MCA_accelerator", "cuda")
    found = levels_of.alone()
    assert not [name for name in found if name.startswith(("OMPI_COMM", "PMI", "HYDI_", "SLURM_"))]
    assert found["OMPI_MCA_accelerator"] == "cuda"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "found", "said"),
    [
        ("import sys; sys.exit(101)", True, ""),
        ("import sys; sys.exit(100)", False, "not arrive"),
        ("import sys; print('about this', file=sys.stderr); sys.exit(7)", False, "code 7: about this"),
        ("import os; os.kill(os.getpid(), 11)", False, "code -11: no message"),
        ("import time; time.sleep(60)", False, "not end"),
        ("import os, sys; sys.exit(100 + (os.environ['CUDA_VISIBLE_DEVICES'] == 'GPU-a'))", True, ""),
    ],
)
def test_whether_it_works_is_what_a_child_ends_with(
    monkeypatch: pytest.MonkeyPatch, program: str, found: bool, said: str
) -> None:
    monkeypatch.setattr(levels_of, "_PROOF", program)
    monkeypatch.setattr(levels_of, "PROOF", 2.0 if "sleep" in program else 30.0)
    works, why = levels_of.works("GPU-a")
    assert works is found
    assert said in why if said else why == ""


def test_a_gpu_without_a_uuid_is_named_by_its_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CUDA_VISIBLE_DEVICES the address would hide every GPU, and a capable MPI would be refused."""
    program = "import os, sys; sys.exit(100 + ((os.environ.get('CUDA_VISIBLE_DEVICES'), sys.argv[1:]) == {}))"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(levels_of, "_PROOF", program.format((None, ["0000:65:00.0"])))
    assert levels_of.works("0000:65:00.0") == (True, "")
    monkeypatch.setattr(levels_of, "_PROOF", program.format(("MIG-a", [])))
    assert levels_of.works("MIG-a") == (True, "")


def test_what_works_says_what_was_not_tried(told: Callable[..., list[str]]) -> None:
    """Between two processes other code of the library runs."""
    told(True, True, True)
    levels = levels_of.levels("", "/lib", "GPU-a")
    assert gpus.judge_cuda_aware("openmpi", NAME, levels, gpu=True).seen == (
        f"{NAME}: built: yes, claimed: yes, works: yes ({levels_of.NOT_TRIED})"
    )


def test_no_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lack() -> None:
        raise BackendUnavailable("mpi4py is not installed")

    monkeypatch.setattr(gpus, "load_mpi", lack)
    assert gpus.cuda_aware(Machine(tmp_path, {}, Launcher("none"), 1000, None, execute)).status == "ok"
