"""The simulated device beneath the benchmarks: which GPU each rank uses, and what CUDA-aware MPI can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from collbench.backends import mpi_cuda as levels_of
from collbench.backends.mpi_cuda import Levels
from collbench.bindings.gpu.assignment import Assignment, VisibleGpus, assign
from collbench.bindings.spec import Roles
from collbench.doctor import Finding, Machine, Problem, execute, gpus
from collbench.errors import BackendUnavailable, RequestError
from collbench.machine.launcher import Launcher

FOUR = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
EVERYBODY = Roles()
#: All cases have rank 0 as parameter server.
SERVED = Roles(all_work=False, servers=frozenset({0}))
#: Some have, in others every rank works.
MIXED = Roles(all_work=True, servers=frozenset({0}))
IN_TURN = Roles(all_work=False, servers=frozenset({0, 1}))


def sees(*visible: str, host: str = "one", planned: str | None = None, why: str | None = None) -> VisibleGpus:
    return VisibleGpus(host, f"kernel of {host}", visible, planned, why)


#: Ranks, and the GPUs that they use.
SEATED: dict[str, tuple[tuple[VisibleGpus, ...], Roles, tuple[str | None, ...]]] = {
    "one each in CUDA's order": ((sees(*FOUR),) * 4, EVERYBODY, FOUR),
    "fewer ranks than GPUs": ((sees(*FOUR),) * 2, EVERYBODY, FOUR[:2]),
    "two machines, which may name their GPUs alike": (
        (sees(*FOUR[:2]), sees(*FOUR[:2], host="two")) * 2, EVERYBODY, ("GPU-a", "GPU-a", "GPU-b", "GPU-b")),
    "one name on two machines": ((sees("GPU-a"), sees("GPU-a", host="two")), EVERYBODY, ("GPU-a",) * 2),
    "CUDA_VISIBLE_DEVICES of each rank, in any order": (tuple(map(sees, FOUR[::-1])), EVERYBODY, FOUR[::-1]),
    "a container with one GPU for each": (
        tuple(VisibleGpus(f"box-{gpu}", "one kernel", (gpu,)) for gpu in FOUR), EVERYBODY, FOUR),
    "two containers with two GPUs each": ((sees(*FOUR[:2]),) * 2 + (sees(*FOUR[2:]),) * 2, EVERYBODY, FOUR),
    "what a launcher planned": (
        tuple(sees(*FOUR, planned=FOUR[n]) for n in (2, 0, 3)), EVERYBODY, ("GPU-c", "GPU-a", "GPU-d")),
    "a server": ((sees(*FOUR),) * 3, SERVED, (None, "GPU-a", "GPU-b")),
    "a server that sees none": ((sees(why="none"), *[sees(*FOUR)] * 2), SERVED, (None, "GPU-a", "GPU-b")),
    "a server that comes last": (
        (sees(*FOUR),) * 3, Roles(all_work=False, servers=frozenset({2})), ("GPU-a", "GPU-b", None)),
    "two servers in turn, who are workers too": ((sees(*FOUR),) * 3, IN_TURN, FOUR[:3]),
    "a plan with and without a server": ((sees(*FOUR),) * 4, MIXED, FOUR),
}  # fmt: skip


@pytest.mark.parametrize("what", SEATED)
def test_gpus_of_ranks(what: str) -> None:
    seats, roles, expected = SEATED[what]
    assert assign(seats, roles, share=False) == Assignment(expected)


def test_shared_gpus_are_shared_out_evenly() -> None:
    assert assign((sees("GPU-a"),) * 2, EVERYBODY, share=True) == Assignment(("GPU-a", "GPU-a"))
    assert assign((sees(*FOUR[:2]),) * 5, EVERYBODY, share=True).gpus == ("GPU-a", "GPU-b", "GPU-a", "GPU-b", "GPU-a")


UNSEEN = (sees(*FOUR, planned="GPU-a"), sees(*FOUR[:2], planned="GPU-c"))

#: Ranks that cannot be seated: a planned GPU that is not seen, a GPU for two, none for a rank that works.
UNSEATED: tuple[tuple[tuple[VisibleGpus, ...], Roles], ...] = (
    (UNSEEN, EVERYBODY), ((UNSEEN[0], sees(planned="GPU-c")), EVERYBODY), ((sees("GPU-a"),) * 2, EVERYBODY),
    ((sees(*FOUR[:2]),) * 3, EVERYBODY), ((sees("GPU-a"), *[sees("GPU-a", host="two")] * 2), EVERYBODY),
    ((sees("GPU-a"), sees(host="two", why="the driver is too old")), EVERYBODY), ((sees(),), EVERYBODY),
    ((sees("GPU-a"),) * 3, SERVED), ((sees(), sees("GPU-a"), sees()), SERVED), ((sees(), *[sees(*FOUR)] * 2), IN_TURN),
    ((sees(*FOUR[:2]),) * 3, IN_TURN), ((sees(),) * 2, MIXED), ((sees(),), MIXED)
)  # fmt: skip


def test_ranks_that_cannot_be_seated(golden: Callable[[str, str], None]) -> None:
    """In a mixed plan workers are: cases with a server can be measured, and the others say why not."""
    lines = []
    for seats, roles in UNSEATED:
        with pytest.raises(RequestError) as refused:
            assign(seats, roles, share=False)
        lines.append(str(refused.value))
        if any(not seat.visible for seat in seats):
            with pytest.raises(RequestError):
                assign(seats, roles, share=True)
    for seats in ((sees(why="no device"), *[sees(*FOUR)] * 2), (sees(*FOUR[:2]),) * 3):
        fallback = assign(seats, MIXED, share=False)
        assert fallback.gpus == (None, "GPU-a", "GPU-b") and fallback.refused is not None
        lines.append(fallback.refused)
    golden("gpus-of-ranks.txt", "".join(f"{line}\n" for line in lines))


# Check `cuda_aware`, and what it asks of an MPI -----------------------------------------------------------------------


def problem_of(vendor: str, levels: Levels) -> Problem:
    """The only problem, which must say cause, effect and fix."""
    (problem,) = gpus.judge_cuda_aware(vendor, NAME, levels, gpu=True).problems
    assert problem.severity == "warn" and problem.cause and problem.fix
    assert "mpi-cuda" in problem.effect
    return problem


NAME = "Open MPI 5.0.11"


@pytest.mark.parametrize(("levels", "seen"), [
    (Levels(True, True, True), "built: yes, claimed: yes, works: yes"),
    (Levels(True, True, True, levels_of.NOT_TRIED), f"built: yes, claimed: yes, works: yes ({levels_of.NOT_TRIED})"),
    (Levels(True, True, None), "built: yes, claimed: yes, works: unknown"),
    (Levels(True, None), "built: yes, claimed: unknown"), (Levels(None), "built: unknown"),
    (Levels(False, why="reason"), "built: no (reason)"),
])  # fmt: skip
def test_levels_without_a_problem(levels: Levels, seen: str) -> None:
    assert gpus.judge_cuda_aware("openmpi", NAME, levels, gpu=True) == Finding(f"{NAME}: {seen}")


@pytest.mark.parametrize(("vendor", "levels", "fix"), [
    ("openmpi", Levels(True, False), "export OMPI_MCA_accelerator=cuda"),
    ("mpich", Levels(True, False), "export MPIR_CVAR_ENABLE_GPU=1"), ("x", Levels(True, False), "export MPIR"),
    ("openmpi", Levels(True, True, False), "--backend mpi-staged"),
])  # fmt: skip
def test_built_and_not_claimed_or_claimed_and_not_true(vendor: str, levels: Levels, fix: str) -> None:
    assert problem_of(vendor, levels).fix.startswith(fix)
    assert levels.claimed or gpus.judge_cuda_aware(vendor, NAME, levels, gpu=False).status == "ok"


@pytest.fixture
def mpi_says(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
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


#: What the library would say: the levels, what is asked (a claim, and proof on the first GPU), what the reason names.
LIBRARIES: list[tuple[tuple[Any, ...], Levels, list[str], str]] = [
    ((True, True, False, "no arrival"), Levels(True, True, False), ["claimed", "GPU-a"], "no arrival"),
    ((None, None, True), Levels(None, None, True), ["claimed", "GPU-a"], levels_of.NOT_TRIED),
    ((True, True, True), Levels(True, True, True), ["claimed", "GPU-a"], levels_of.NOT_TRIED),
    ((True, False, True), Levels(True, False), ["claimed"], "CUDA component"),
    ((False, True, True), Levels(False), [], "CUDA"),
]  # fmt: skip


@pytest.mark.parametrize(("library", "levels", "questions", "named"), LIBRARIES)
def test_levels_are_asked_in_turn(mpi_says: Callable[..., list[str]], library: tuple[Any, ...], levels: Levels,
                                  questions: list[str], named: str) -> None:  # fmt: skip
    """Each only where the one before does not deny it. Without a GPU they end with the claim."""
    asked = mpi_says(*library)
    seen = gpus.cuda_levels("", "/lib", ("GPU-a", "GPU-b"))
    assert (replace(seen, why=""), asked) == (levels, questions) and named in seen.why
    if levels.built is False:
        assert "mpi-cuda" in seen.why
        assert replace(levels_of.levels("", "/lib", "GPU-a"), why="") == levels and asked == []
    if levels.works is not None:
        asked = mpi_says(*library)
        seen = gpus.cuda_levels("", "/lib", ())
        assert (replace(seen, why=""), asked) == (replace(levels, works=None), ["claimed"]) and "GPU" in seen.why


def test_a_child_that_tries_is_a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a launcher left in the environment would make it wait for ranks that never come."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE", "HYDI_CONTROL_FD", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMPI_MCA_accelerator", "cuda")
    found = levels_of.alone()
    assert not [name for name in found if name.startswith(("OMPI_COMM", "PMI", "HYDI_", "SLURM_"))]
    assert found["OMPI_MCA_accelerator"] == "cuda"


ENVIRONMENT = "import os, sys; sys.exit(100 + ((os.environ.get('CUDA_VISIBLE_DEVICES'), sys.argv[1:]) == {}))"


@pytest.mark.parametrize(("gpu", "program", "works", "named"), [
    ("GPU-a", "import sys; sys.exit(101)", True, None), ("GPU-a", "import sys; sys.exit(100)", False, "arrive"),
    ("GPU-a", "import sys; print('about this', file=sys.stderr); sys.exit(7)", False, "7: about this"),
    ("GPU-a", "import os; os.kill(os.getpid(), 11)", False, "-11: "),
    pytest.param("GPU-a", "import time; time.sleep(60)", False, "2.0 seconds", marks=pytest.mark.slow),
    ("GPU-a", ENVIRONMENT.format(("GPU-a", [])), True, None), ("MIG-a", ENVIRONMENT.format(("MIG-a", [])), True, None),
    # Without a UUID it is named by its bus: as CUDA_VISIBLE_DEVICES the address would hide every GPU.
    ("0000:65:00.0", ENVIRONMENT.format((None, ["0000:65:00.0"])), True, None),
])  # fmt: skip
def test_whether_it_works_is_what_a_child_ends_with(monkeypatch: pytest.MonkeyPatch, gpu: str, program: str,
                                                    works: bool, named: str | None) -> None:  # fmt: skip
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(levels_of, "_PROOF", program)
    monkeypatch.setattr(levels_of, "PROOF", 2.0 if "sleep" in program else 30.0)
    proof, why = levels_of.works(gpu)
    assert proof is works
    assert why == "" if named is None else named in why


def test_no_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "load_mpi", Mock(side_effect=BackendUnavailable("mpi4py is not installed")))
    assert gpus.cuda_aware(Machine(tmp_path, {}, Launcher("none"), 1000, None, execute)).status == "ok"
