"""The simulated device beneath the benchmarks: which GPU each rank uses, and what CUDA-aware MPI can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.backends import mpi_cuda as levels_of
from collbench.backends.mpi_cuda import Levels
from collbench.bindings.gpu.assignment import Assignment, VisibleGpus, assign
from collbench.bindings.spec import Roles
from collbench.doctor import gpus
from collbench.doctor.frame import Finding, Machine, Problem, execute
from collbench.errors import BackendUnavailable, RequestError
from collbench.machine.launcher import Launcher

FOUR = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
EVERYBODY = Roles()
#: All cases have rank 0 as parameter server.
SERVED = Roles(all_work=False, servers=frozenset({0}))
#: Some have, in others every rank works.
MIXED = Roles(all_work=True, servers=frozenset({0}))


def sees(*visible: str, host: str = "one", planned: str | None = None, why: str | None = None) -> VisibleGpus:
    return VisibleGpus(host, f"kernel of {host}", visible, planned, why)


def test_one_each_in_cudas_order() -> None:
    assert assign((sees(*FOUR),) * 4, EVERYBODY, share=False) == Assignment(FOUR)
    assert assign((sees(*FOUR),) * 2, EVERYBODY, share=False) == Assignment(FOUR[:2])


def test_machines_are_seated_by_themselves() -> None:
    """Two machines may name their GPUs alike."""
    hosts = (sees(*FOUR[:2]), sees(*FOUR[:2], host="two")) * 2
    assert assign(hosts, EVERYBODY, share=False).gpus == ("GPU-a", "GPU-a", "GPU-b", "GPU-b")


def test_each_rank_was_shown_its_own() -> None:
    """CUDA_VISIBLE_DEVICES of each rank, in any order; or a container with one GPU for each."""
    assert assign(tuple(map(sees, reversed(FOUR))), EVERYBODY, share=False).gpus == tuple(reversed(FOUR))
    boxes = tuple(VisibleGpus(f"box-{gpu}", "one kernel", (gpu,)) for gpu in FOUR)
    assert assign(boxes, EVERYBODY, share=False).gpus == FOUR


def test_two_containers_with_two_gpus_each() -> None:
    boxes = (sees(*FOUR[:2]), sees(*FOUR[:2]), sees(*FOUR[2:]), sees(*FOUR[2:]))
    assert assign(boxes, EVERYBODY, share=False).gpus == FOUR


def test_what_a_launcher_planned_is_kept() -> None:
    planned = ("GPU-c", "GPU-a", "GPU-d")
    assert assign(tuple(sees(*FOUR, planned=gpu) for gpu in planned), EVERYBODY, share=False).gpus == planned


@pytest.mark.parametrize(("visible", "named"), [(FOUR[:2], "GPU-a, GPU-b"), ((), "none")])
def test_a_planned_gpu_that_the_rank_does_not_see(visible: tuple[str, ...], named: str) -> None:
    seats = (sees(*FOUR, planned="GPU-a"), sees(*visible, planned="GPU-c"))
    with pytest.raises(RequestError, match=rf"rank 1 was planned on GPU GPU-c, and sees {named}\.$"):
        assign(seats, EVERYBODY, share=False)


def test_two_ranks_on_one_gpu_are_refused_unless_told() -> None:
    seats = (sees("GPU-a"),) * 2
    with pytest.raises(RequestError) as refused:
        assign(seats, EVERYBODY, share=False)
    said = str(refused.value)
    assert said.startswith("ranks 0 and 1 on one would use one GPU (GPU-a): 2 ranks and 1 GPU. ")
    assert "--share-gpu" in said
    assert "share_gpu = true" in said
    assert assign(seats, EVERYBODY, share=True) == Assignment(("GPU-a", "GPU-a"))


def test_shared_gpus_are_shared_out_evenly() -> None:
    assert assign((sees(*FOUR[:2]),) * 5, EVERYBODY, share=True).gpus == ("GPU-a", "GPU-b", "GPU-a", "GPU-b", "GPU-a")
    with pytest.raises(RequestError, match=r"ranks 0 and 2 on one would use one GPU .*: 3 ranks and 2 GPUs"):
        assign((sees(*FOUR[:2]),) * 3, EVERYBODY, share=False)


def test_one_name_on_two_machines_is_two_gpus() -> None:
    assert assign((sees("GPU-a"), sees("GPU-a", host="two")), EVERYBODY, share=False).gpus == ("GPU-a",) * 2
    with pytest.raises(RequestError, match="ranks 1 and 2 on two would use one GPU"):
        assign((sees("GPU-a"), sees("GPU-a", host="two"), sees("GPU-a", host="two")), EVERYBODY, share=False)


@pytest.mark.parametrize("share", [False, True])
def test_no_gpu_is_refused_with_the_reason(share: bool) -> None:
    reason = "the driver is too old"
    with pytest.raises(RequestError, match=f"rank 1 on two has no GPU to use: {reason}. See: collbench doctor"):
        assign((sees("GPU-a"), sees(host="two", why=reason)), EVERYBODY, share)
    with pytest.raises(RequestError, match="rank 0 on one has no GPU to use: no CUDA device is visible"):
        assign((sees(),), EVERYBODY, share)


def test_a_server_takes_no_gpu() -> None:
    """The first GPU goes to the first worker, whether the server sees GPUs or not."""
    assert assign((sees(*FOUR),) * 3, SERVED, share=False).gpus == (None, "GPU-a", "GPU-b")
    assert assign((sees(why="none"), sees(*FOUR), sees(*FOUR)), SERVED, share=False).gpus == (None, "GPU-a", "GPU-b")
    last = Roles(all_work=False, servers=frozenset({2}))
    assert assign((sees(*FOUR),) * 3, last, share=False).gpus == ("GPU-a", "GPU-b", None)


def test_workers_of_a_server_need_theirs() -> None:
    with pytest.raises(RequestError, match="ranks 1 and 2 on one would use one GPU"):
        assign((sees("GPU-a"),) * 3, SERVED, share=False)
    with pytest.raises(RequestError, match="rank 2 on one has no GPU"):
        assign((sees(), sees("GPU-a"), sees()), SERVED, share=False)


def test_two_servers_in_turn_are_workers_too() -> None:
    roles = Roles(all_work=False, servers=frozenset({0, 1}))
    assert assign((sees(*FOUR),) * 3, roles, share=False).gpus == FOUR[:3]
    with pytest.raises(RequestError, match="rank 0 on one has no GPU"):
        assign((sees(), sees(*FOUR), sees(*FOUR)), roles, share=False)
    with pytest.raises(RequestError, match=r"2 GPUs\..* Ranks 0, 1 are the server in turn, .* one root \(-r\) needs"):
        assign((sees(*FOUR[:2]),) * 3, roles, share=False)


def test_a_mixed_plan_has_a_gpu_for_everybody_where_there_is_one() -> None:
    assert assign((sees(*FOUR),) * 4, MIXED, share=False) == Assignment(FOUR)


def test_a_mixed_plan_falls_back_to_the_workers_and_says_what_it_refuses() -> None:
    """Cases with a server can be measured, and the others say why not."""
    found = assign((sees(why="no device"), sees(*FOUR), sees(*FOUR)), MIXED, share=False)
    assert found.gpus == (None, "GPU-a", "GPU-b")
    assert found.refused == "rank 0 on one has no GPU to use: no device. See: collbench doctor"
    found = assign((sees(*FOUR[:2]),) * 3, MIXED, share=False)
    assert found.gpus == (None, "GPU-a", "GPU-b")
    assert found.refused is not None
    assert found.refused.startswith("ranks 0 and 2 on one would use one GPU (GPU-a)")


def test_a_mixed_plan_without_gpus_is_refused() -> None:
    with pytest.raises(RequestError, match="rank 1 on one has no GPU"):
        assign((sees(),) * 2, MIXED, share=False)
    with pytest.raises(RequestError, match="rank 0 on one has no GPU"):
        assign((sees(),), MIXED, share=False)


# Check `cuda_aware`, and what it asks of an MPI -----------------------------------------------------------------------


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
    assert gpus.judge_cuda_aware("openmpi", NAME, levels, gpu=True).observed == (
        f"{NAME}: built: yes, claimed: yes, works: yes ({levels_of.NOT_TRIED})"
    )


def test_no_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lack() -> None:
        raise BackendUnavailable("mpi4py is not installed")

    monkeypatch.setattr(gpus, "load_mpi", lack)
    assert gpus.cuda_aware(Machine(tmp_path, {}, Launcher("none"), 1000, None, execute)).status == "ok"
