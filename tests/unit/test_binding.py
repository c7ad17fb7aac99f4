"""Ranks and their cores: bindings, shapes of worlds, threads, one program for all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit import made_measurements
from tests.unit.made_programs import PLAN, row_with, shell

from collbench import workloads
from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, host, parse_cores, rank_facts
from collbench.run import binding, facts_of_ranks
from collbench.run.binding import bind, difference, shape_difference
from collbench.run.expand import program_cases
from collbench.run.facts_of_ranks import software_difference
from collbench.run.failures import Unwatched
from collbench.run.program import measure_program
from collbench.run.sampling import choose_method
from collbench.run.worlds_of_programs import AloneWorld, Peers
from collbench.schema.case import case_of
from collbench.schema.record import Confinement, Record
from collbench.schema.world import GPU, HOST, SHAPE, Boxes, Place, Shape
from collbench.schema.world import shapes as planned_shapes
from collbench.workloads.program import threads_of_rank

PLACES = (Place(container="box-0", cores="0-1", gpu="GPU-a"), Place(container="box-1", cores="2,3", gpu="GPU-b"))
CAME_TRUE = tuple(
    replace(rank_facts(gpu), container=container, cores=frozenset(cores))
    for container, cores, gpu in (("box-0", (0, 1), "GPU-a"), ("box-1", (2, 3), "GPU-b"))
)


def of_openmpi(rank: int) -> dict[str, str]:
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, frozenset[int]]]:
    """What the kernel was asked for: (process, cores)."""
    asked: list[tuple[int, frozenset[int]]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: asked.append((process, cores)))
    return asked


@pytest.mark.parametrize(("rank", "cores"), [(0, {0, 1}), (1, {2, 3})])
def test_a_rank_binds_itself_to_its_own_cores(bound: list[Any], rank: int, cores: set[int]) -> None:
    environment = of_openmpi(rank)
    bind(PLACES, environment)
    assert bound == [(0, cores)]
    assert environment[GPU] == PLACES[rank].gpu


@pytest.mark.parametrize(
    ("places", "environment"), [(None, {}), (None, of_openmpi(1)), (PLACES, of_openmpi(2)), ((), {})]
)
def test_who_has_no_place_is_not_bound(
    bound: list[Any], places: tuple[Place, ...] | None, environment: dict[str, str]
) -> None:
    bind(places, environment)
    assert (bound, GPU in environment) == ([], False)


def test_programs_of_a_rank_without_a_gpu_are_told_so(bound: list[Any]) -> None:
    environment = {GPU: "GPU-of-the-program-that-started-this-launch"}
    bind((Place(container=None, cores="0"),), environment)
    assert environment == {GPU: ""}


def test_cores_that_a_rank_may_not_use_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, cores: frozenset[int]) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 5, 6})
    with pytest.raises(WorldMismatch, match=r"rank 1 was to run on cores 2,3, and may use 4-6\."):
        bind(PLACES, of_openmpi(1))


def test_a_world_as_planned_does_not_differ() -> None:
    assert difference(CAME_TRUE, PLACES) is None
    without_gpus = tuple(replace(rank, gpu=None) for rank in CAME_TRUE)
    assert difference(without_gpus, PLACES) is None, "a backend that uses no GPU may leave it alone"


def test_a_world_that_nobody_planned_does_not_differ() -> None:
    assert difference(CAME_TRUE, None, {}) is None


@pytest.mark.parametrize(
    ("rank", "change", "said"),
    [
        (1, {"cores": frozenset({2})}, "rank 1 was planned on cores 2,3, and may use 2"),
        (0, {"cores": frozenset({0, 1, 2})}, "rank 0 was planned on cores 0-1, and may use 0-2"),
        (1, {"container": "box-0"}, "rank 1 was planned in box-1, and is in box-0"),
        (0, {"gpu": "GPU-b"}, "rank 0 was planned on GPU GPU-a, and uses GPU-b"),
    ],
)
def test_a_rank_elsewhere_is_named(rank: int, change: dict[str, Any], said: str) -> None:
    ranks = list(CAME_TRUE)
    ranks[rank] = replace(ranks[rank], **change)
    assert difference(tuple(ranks), PLACES) == said


def test_what_was_planned_on_the_host_or_without_a_gpu_is_said_so() -> None:
    place = Place(container=None, cores="0-1")
    assert difference((CAME_TRUE[0],), (place,)) == "rank 0 was planned in no container, and is in box-0"
    outside: RankFacts = replace(CAME_TRUE[0], container=None)
    assert difference((outside,), (place,)) == "rank 0 was planned on GPU (none), and uses GPU-a"


def test_another_number_of_ranks_is_said() -> None:
    assert difference(CAME_TRUE[:1], PLACES) == "2 ranks were planned and 1 met"


# Cores that ranks share -----------------------------------------------------------------------------------------------


def ranks(*where: str) -> tuple[RankFacts, ...]:
    """`a:0-3` is a rank on machine a that may use cores 0 to 3."""
    split = (one.split(":") for one in where)
    return tuple(replace(rank_facts(), kernel_id=machine, cores=parse_cores(own)) for machine, own in split)


@pytest.mark.parametrize(
    ("where", "threads"),
    [
        (("a:0-3",), (4,)),
        (("a:0-1", "a:2-3"), (2, 2)),
        (("a:0-3", "a:0-3"), (2, 2)),
        (("a:0-3", "b:0-3"), (4, 4)),
        (("a:0-1", "a:0-1", "a:0-1"), (1, 1, 1)),
        (("a:0-3", "a:0"), (2, 1)),
        (("a:0-6", "a:0-6"), (3, 3)),
    ],
)
def test_cores_are_divided_among_the_ranks_of_a_machine_that_may_use_them(
    where: tuple[str, ...], threads: tuple[int, ...]
) -> None:
    world = ranks(*where)
    assert tuple(facts_of_ranks.threads_of(world, number) for number in range(len(world))) == threads


def test_shared_cores_are_told_where_there_are_enough_for_all() -> None:
    assert facts_of_ranks.notes(ranks("a:0-3", "a:0-3")) == (
        "ranks 0-1 share cores 0-3, because their launcher binds none: each has 2 threads (threads=0)",
    )
    assert (
        facts_of_ranks.notes(ranks("a:0-1", "a:2-3"))
        == facts_of_ranks.notes(ranks("a:0", "b:0"))
        == facts_of_ranks.notes(ranks("a:0-1"))
        == ()
    )
    assert facts_of_ranks.notes(ranks("a:0", "a:0")) == (), "records say otherwise that there are more ranks than cores"


def test_ranks_on_hardware_threads_of_one_core_are_a_note() -> None:
    pair = tuple(replace(rank, siblings=((0, 1),)) for rank in ranks("a:0", "a:1"))
    (note,) = facts_of_ranks.siblings(pair)
    assert note.startswith("ranks 0 and 1 share core 0 (threads 0, 1) of ")
    assert [facts_of_ranks.threads_of(pair, number) for number in range(2)] == [1, 1]
    assert (
        facts_of_ranks.siblings(tuple(replace(rank, siblings=((0, 2), (1, 3))) for rank in ranks("a:0", "a:1"))) == ()
    )
    assert facts_of_ranks.siblings(tuple(replace(rank, siblings=((0, 1),)) for rank in ranks("a:0-1", "a:0-1"))) == ()
    assert facts_of_ranks.threads_of(tuple(replace(rank, siblings=((0, 1),)) for rank in ranks("a:0-1")), 0) == 1


@pytest.mark.parametrize("name", ["ddp", "parameter_server"])
def test_threads_that_nobody_asked_for_are_left_to_the_process(name: str) -> None:
    usual: dict[str, Any] = {"network": "fcn5", "batch": 0, "bucket": 0, "device": "cpu", "servers": 1,
                             "shard": "even", "steps": 1, "data": "made-up", "seed": 1}  # fmt: skip
    words = list(workloads.get(name).argv(case_of(name, usual | {"threads": 0, "ranks": 2}), 1))
    assert words[words.index("--threads") + 1] == "0"


def test_a_process_takes_the_threads_that_its_rank_has() -> None:
    told = Peers(AloneWorld(), Unwatched(), threads=3).variables()
    assert threads_of_rank(0, told) == 3
    assert threads_of_rank(2, told) == 2
    assert threads_of_rank(0, {}) >= 1


@pytest.mark.torch
def test_torch_is_given_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from collbench.workloads.dl import ddp

    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    ddp.TorchRanks("cpu", 0)
    ddp.TorchRanks("cpu", 2)
    assert asked == [7, 2]


def record_of_rank_0(monkeypatch: pytest.MonkeyPatch, *where: str) -> Record:
    """What a program that says its threads gives on these ranks, each of which is a thread here.

    Of the three samples after the warm-up (ns) the first takes rank 1 the longest, and the second rank 0.
    """
    times = json.dumps({name: [9, 10, 20, 30] for name in ("copy", "scale", "add", "triad")})
    by_rank = times.replace("10, 20", "'$((10 + 50 * RANK))', '$((20 - 15 * RANK))'")
    said = f"""printf '%s' '{{"ns": {by_rank}, "wrong": 0, "notes": ["'$OMP_NUM_THREADS' threads"]}}'"""
    row = replace(row_with(shell(said)), distributed=True)
    monkeypatch.setattr(workloads, "get", lambda name: row)
    world, (case,) = ranks(*where), program_cases(PLAN, len(where))
    method = choose_method(PLAN, world, simulated=False)
    hub, found = Hub(len(where), 20.0), list[Record]()

    def body(rank: int) -> None:
        session: Any = SimpleNamespace(world=FakeWorld(hub, rank), clock=time.monotonic_ns, failures=None)
        measured = measure_program(case, PLAN, session, method, Unwatched())
        if rank == 0:
            found.append(measured[0][0])

    run_ranks(hub, body, 20.0)
    return found[0]


def test_a_sample_is_the_time_of_the_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of_rank_0(monkeypatch, "a:0-7", "a:8-15")
    assert record.seconds is not None and record.ranks is not None
    assert [record.seconds.min, record.seconds.p50, record.seconds.max] == pytest.approx([20e-9, 30e-9, 60e-9])
    assert record.ranks.p50 == pytest.approx((20e-9, 30e-9))


def test_a_record_says_that_its_ranks_shared_cores_and_each_had_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = record_of_rank_0(monkeypatch, "a:0-7", "a:0-7")
    assert shared.status == "ok", shared.reason
    assert "4 threads" in shared.notes and any(note.startswith("ranks 0-1 share cores 0-7") for note in shared.notes)
    bound = record_of_rank_0(monkeypatch, "a:0-7", "a:8-15")
    assert "8 threads" in bound.notes and not any("share" in note for note in bound.notes)


def test_siblings_are_looked_for_once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def siblings(of: Sequence[RankFacts]) -> tuple[str, ...]:
        asked.append(len(of))
        return ("said",)

    monkeypatch.setattr(facts_of_ranks, "siblings", siblings)
    method = made_measurements.method()
    assert [method.siblings for _ in range(3)] == [("said",)] * 3
    assert asked == [len(method.ranks)]


# Worlds that a resource manager started -------------------------------------------------------------------------------


def in_files(number: int) -> Confinement:
    """That of a rank in the mount namespace of this number."""
    return msgspec.structs.replace(rank_facts().confinement, namespaces={"mnt": number})


#: Two hosts with two ranks each, of two cores.
PLANNED = Shape(hosts=2, each=2, cores=2)
SEATS = tuple(
    replace(rank_facts(), host=host, kernel_id="boot", cores=frozenset(cores), gpu=None, confinement=in_files(files))
    for host, cores, files in (("n0", (0, 1), 1), ("n0", (2, 3), 1), ("n1", (0, 1), 2), ("n1", (2, 3), 2))
)

SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}


def test_a_world_as_planned() -> None:
    assert shape_difference((PLANNED,), SEATS) is None


def changed(rank: int, **fields: Any) -> tuple[RankFacts, ...]:
    return tuple(replace(seat, **fields) if number == rank else seat for number, seat in enumerate(SEATS))


@pytest.mark.parametrize(
    ("planned", "seats", "says"),
    [
        (PLANNED, SEATS[:3], "4 ranks were planned, and 3 met"),
        (PLANNED, tuple(replace(seat, host="n0") for seat in SEATS),
         "2 hosts were planned, and the ranks are on 1 (n0)"),
        (PLANNED, changed(2, host="n0"), "2 ranks were planned on each host, and n0 has 3"),
        (PLANNED, changed(1, cores=frozenset({1, 2})), "ranks 0 and 1 share core 1 of n0"),
        (PLANNED, changed(3, cores=frozenset({2})), "rank 3 was to have 2 cores, and may use 2"),
        (PLANNED, changed(1, confinement=in_files(9)),
         "ranks 0 to 1 of a host were planned in one place, and are in 2 mount namespaces"),
        (msgspec.structs.replace(PLANNED, boxes="rank"), SEATS,
         "ranks 0 to 1 of a host were planned each in a container of its own, and are in 1 mount namespace"),
        (msgspec.structs.replace(PLANNED, boxes=1), SEATS,
         "ranks 0 to 1 of a host were planned each in a container of its own, and are in 1 mount namespace"),
        (PLANNED, tuple(replace(seat, gpu=f"GPU-{number // 2}") for number, seat in enumerate(SEATS)),
         "ranks 0 and 1 share GPU GPU-0"),
    ],
)  # fmt: skip
def test_what_differs_is_said(planned: Shape, seats: tuple[RankFacts, ...], says: str) -> None:
    assert shape_difference((planned,), seats) == says


def test_ranks_may_share_cores_where_the_plan_says_so() -> None:
    assert (
        shape_difference((msgspec.structs.replace(PLANNED, crowded=True),), changed(1, cores=frozenset({0, 1}))) is None
    )


#: Processors 0 and 1 are the hardware threads of one core, 2 and 3 those of the next.
THREADS = ((0, 1), (2, 3))


def test_ranks_on_hardware_threads_of_one_core_are_refused() -> None:
    planned = Shape(hosts=1, each=2, cores=1)
    pair = [replace(SEATS[0], cores=frozenset({cpu}), siblings=THREADS) for cpu in (0, 1)]
    assert shape_difference((planned,), pair) == "ranks 0 and 1 share core 0 (threads 0, 1) of n0"
    assert shape_difference((msgspec.structs.replace(planned, crowded=True),), pair) is None
    assert shape_difference((planned,), [pair[0], replace(pair[1], cores=frozenset({2}))]) is None


@pytest.mark.parametrize(
    ("mask", "each", "cores", "taken"),
    [
        ({0, 1, 2, 3}, 2, 1, [{0}, {2}]),  # of two cores, one for each rank
        ({0, 1, 2, 3}, 2, 2, [{0, 1}, {2, 3}]),  # all threads of both, a core for each rank
        ({1, 2, 3}, 2, 1, [{1}, {2}]),
        ({0, 1}, 1, 1, [{0}]),
    ],
)
def test_a_rank_takes_one_hardware_thread_of_each_core_first(
    monkeypatch: pytest.MonkeyPatch, mask: set[int], each: int, cores: int, taken: list[set[int]]
) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(binding, "thread_siblings", lambda cpu: THREADS[cpu // 2])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mask)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: asked.append(set(wanted)))
    for local in range(each):
        binding.bind_to_shape((Shape(hosts=2, each=each, cores=cores),), SRUN | {"SLURM_LOCALID": str(local)})
    assert asked == taken


def test_where_a_shape_was_planned_it_is_compared() -> None:
    planned = {SHAPE: msgspec.json.encode(PLANNED).decode()}
    assert binding.difference(SEATS, None, planned) is None
    assert binding.difference(SEATS[:3], None, planned) == "4 ranks were planned, and 3 met"


@pytest.mark.parametrize(
    ("mask", "each", "boxes", "taken"),
    [
        ({0, 1, 2, 3}, 2, "none", {2, 3}),  # one mask for both ranks of the node: the second half
        ({6, 7}, 2, "none", {6, 7}),  # a mask of its own
        ({4, 5, 6}, 2, "none", {4, 5}),
        ({4, 5, 6, 7}, 4, 2, {6, 7}),  # one mask for a container with two of the node's four ranks
    ],
)
def test_a_rank_takes_its_part_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, mask: set[int], each: int, boxes: Boxes, taken: set[int]
) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mask)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: asked.append(set(wanted)))
    text = msgspec.json.encode(Shape(hosts=2, each=each, cores=2, boxes=boxes)).decode()
    binding.bind(None, SRUN | {SHAPE: text})
    assert asked == [taken]


def test_a_pod_is_on_the_node_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own = rank_facts()
    monkeypatch.setenv(HOST, "node-7")
    assert replace(rank_facts(), host=own.host) == own
    assert rank_facts().host == host().name == "node-7" != own.host


def test_too_few_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    with pytest.raises(WorldMismatch, match="rank 3 was to have 2 cores, and may use 5"):
        binding.bind_to_shape((PLANNED,), SRUN)


def test_a_shape_that_no_launcher_wrote() -> None:
    with pytest.raises(WorldMismatch, match="COLLBENCH_SHAPE"):
        planned_shapes({SHAPE: "{}"})
    assert planned_shapes({}) == ()


def test_srun_is_seen_behind_its_pmi() -> None:
    """PMI_RANK alone is hydra's; srun with PMI-2 sets it too, and has the local rank."""
    pmi2 = SRUN | {"PMI_RANK": "3", "PMI_SIZE": "4"}
    assert launcher.detect(pmi2) == launcher.Launcher("slurm", 3, 4, 1)
    hydra = pmi2 | {"MPI_LOCALRANKID": "0"}
    assert launcher.detect(hydra).kind == "mpich"
    assert launcher.contradiction(pmi2) is None and launcher.contradiction(SRUN) is None


