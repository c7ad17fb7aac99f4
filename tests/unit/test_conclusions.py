"""The five conclusions of the 2021 paper on runs that are made up: each verdict, and what decides it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.made_runs import Entry, experiment, image, library, made_case, spread, write_run

from collbench.analysis.observations import observe
from collbench.analysis.paper.cells import At, paper_cells, steps
from collbench.analysis.paper.conclusions import Evidence, judge
from collbench.analysis.paper.judgement import Judgement
from collbench.analysis.paper.reference import CollectivesPaper, decode
from collbench.errors import RequestError, RunReadError
from collbench.report.paper import beside, paper, tally
from collbench.schema.case import Case

#: Image, backend and the paper's name.
LIBRARIES = {
    "Open MPI": ("openmpi", "mpi-staged"), "MPICH": ("mpich", "mpi-staged"),
    "CUDA-aware Open MPI": ("openmpi-cuda", "mpi-cuda"), "NCCL": ("openmpi", "nccl"),
}  # fmt: skip
SIDES = (image("openmpi"), image("openmpi-cuda"), image("mpich", libraries=(library("MPICH", "5.0.2"),)))

Times = dict[tuple[str, str, str, int], float]


def the_papers_world() -> Times:
    """Milliseconds by operation, policy, library, GPUs, such that every conclusion holds."""
    times: Times = {}
    for operation in ("ps_bcast", "ps_gather", "allreduce"):
        for policy, more in (("multi", 1.0), ("single", 10.0)):
            for name in LIBRARIES:
                for gpus in (1, 4) if operation != "allreduce" else (2, 4):
                    quick = {("ps", "multi"): "CUDA-aware Open MPI", ("ps", "single"): "Open MPI"}
                    best = quick.get((operation[:2], policy), "NCCL")
                    grows = "NCCL" if operation == "allreduce" else "CUDA-aware Open MPI"
                    growth = 1.2 if name == grows else 3.0
                    times[operation, policy, name, gpus] = (
                        more * (5 if name == best else 40) * (growth if gpus == 4 else 1)
                    )
    return times


def judged(path: Path, times: Times) -> dict[int, Judgement[Evidence]]:
    cells: dict[Case, list[Entry]] = {}
    for (operation, policy, name, gpus), time in times.items():
        where, backend = LIBRARIES[name]
        server = operation.startswith("ps_")
        case = made_case(policy, "strict", workload=operation, backend=backend, image=where, ranks=gpus + server,
                         op=None if server else "sum", root=0 if server else None, size=1 << 20)  # fmt: skip
        cells[case] = list(spread(time * 1e-3))
    names = ("openmpi", "mpich", "openmpi-cuda")
    run = write_run(path, cells, experiment=experiment(names, images=SIDES, environments=SIDES))
    return {one.number: one for one in judge(paper_cells(observe(run), "strict"))}


def test_a_world_like_the_papers_confirms_all_five(tmp_path: Path) -> None:
    found = judged(tmp_path / "run", the_papers_world())
    assert {number: one.finding for number, one in found.items()} == dict.fromkeys(range(1, 6), "confirmed")
    assert len(found[1].evidence) == 3 * 4 * 2


@pytest.mark.parametrize(
    ("number", "cell", "milliseconds"),
    [
        (1, ("ps_gather", "single", "MPICH", 1), 10.0),
        (2, ("ps_bcast", "multi", "MPICH", 4), 1.0),
        (3, ("ps_gather", "single", "NCCL", 4), 1.0),
        (4, ("allreduce", "single", "Open MPI", 4), 1.0),
        (5, ("allreduce", "multi", "MPICH", 4), 41.0),
    ],
)
def test_one_cell_refutes_a_conclusion_that_speaks_of_all(
    tmp_path: Path, number: int, cell: tuple[str, str, str, int], milliseconds: float
) -> None:
    found = judged(tmp_path / "run", the_papers_world() | {cell: milliseconds})
    assert found[number].finding == "refuted", found[number]


def test_being_as_good_is_not_being_best(tmp_path: Path) -> None:
    world = the_papers_world()
    found = judged(
        tmp_path / "run", world | {("allreduce", "multi", "MPICH", 4): world["allreduce", "multi", "NCCL", 4]}
    )
    assert found[4].finding == "refuted"


def test_what_was_not_measured_leaves_a_conclusion_open(tmp_path: Path) -> None:
    world = {key: time for key, time in the_papers_world().items() if key[2] in ("Open MPI", "MPICH")}
    found = judged(tmp_path / "run", world)
    assert {number: one.finding for number, one in found.items()} == {
        1: "undecided", 3: "undecided", **dict.fromkeys((2, 4, 5), "not measurable here")}  # fmt: skip
    assert "not measured: CUDA-aware Open MPI, NCCL" in found[1].why


def test_steps_come_from_the_most_isolated_on(tmp_path: Path) -> None:
    places: list[tuple[str, str | None]] = [
        ("single", "ipc"),
        ("host", None),
        ("single", "strict"),
        ("multi", "limits"),
    ]
    run = write_run(tmp_path / "run", {made_case(*place, image="openmpi"): [1e-3] for place in places})
    assert steps(observe(run)) == ["strict", "limits", "ipc"]


def test_of_two_drivers_the_native_one_stands_for_the_library(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case("single", "strict", image="openmpi", driver=driver, size=size): [1e-3]
        for driver in ("python", "native") for size in (8, 1 << 20)
    }  # fmt: skip
    found = paper_cells(observe(write_run(tmp_path / "run", cells)), "strict")
    assert found.size == 1 << 20
    ((at, cell),) = found.places.items()
    assert (at.library, cell.case["driver"], cell.case["size"]) == ("Open MPI", "native", 1 << 20)


def test_workers_are_counted_without_the_server(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case("multi", "strict", workload="ps_bcast", op=None, root=0, ranks=5, image="openmpi"): [1e-3],
        made_case("multi", "strict", ranks=4, image="openmpi"): [1e-3],
    }
    observed = observe(write_run(tmp_path / "run", cells))
    assert set(paper_cells(observed, "strict").places) == {
        At("ps_bcast", "multi", "Open MPI", 4), At("allreduce", "multi", "Open MPI", 4)}  # fmt: skip
    assert steps(observed) == ["strict"]


def test_the_run_stands_beside_the_paper_in_ratios(tmp_path: Path) -> None:
    server = {"workload": "ps_bcast", "op": None, "root": 0, "ranks": 2}
    cells: dict[Case, list[Entry]] = {
        made_case("single", "strict", image="openmpi", **server): list(spread(4e-3)),
        made_case("single", "strict", image="mpich", **server): list(spread(2e-3)),
    }
    run = write_run(tmp_path / "run", cells, experiment=experiment((), images=SIDES, environments=SIDES))
    lines, tables = beside(observe(run), paper("choi2021"))
    assert tally(lines) == "1 refuted, 4 not measurable here"
    rows = [row for table in tables if table.title.startswith("ratios") for row in table.rows]
    # the paper: 0.979 s over 0.518 s = 1.89; here 2.00
    assert ("ps_bcast", "single Open MPI over single MPICH, 1 GPU", "1.89", "2.00x (2.00 .. 2.00)", "1.06") in rows
    assert rows[0][3] != "not measured" and rows[-1][3] == "not measured"


def test_a_run_without_the_papers_operations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nothing to compare with choi2021"):
        beside(
            observe(write_run(tmp_path / "run", {made_case(workload="alltoall", op=None): [1.0]})), paper("choi2021")
        )


def test_the_papers_figures_agree_with_what_it_says_of_them() -> None:
    found = paper("choi2021")
    assert isinstance(found, CollectivesPaper)
    times = {(one.operation, one.policy, one.library, one.gpus): one.seconds for one in found.figures}
    assert len(found.figures) == 12 and [one.number for one in found.conclusions] == [1, 2, 3, 4, 5]
    cuda = {policy: times["ps_bcast", policy, "CUDA-aware Open MPI", 4] for policy in ("single", "multi")}
    assert 1 - cuda["multi"] / cuda["single"] == pytest.approx(0.75, abs=0.005)
    worst, best = times["allreduce", "single", "CUDA-aware Open MPI", 4], times["allreduce", "multi", "NCCL", 4]
    assert 1 - best / worst == pytest.approx(0.93, abs=0.01)
    assert max(times.values()) == times["ps_gather", "single", "NCCL", 4] == 4.456


def test_figures_that_are_none_are_refused() -> None:
    with pytest.raises(RunReadError, match="cannot be read"):
        decode(b'{"reference": 1}')
