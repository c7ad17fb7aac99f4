"""The five conclusions of the 2021 paper on runs that are made up: each verdict, and what decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_runs import Entry, experiment, image, library, made_case, spread, write_run

from collbench.analysis.conclusions import JudgedConclusion, decide, judge
from collbench.analysis.papers import Needs, Selector, decode, items_of, kinds_of, workers
from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError, RunReadError
from collbench.report.paper import beside, paper
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
                for gpus in (1, 2, 3, 4) if operation != "allreduce" else (2, 3, 4):
                    quick = {("ps", "multi"): "CUDA-aware Open MPI", ("ps", "single"): "Open MPI"}
                    best = quick.get((operation[:2], policy), "NCCL")
                    grows = "NCCL" if operation == "allreduce" else "CUDA-aware Open MPI"
                    growth = 1.2 if name == grows else 3.0
                    times[operation, policy, name, gpus] = (
                        more * (5 if name == best else 40) * (growth if gpus == 4 else 1)
                    )
    return times


def measured(path: Path, times: Times) -> Observed:
    cells: dict[Case, list[Entry]] = {}
    for (operation, policy, name, gpus), time in times.items():
        where, backend = LIBRARIES[name]
        server = operation.startswith("ps_")
        case = made_case(policy, "strict", workload=operation, backend=backend, image=where, ranks=gpus + server,
                         op=None if server else "sum", root=0 if server else None, size=1 << 20)  # fmt: skip
        cells[case] = list(spread(time * 1e-3))
    names = ("openmpi", "mpich", "openmpi-cuda")
    return observe(write_run(path, cells, experiment=experiment(names, images=SIDES, environments=SIDES)))


def judged(path: Path, times: Times) -> dict[int, JudgedConclusion]:
    published = paper("choi2021")
    (kind,) = kinds_of([measured(path, times)], published)
    return {one.conclusion.number: one for one in judge(published, kind)}


def test_a_world_like_the_papers_confirms_all_five(tmp_path: Path) -> None:
    found = judged(tmp_path / "run", the_papers_world())
    assert {number: one.verdict for number, one in found.items()} == dict.fromkeys(range(1, 6), "holds here")
    assert len(found[1].evidence) == 2 * 4 * 4 + 4 * 3


def test_one_rank_in_one_container_is_no_evidence_on_placement(tmp_path: Path) -> None:
    """Neither as the paper's cells are, nor if it had all-reduce of one GPU among them."""
    alone = {("allreduce", policy, name, 1): 2.0 for policy in ("multi", "single") for name in LIBRARIES}
    run = measured(tmp_path / "run", the_papers_world() | alone)
    published = paper("choi2021")
    every, reduced = published.conclusions[0].parts
    wider = msgspec.structs.replace(reduced, grid=reduced.grid | {"workers": (1, 2, 3, 4)})
    first = msgspec.structs.replace(published.conclusions[0], parts=(every, wider))
    for conclusion, total in ((published.conclusions[0], 12), (first, 16)):
        asked = msgspec.structs.replace(published, conclusions=(conclusion,))
        (one,) = judge(asked, kinds_of([run], asked)[0])
        assert (one.parts[1].support, one.parts[1].against, one.parts[1].total) == (12, 0, total)


@pytest.mark.parametrize(
    ("support", "against", "total", "needs", "verdict"),
    [
        (3, 0, 3, "all", "holds here"), (2, 0, 3, "all", "unclear"), (2, 1, 3, "all", "does not hold here"),
        (8, 6, 14, "most", "holds here"), (7, 6, 14, "most", "unclear"), (7, 7, 14, "most", "does not hold here"),
        (1, 71, 72, "some", "holds here"), (0, 71, 72, "some", "unclear"), (0, 72, 72, "some", "does not hold here"),
    ],
)  # fmt: skip
def test_a_number_of_cells_decides(support: int, against: int, total: int, needs: Needs, verdict: str) -> None:
    assert decide(support, against, total, needs) == verdict


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
    assert found[number].verdict == "does not hold here", found[number]


def test_being_as_good_is_not_being_best(tmp_path: Path) -> None:
    world = the_papers_world()
    found = judged(
        tmp_path / "run", world | {("allreduce", "multi", "MPICH", 4): world["allreduce", "multi", "NCCL", 4]}
    )
    assert found[4].verdict == "does not hold here"


def test_what_was_not_measured_leaves_a_conclusion_open(tmp_path: Path) -> None:
    world = {key: time for key, time in the_papers_world().items() if key[2] in ("Open MPI", "MPICH")}
    found = judged(tmp_path / "run", world)
    assert {number: one.verdict for number, one in found.items()} == {
        1: "unclear", **dict.fromkeys((2, 3, 4, 5), "not measured")}  # fmt: skip
    assert found[1].parts[0].missing == {"library": ("CUDA-aware Open MPI", "NCCL*")}


def test_as_many_gpus_as_the_paper_has_are_needed(tmp_path: Path) -> None:
    found = judged(tmp_path / "run", {key: time for key, time in the_papers_world().items() if key[3] <= 2})
    assert {number: one.verdict for number, one in found.items()} == {
        1: "unclear", **dict.fromkeys((2, 3, 4, 5), "not measured")}  # fmt: skip