def test_a_rank_that_two_give_differently_is_refused_before_it_hangs() -> None:
    crossed = SRUN | {"PMI_RANK": "2", "PMI_SIZE": "4"}
    assert str(launcher.contradiction(crossed)).startswith("PMI_RANK is 2 and SLURM_PROCID is 3")
    with pytest.raises(WorldMismatch, match=r"PMI_RANK=\$SLURM_PROCID"):
        binding.bind_to_shape((PLANNED,), crossed)


# Ranks of one job run one program and one library ---------------------------------------------------------------------

OURS = ("collbench", "1.0")


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([(OURS, ("Open MPI", "5.0.11"))] * 3, None),
        ([(OURS,), (("collbench", "0.9"),)], "rank 0 has collbench 1.0, rank 1 has 0.9"),
        (
            [(OURS, ("NCCL", "2.27.3")), (OURS,), (OURS, ("NCCL", "2.30.1"))],
            "rank 0 has NCCL 2.27.3, rank 2 has 2.30.1",
        ),
        ([(OURS,), (OURS, ("NCCL", "2.30.1"))], None),  # a server without a GPU cannot use it
    ],
)
def test_the_first_rank_with_another_version_is_named(
    ranks: list[tuple[tuple[str, str], ...]], said: str | None
) -> None:
    assert software_difference(ranks) == said
