"""Conclusions of papers: each verdict and what decides it, of programs, of training, of chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_papers import conv, copy, gemm, gpu_launch, judged, rnn, sysbench, write
from tests.unit.made_runs import (
    Entry,
    experiment,
    image,
    library,
    made_case,
    made_record,
    spread,
    with_facts,
    write_run,
)

from collbench.analysis.conclusions import JudgedConclusion, PartVerdict, decide, judge, planned_conclusions
from collbench.analysis.papers import Item, Needs, Selector, decode, items_of, kinds_of, workers
from collbench.analysis.results import joined
from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError, RunReadError
from collbench.report.paper import beside, paper
from collbench.schema.case import Case, case_of
from collbench.schema.record import ResultCheck, Work

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


def judged_conclusions(path: Path, times: Times) -> dict[int, JudgedConclusion]:
    published = paper("choi2021")
    (kind,) = kinds_of([measured(path, times)], published)
    return {one.conclusion.number: one for one in judge(published, kind)}


def test_a_world_like_the_papers_confirms_all_five(tmp_path: Path) -> None:
    found = judged_conclusions(tmp_path / "run", the_papers_world())
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
    found = judged_conclusions(tmp_path / "run", the_papers_world() | {cell: milliseconds})
    assert found[number].verdict == "does not hold here", found[number]


def test_being_as_good_is_not_being_best(tmp_path: Path) -> None:
    world = the_papers_world()
    found = judged_conclusions(
        tmp_path / "run", world | {("allreduce", "multi", "MPICH", 4): world["allreduce", "multi", "NCCL", 4]}
    )
    assert found[4].verdict == "does not hold here"


def test_what_was_not_measured_leaves_a_conclusion_open(tmp_path: Path) -> None:
    world = {key: time for key, time in the_papers_world().items() if key[2] in ("Open MPI", "MPICH")}
    found = judged_conclusions(tmp_path / "run", world)
    assert {number: one.verdict for number, one in found.items()} == {
        1: "unclear", **dict.fromkeys((2, 3, 4, 5), "not measured")}  # fmt: skip
    assert found[1].parts[0].missing == {"library": ("CUDA-aware Open MPI", "NCCL*")}


def test_as_many_gpus_as_the_paper_has_are_needed(tmp_path: Path) -> None:
    found = judged_conclusions(tmp_path / "run", {key: time for key, time in the_papers_world().items() if key[3] <= 2})
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
        for one in judged_conclusions(tmp_path / str(number), world).values():
            if not together or one.conclusion.number == 5:
                verdicts.add((one.conclusion.number, one.verdict))
                assert one.verdict != "does not hold here" and all(
                    part.verdict != "does not hold here" for part in one.parts
                ), one
    assert {(1, "unclear"), (3, "unclear"), (5, "unclear")} <= verdicts


def test_figures_that_are_none_are_refused() -> None:
    with pytest.raises(RunReadError, match="cannot be read"):
        decode(b'{"reference": 1}')


# Conclusions of papers with several links, patterns, and cells that are only shown, on runs that are made up

GRU, LSTM = "gru_h512_n32_t1", "lstm_h512_n16_t25"
PAPER = "siddaramanna2018"

#: What a record of a program does not have.
ALONE: dict[str, Any] = {"driver": None, "gate": None, "cadence": None}


def test_most_counts_the_problems_of_the_paper(tmp_path: Path) -> None:
    """Of 160 products 81 decide, however few a run has; of the passes of a convolution most."""
    passes = [*conv(1.0), *conv(1.0, measure="backward_data"), *conv(1.3, measure="backward_weights")]
    most = judged(PAPER, write(tmp_path / "most", [*gemm(1.01), *gemm(1.3, 79, skipped=81), *passes]))[1]
    assert most.verdict == "holds here"
    counts = [(one.support, one.against, one.total, one.needed) for one in most.parts]
    assert counts == [(81, 79, 160, 81), (46, 0, 90, 46)]
    one = judged(PAPER, write(tmp_path / "one", [*gemm(1.0, 1), *conv(1.0)]))[1]
    assert [part.verdict for part in one.parts] == ["unclear", "holds here"]


def test_a_chain_without_a_link_has_no_verdict(tmp_path: Path) -> None:
    """On a processor nothing is launched; what its layers did is shown beside."""
    found = judged(PAPER, write(tmp_path / "cpu", [*rnn("gru", 1.0, number=1), *rnn("lstm", 1.0, number=1)]))[3]
    assert found.verdict == "not measured"
    assert [[one.workload for one in part.absent] for part in found.parts] == [["deepbench_rnn"], ["gpu_launch"]]
    assert sorted((one.sides[0].case["problem"][:3], one.verdict) for one in found.evidence) == [
        ("gru", None), ("lst", None)]  # fmt: skip
    gpu = judged(PAPER, write(tmp_path / "gpu", [*rnn("gru", 1.1, "cuda"), gpu_launch("issue", 1.3)]))[3]
    assert (gpu.verdict, [part.verdict for part in gpu.parts]) == ("unclear", ["holds here", "unclear"])
    assert gpu.parts[1].missing == {"measure": ("issue_wait",)}
    link = judged(PAPER, write(tmp_path / "link", rnn("gru", 1.1, "cuda")))[3]
    assert (link.verdict, [part.verdict for part in link.parts]) == ("not measured", ["holds here", "not measured"])


def test_the_number_of_kernels_stands_beside_the_cell(tmp_path: Path) -> None:
    host = case_of("deepbench_rnn", {"problem": LSTM, "image": "torch", "measure": "forward"})
    inside = host.having(engine="docker", policy="multi", isolation="strict")
    check = ResultCheck(wrong=0, figures={"relative error": 1e-7, "kernels": 4500.0})
    more: dict[Case, list[Entry]] = {
        case: [made_record(case, launch, 0.1, check=check, **ALONE) for launch in range(10)] for case in (host, inside)
    }
    observed = write(tmp_path / "run", gemm(1.0, 1), more=more)
    (one,) = judged(PAPER, observed)[2].evidence
    assert one.figures == {"kernels": 4500.0}
    shown = beside([observed], paper(PAPER))
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    assert "deepbench_rnn, 4,500 kernels" in [row[1] for row in cells.rows]


def test_near_and_far_are_compared_in_containers_alone(tmp_path: Path) -> None:
    """How far the host loses is not asked; it stands beside the container that is near."""
    planted = [copy(measure, ratio, affinity) for measure in ("h2d", "d2h", "d2d")
               for affinity, ratio in (("near", 1.0), ("far", 2.0))]  # fmt: skip
    observed = write(tmp_path / "run", planted)
    near, far = kinds_of([observed], paper(PAPER))
    assert (near.place, far.place) == ("multi strict", "multi strict far")
    assert (len(near.far), len(near.beside_host), far.far) == (3, 3, ())
    found = judged(PAPER, observed)[4]
    pairs = [(one.comparison.pair, one.ratio) for one in found.evidence if one.comparison]
    shown = [(pair.base_name, pair.other_name, round(ratio.value, 1) if ratio else None) for pair, ratio in pairs]
    assert shown == [("near", "far", 2.0)] * 2 + [("host", "multi strict", 1.0)] * 2


def test_without_a_program_both_near_and_far_nothing_is_compared_by_affinity(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [copy("h2d", 1.0), gpu_launch("issue", 1.0)])
    other = write(tmp_path / "far", [("gpu_launch", {"measure": "issue_wait", "affinity": "far"}, 1.0)])
    observed.cells.update(other.cells)
    assert all(one.far == () for one in kinds_of([observed], paper(PAPER)))


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ({"problem": "gru_*"}, True),
        ({"problem": "lstm_*"}, False),
        ({"problem": ("lstm_*", "gru_h512_*")}, True),
        ({"problem": "gru_*", "threads": 2}, True),
        ({"problem": "gru_*", "threads": "2"}, False),
        ({"device": "*"}, False),
    ],
)
def test_a_text_may_be_a_pattern(values: dict[str, Any], taken: bool) -> None:
    case = case_of("deepbench_rnn", {"problem": GRU, "threads": 2})
    assert Selector(workload="deepbench_rnn", values=values).takes(case) is taken


def test_figures_of_the_check_survive_several_launches_and_runs(tmp_path: Path) -> None:
    case = case_of("deepbench_rnn", {"problem": GRU, "image": "torch", "measure": "forward"})
    records = [
        made_record(case, launch, 0.1, check=ResultCheck(wrong=0, figures={"kernels": 10.0 + launch}), **ALONE)
        for launch in range(2)
    ]
    first = observe(write_run(tmp_path / "run", {case: records})).cells
    assert first[case].figures == {"kernels": 11.0}
    other = msgspec.structs.replace(records[0], check=None)
    second = observe(write_run(tmp_path / "other", {case: [other]})).cells
    assert joined([(second, 0), (first, 1)])[case].figures == {"kernels": 11.0}


# Conclusions on training with parameter servers, on runs that are made up ---------------------------------------------

#: Policy, servers, workers, shard.
Way = tuple[str, int, int, str]

ONE_PROCESS: Way = ("multi", 0, 1, "variable")
LAUNCHES = 10


def case(place: Way) -> Case:
    policy, servers, workers, shard = place
    own = Case(workload="parameter_server", what={"steps": 1000}, how={"servers": servers, "shard": shard})
    where = {} if policy == "host" else {"engine": "docker", "policy": policy, "isolation": "strict"}
    return own.having(**where, image="torch", measure="steps", ranks=workers + servers)


def measured_training(place: Way, seconds: list[float]) -> list[Entry]:
    work = Work(amount=1000, unit="steps")
    return [made_record(case(place), launch, time, work=work, driver=None, gate=None, cadence=None)
            for launch, time in enumerate(seconds)]  # fmt: skip


def trained(path: Path, times: dict[Way, float], share: float = 0.001, seconds: float = 2.0) -> Observed:
    """A run in which these ways take so many times the time of one process in a container."""
    cells: dict[Case, list[Entry]] = {
        case(place): measured_training(place, spread(seconds * ratio, LAUNCHES, 0.001 if ratio == 1.0 else share))
        for place, ratio in times.items()
    }
    return observe(write_run(path, cells))


def without_reasons(observed: Observed, number: int) -> tuple[PartVerdict, ...]:
    """The parts of a conclusion, as if containers were not pinned."""
    published = paper("zhao2018")
    conclusions = [
        msgspec.structs.replace(one, parts=tuple(msgspec.structs.replace(part, lacking="") for part in one.parts))
        for one in published.conclusions
    ]
    published = msgspec.structs.replace(published, conclusions=tuple(conclusions))
    found = {one.conclusion.number: one for one in judge(published, kinds_of([observed], published)[0])}
    return found[number].parts


def single(servers: int, workers: int, shard: str = "variable") -> Way:
    return ("single", servers, workers, shard)


def multi(servers: int, workers: int, shard: str = "variable") -> Way:
    return ("multi", servers, workers, shard)


ALONE_TRAINING = {ONE_PROCESS: 1.0}


def grid(*policies: str, ratio: float = 1.2, shard: str = "variable") -> dict[Way, float]:
    """Every cell of several servers takes so many times the time of one server."""
    return {
        (policy, servers, workers, shard): 1.0 if servers == 1 else ratio
        for policy in policies for servers in (1, 2, 3) for workers in range(1, 25)
    }  # fmt: skip


#: Conclusion, times, how much they vary, verdict.
CASES: list[tuple[int, dict[Way, float], float, str]] = [
    (3, ALONE_TRAINING | {single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, 0.001, "not measured"),
    (4, {single(1, 2): 1.0, multi(1, 2): 0.7}, 0.001, "not measured"),
    (5, grid("single", "multi"), 0.001, "holds here"),
    (5, grid("single"), 0.001, "unclear"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(3, 2): 0.9}, 0.001, "does not hold here"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.05}, 0.3, "unclear"),
    (5, {single(1, 2): 1.0, single(2, 4): 0.5, multi(2, 2): 0.5}, 0.001, "not measured"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(1, 2, "even"): 1.0, single(2, 2, "even"): 0.5}, 0.001,
     "unclear"),
    (6, grid("single", "multi", shard="even"), 0.001, "holds here"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.6}, 0.001, "does not hold here"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.95}, 0.3, "unclear"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "times", "share", "verdict"), CASES)
def test_every_conclusion_comes_out_each_way(
    tmp_path: Path, number: int, times: dict[Way, float], share: float, verdict: str
) -> None:
    found = judged("zhao2018", trained(tmp_path / "run", times, share))[number]
    assert found.verdict == verdict, found


#: Of Docker Multiple and Docker CPU Affinity against Docker Single, if containers were not pinned.
EXISTS: list[tuple[dict[Way, float], list[str]]] = [
    ({single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, ["holds here", "holds here"]),
    ({single(1, 2): 1.5, single(1, 1): 1.5, multi(1, 2): 1.2}, ["unclear", "unclear"]),
    ({single(1, 2): 0.8}, ["holds here", "not measured"]),
    ({single(1, 2, "even"): 0.8, multi(1, 2, "even"): 0.7}, ["not measured", "not measured"]),
    (grid("single", "multi", ratio=1.5) | dict.fromkeys(
        [(policy, 1, workers, "variable") for policy in ("single", "multi") for workers in range(1, 25)], 1.4),
     ["does not hold here", "does not hold here"]),
]  # fmt: skip


@pytest.mark.parametrize(("times", "verdicts"), EXISTS)
def test_a_part_of_the_grid_does_not_refute_that_something_is_in_it(
    tmp_path: Path, times: dict[Way, float], verdicts: list[str]
) -> None:
    found = without_reasons(trained(tmp_path / "run", ALONE_TRAINING | times), 3)
    assert [one.verdict for one in found] == verdicts


def test_what_was_not_measured_of_the_grid_is_known(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", ALONE_TRAINING | {single(1, 1): 1.5, single(1, 2): 1.5})
    multiple, _ = without_reasons(observed, 3)
    assert (multiple.verdict, multiple.against, multiple.total) == ("unclear", 2, 72)
    assert multiple.missing == {"servers": (2, 3), "workers": tuple(range(3, 25))}


def test_pinned_containers_have_a_reason_and_no_verdict(tmp_path: Path) -> None:
    found = judged("zhao2018", trained(tmp_path / "run", ALONE_TRAINING | {single(1, 2): 1.5, multi(1, 2): 1.5}))
    for one in (found[3], found[4]):
        assert one.verdict == "not measured" and all(part.part.lacking for part in one.parts)
        assert {evidence.verdict for evidence in one.evidence} == {"not measured"}
    assert len(found[3].evidence) == 2


def test_a_part_that_no_run_can_show_leaves_no_verdict_to_the_others(tmp_path: Path) -> None:
    published = paper("zhao2018")
    third, fifth = published.conclusions[2], published.conclusions[4]
    both = msgspec.structs.replace(fifth, parts=(third.parts[0], *fifth.parts))
    asked = msgspec.structs.replace(published, conclusions=(fifth, both))
    observed = trained(tmp_path / "run", ALONE_TRAINING | {single(1, 2): 1.5, single(2, 2): 1.0})
    found = judge(asked, kinds_of([observed], asked)[0])
    assert [one.verdict for one in found] == ["does not hold here", "not measured"]
    items = items_of(observed)
    assert [one.can_refute for one in planned_conclusions(asked, items)] == [True, False]


def test_more_ranks_than_cores_are_no_evidence_on_the_server(tmp_path: Path) -> None:
    times = {single(1, 2): 1.0, multi(1, 2): 1.5}
    (idle,) = without_reasons(trained(tmp_path / "idle", times), 4)
    observed = with_facts(trained(tmp_path / "crowded", times), oversubscribed=True)
    (crowded,) = without_reasons(observed, 4)
    assert (idle.verdict, crowded.verdict) == ("does not hold here", "not measured")
    assert [one.reason for one in crowded.evidence] == ["crowded"]


def test_the_host_is_no_part_of_a_claim(tmp_path: Path) -> None:
    observed = trained(
        tmp_path / "run", ALONE_TRAINING | {("host", 1, 2, "variable"): 0.5, ("host", 2, 2, "variable"): 0.2}
    )
    assert {one.verdict for one in judged("zhao2018", observed).values()} == {"not measured"}


def test_what_failed_decides_nothing(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        case(ONE_PROCESS): measured_training(ONE_PROCESS, [2.0] * 8),
        case(single(1, 2)): ["killed"] * 8,
    }
    found = without_reasons(observe(write_run(tmp_path / "run", cells)), 3)
    assert found[0].verdict == "not measured"
    assert found[0].evidence[0].reason == "not comparable" and "killed" in str(found[0].evidence[0].why)


def test_a_run_that_lacks_one_side_of_every_claim_names_it(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", {("host", 1, 2, "variable"): 1.0, multi(1, 2): 1.1, multi(1, 4): 1.2})
    found = judged("zhao2018", observed)
    assert [one.values["servers"] for one in found[3].parts[1].absent] == [0]
    assert [one.values["policy"] for one in found[4].parts[0].absent] == ["single"]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (ONE_PROCESS, "multi strict, one process"),
        (single(2, 4, "even"), "single strict, 2 servers (even), 4 workers"),
        (("host", 1, 1, "variable"), "host, 1 server, 1 worker"),
    ],
)  # fmt: skip
def test_a_way_is_named(place: Way, text: str) -> None:
    assert Item(case(place)).name == text


def test_published_ratios_follow_from_the_published_times() -> None:
    published = paper("zhao2018")
    times = {(one.machine, msgspec.json.encode(one.cell)): one.seconds for one in published.figures}
    for one in published.ratios:
        (machine,) = {machine for machine, _ in times if f"({machine})" in one.text}
        of, over = (times[machine, msgspec.json.encode(cell)] for cell in (one.of, one.over))
        assert one.ratio == pytest.approx(of / over, abs=0.005)


def test_ratios_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    shown = beside(
        [trained(tmp_path / "run", ALONE_TRAINING | {single(1, 7): 0.9, multi(1, 7): 0.8})], paper("zhao2018")
    )
    rows = {row[0]: row[1:] for table in shown.more if table.title.startswith("ratios") for row in table.rows}
    assert rows["training, Docker Multiple, 1 server, 7 workers over Docker Single (server)"] == ("0.22x", "0.90x")
    assert rows["training, Docker CPU Affinity, 1 server, 7 workers over Docker Single (laptop)"] == ("0.82x", "0.80x")
    assert rows["training, Docker Multiple, 1 server, 12 workers over Docker Single (laptop)"][1] == "not measured"


def test_a_run_of_sysbench_has_no_tables_of_training(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [sysbench("cpu", 1.01)])
    shown = beside([observed], paper("zhao2018"))
    assert not any(table.title.startswith("ratios") for table in shown.more)
    found = judged("zhao2018", observed)
    assert {found[number].verdict for number in range(2, 7)} == {"not measured"}