def test_steps_come_from_the_most_isolated_on(tmp_path: Path) -> None:
    places: list[tuple[str, str | None]] = [
        ("single", "ipc"),
        ("host", None),
        ("single", "strict"),
        ("multi", "limits"),
    ]
    run = write_run(tmp_path / "run", {made_case(*place, image="openmpi"): [1e-3] for place in places})
    assert [kind.step for kind in kinds_of([observe(run)], paper("choi2021"))] == ["strict", "limits", "ipc"]


def test_of_two_drivers_the_native_one_stands_for_the_library(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case("single", "strict", image="openmpi", driver=driver, size=size): [1e-3]
        for driver in ("python", "native") for size in (8, 1 << 20)
    }  # fmt: skip
    (item,) = items_of(observe(write_run(tmp_path / "run", cells)))
    assert (item.library, item.case["driver"], item.case["size"]) == ("Open MPI", "native", 1 << 20)


def test_workers_are_counted_without_the_server() -> None:
    server = made_case("multi", "strict", workload="ps_bcast", op=None, root=0, ranks=5, image="openmpi")
    assert (workers(server), workers(made_case("multi", "strict", ranks=4, image="openmpi"))) == (4, 4)


def test_the_run_stands_beside_the_paper_in_ratios(tmp_path: Path) -> None:
    server = {"workload": "ps_bcast", "op": None, "root": 0, "ranks": 2}
    cells: dict[Case, list[Entry]] = {
        made_case("single", "strict", image="openmpi", **server): list(spread(4e-3)),
        made_case("single", "strict", image="mpich", **server): list(spread(2e-3)),
    }
    run = write_run(tmp_path / "run", cells, experiment=experiment((), images=SIDES, environments=SIDES))
    shown = beside([observe(run)], paper("choi2021"))
    rows = [row for table in shown.more if table.title.startswith("ratios") for row in table.rows]
    # the paper: 0.979 s over 0.518 s = 1.89; here 2.00
    assert ("ps_bcast, single Open MPI over single MPICH, 1 GPU", "1.89x", "2.00x") in rows
    assert rows[0][2] != "not measured" and rows[-1][2] == "not measured"


def test_a_run_without_the_papers_operations_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {made_case(workload="alltoall", op=None): [1.0]})
    with pytest.raises(RequestError, match="nothing to compare with choi2021"):
        beside([observe(run)], paper("choi2021"))


def place(cell: Selector) -> tuple[str, str, str, int]:
    """Operation, policy, library, GPUs."""
    values: dict[str, Any] = dict(cell.values)
    return cell.workload, values["policy"], values["library"].removesuffix("*"), values["workers"]


def test_the_papers_figures_agree_with_what_it_says_of_them() -> None:
    found = paper("choi2021")
    times = {place(one.cell): one.seconds for one in found.figures}
    assert len(found.figures) == 12 and [one.number for one in found.conclusions] == [1, 2, 3, 4, 5]
    cuda = {policy: times["ps_bcast", policy, "CUDA-aware Open MPI", 4] for policy in ("single", "multi")}
    assert 1 - cuda["multi"] / cuda["single"] == pytest.approx(0.75, abs=0.005)
    worst, best = times["allreduce", "single", "CUDA-aware Open MPI", 4], times["allreduce", "multi", "NCCL", 4]
    assert 1 - best / worst == pytest.approx(0.93, abs=0.01)
    assert max(times.values()) == times["ps_gather", "single", "NCCL", 4] == 4.456
    both = [one for one in found.ratios if {place(one.of), place(one.over)} <= times.keys()]
    assert len(both) == 7
    for one in both:
        assert one.ratio == pytest.approx(times[place(one.of)] / times[place(one.over)], rel=0.02), one.text


def published_worlds() -> list[Times]:
    """Times that the paper published, with those that follow by its ratios; each group of ratios alone is a world."""
    published = paper("choi2021")
    known: Times = {place(one.cell): one.seconds * 1e3 for one in published.figures}
    worlds, rest = [known], list(published.ratios)
    rest = [one for one in rest if {place(one.of)[2], place(one.over)[2]} <= set(LIBRARIES)]
    while rest:
        left = []
        for one in rest:
            of, over = place(one.of), place(one.over)
            if of not in worlds[-1] and over not in worlds[-1]:
                left.append(one)
            elif of not in worlds[-1]:
                worlds[-1][of] = worlds[-1][over] * one.ratio
            else:
                worlds[-1].setdefault(over, worlds[-1][of] / one.ratio)
        if len(left) == len(rest):
            worlds.append({place(left[0].over): 100.0})
        rest = left
    return worlds


def test_what_the_paper_published_of_collectives_does_not_refute_it(tmp_path: Path) -> None:
    worlds = published_worlds()
    assert len(worlds) > 3 and len(worlds[0]) > 12
    verdicts: set[tuple[int, str]] = set()
    every = {at: time for one in worlds for at, time in one.items()}
    for number, world in enumerate([*worlds, every]):
        together = number == len(worlds)  # of several worlds only growths can be compared
        for one in judged(tmp_path / str(number), world).values():
            if not together or one.conclusion.number == 5:
                verdicts.add((one.conclusion.number, one.verdict))
                assert one.verdict != "does not hold here" and all(
                    part.verdict != "does not hold here" for part in one.parts
                ), one
    assert {(1, "unclear"), (3, "unclear"), (5, "unclear")} <= verdicts


def test_figures_that_are_none_are_refused() -> None:
    with pytest.raises(RunReadError, match="cannot be read"):
        decode(b'{"reference": 1}')
