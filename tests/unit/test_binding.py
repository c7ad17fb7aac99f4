"""Ranks and their cores: bindings, shapes of worlds, threads, one program for all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tests.unit import made_measurements
from tests.unit.made_programs import PLAN, row_with, shell

from collbench import workloads
from collbench.bindings.spec import World
from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, host, rank_facts
from collbench.run import facts_of_ranks
from collbench.run.cases import program_cases
from collbench.run.facts_of_ranks import bind, place_difference, shape_difference, software_difference
from collbench.run.failures import Unwatched
from collbench.run.program import AloneWorld, Peers, measure_program
from collbench.run.sampling import choose_method
from collbench.schema.case import case_of
from collbench.schema.record import Confinement, Record
from collbench.schema.world import GPU, HOST, SHAPE, Place, Shape
from collbench.schema.world import shapes as planned_shapes
from collbench.units import parse_spans
from collbench.workloads.program import threads_of_rank

PLACES = (Place(container="box-0", cores="0-1", gpu="GPU-a"), Place(container="box-1", cores="2,3", gpu="GPU-b"))
CAME_TRUE = tuple(replace(rank_facts(gpu), container=container, cores=frozenset(cores)) for container, cores,
                  gpu in (("box-0", (0, 1), "GPU-a"), ("box-1", (2, 3), "GPU-b")))  # fmt: skip


def of_openmpi(rank: int) -> dict[str, str]:
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The cores that the kernel was told."""
    cores: list[set[int]] = []

    def affinity(process: int, wanted: Iterable[int]) -> None:
        assert process == 0
        cores.append(set(wanted))

    monkeypatch.setattr(os, "sched_setaffinity", affinity)
    return cores


@pytest.mark.parametrize(("rank", "cores"), [(0, {0, 1}), (1, {2, 3})])
def test_a_rank_binds_itself_to_its_own_cores(bound: list[set[int]], rank: int, cores: set[int]) -> None:
    environment = of_openmpi(rank)
    bind(PLACES, environment)
    assert (bound, environment[GPU]) == ([cores], PLACES[rank].gpu)


@pytest.mark.parametrize(("places", "environment"),
                         [(None, {}), (None, of_openmpi(1)), (PLACES, of_openmpi(2)), ((), {})])  # fmt: skip
def test_who_has_no_place_is_not_bound(bound: list[set[int]], places: tuple[Place, ...] | None,
                                       environment: dict[str, str]) -> None:  # fmt: skip
    bind(places, environment)
    assert (bound, GPU in environment) == ([], False)


def test_programs_of_a_rank_without_a_gpu_are_told_so(bound: list[set[int]]) -> None:
    environment = {GPU: "GPU-of-the-program-that-started-this-launch"}
    bind((Place(container=None, cores="0"),), environment)
    assert environment == {GPU: ""}


def test_a_world_as_planned_and_one_that_nobody_planned_do_not_differ() -> None:
    """A backend that uses no GPU may leave it alone."""
    without_gpus = tuple(replace(rank, gpu=None) for rank in CAME_TRUE)
    assert (
        place_difference(CAME_TRUE, PLACES)
        is place_difference(without_gpus, PLACES)
        is place_difference(CAME_TRUE, None, {})
        is None
    )


def test_differences_in_words(golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every world that is not as planned, which rank is where; of a rank, which cores it may not use."""
    on_the_host = Place(container=None, cores="0-1")
    lines = [place_difference(CAME_TRUE[:1], PLACES), place_difference(CAME_TRUE[:1], (on_the_host,)),
             place_difference((replace(CAME_TRUE[0], container=None),), (on_the_host,))]  # fmt: skip
    elsewhere: list[tuple[int, dict[str, Any]]] = [(1, {"cores": frozenset({2})}), (0, {"cores": frozenset({0, 1, 2})}),
                                                   (1, {"container": "box-0"}), (0, {"gpu": "GPU-b"})]  # fmt: skip
    for number, fields in elsewhere:
        came = [replace(rank, **fields) if rank is CAME_TRUE[number] else rank for rank in CAME_TRUE]
        lines.append(place_difference(tuple(came), PLACES))
    lines += [shape_difference((planned,), seats) for planned, seats in (*UNSHAPED, (PLANNED, (*SEATS, SEATS[0])))]
    lines.append(facts_of_ranks.place_difference(SEATS[:3], None, {SHAPE: msgspec.json.encode(PLANNED).decode()}))
    lines += [software_difference(ranks) for ranks in OTHER_SOFTWARE]
    monkeypatch.setattr(os, "sched_setaffinity", Mock(side_effect=OSError(22, "Invalid argument")))
    crossed, wrong_shape = SRUN | {"PMI_RANK": "2", "PMI_SIZE": "4"}, {SHAPE: "{}"}
    lines.append(launcher.contradiction(crossed))
    acts: list[tuple[set[int], Callable[[], object]]] = [
        ({4, 5, 6}, lambda: bind(PLACES, of_openmpi(1))), ({5}, lambda: facts_of_ranks.bind_to_shape((PLANNED,), SRUN)),
        ({5}, lambda: facts_of_ranks.bind_to_shape((PLANNED,), crossed)), ({5}, lambda: planned_shapes(wrong_shape)),
    ]  # fmt: skip
    for mask, act in acts:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, mask=mask: mask)
        with pytest.raises(WorldMismatch) as refused:
            act()
        lines.append(str(refused.value))
    assert None not in lines
    golden("worlds-unlike-planned.txt", "".join(f"{line}\n" for line in lines))


# Cores that ranks share -----------------------------------------------------------------------------------------------


def ranks(*where: str) -> tuple[RankFacts, ...]:
    """`a:0-3` is a rank on machine a that may use cores 0 to 3."""
    split = (one.split(":") for one in where)
    return tuple(replace(rank_facts(), kernel_id=machine, cores=parse_spans(own)) for machine, own in split)


def threads_of(world: Sequence[RankFacts]) -> tuple[int, ...]:
    return tuple(facts_of_ranks.threads_of(world, number) for number in range(len(world)))


@pytest.mark.parametrize(("where", "threads"), [("a:0-3", (4,)), ("a:0-1 a:2-3", (2, 2)), ("a:0-3 a:0-3", (2, 2)),
                                                ("a:0-3 b:0-3", (4, 4)), ("a:0-1 a:0-1 a:0-1", (1, 1, 1)),
                                                ("a:0-3 a:0", (2, 1)), ("a:0-6 a:0-6", (3, 3))])  # fmt: skip
def test_cores_are_divided_among_the_ranks_of_a_machine_that_may_use_them(where: str, threads: tuple[int, ...]) -> None:
    assert threads_of(ranks(*where.split())) == threads


def test_shared_cores_are_told_where_there_are_enough_for_all() -> None:
    """Records say otherwise that there are more ranks than cores."""
    (note,) = facts_of_ranks.notes(ranks("a:0-3", "a:0-3"))
    assert all(name in note for name in ("ranks 0-1 ", " 0-3,", " 2 ", "threads=0"))
    for where in ("a:0-1 a:2-3", "a:0 b:0", "a:0-1", "a:0 a:0"):
        assert facts_of_ranks.notes(ranks(*where.split())) == ()


@pytest.mark.parametrize(("where", "siblings", "threads", "names"), [
    ("a:0 a:1", ((0, 1),), (1, 1), ("ranks 0 and 1 ", " 0 ", "(threads 0, 1)")),
    ("a:0 a:1", ((0, 2), (1, 3)), None, None), ("a:0-1 a:0-1", ((0, 1),), None, None), ("a:0-1", ((0, 1),), (1,), None),
])  # fmt: skip
def test_ranks_on_hardware_threads_of_one_core_are_a_note(
    where: str, siblings: tuple[tuple[int, int], ...], threads: tuple[int, ...] | None, names: tuple[str, ...] | None
) -> None:
    world = tuple(replace(rank, siblings=siblings) for rank in ranks(*where.split()))
    notes = facts_of_ranks.siblings(world)
    assert len(notes) == (names is not None) and all(name in note for note in notes for name in names or ())
    assert threads is None or threads_of(world) == threads


def test_a_process_takes_the_threads_that_its_rank_has() -> None:
    """Threads of which a plan says nothing are left to the process."""
    usual: dict[str, Any] = {"network": "fcn5", "batch": 0, "bucket": 0, "device": "cpu", "servers": 1,
                             "shard": "even", "steps": 1, "data": "made-up", "seed": 1}  # fmt: skip
    for name in ("ddp", "parameter_server"):
        words = list(workloads.get(name).argv(case_of(name, usual | {"threads": 0, "ranks": 2}), 1))
        assert words[words.index("--threads") + 1] == "0"
    variables = Peers(AloneWorld(), Unwatched(), threads=3).variables()
    assert (threads_of_rank(0, variables), threads_of_rank(2, variables)) == (3, 2)
    assert threads_of_rank(0, {}) >= 1


@pytest.mark.torch
def test_torch_is_given_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from collbench.workloads.dl import ddp

    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    ddp.TorchRanks("cpu", 0)
    ddp.TorchRanks("cpu", 2)
    assert threads == [7, 2]


def record_of_rank_0(monkeypatch: pytest.MonkeyPatch, *where: str) -> Record:
    """What a program that says its threads gives on these ranks, each of which is a thread here.

    Of the three samples after the warm-up (ns) the first takes rank 1 the longest, and the second rank 0.
    """
    times = json.dumps({name: [9, 10, 20, 30] for name in ("copy", "scale", "add", "triad")})
    by_rank = times.replace("10, 20", "'$((10 + 50 * RANK))', '$((20 - 15 * RANK))'")
    output = f"""printf '%s' '{{"ns": {by_rank}, "wrong": 0, "notes": ["'$OMP_NUM_THREADS' threads"]}}'"""
    row = replace(row_with(shell(output)), distributed=True)
    monkeypatch.setattr(workloads, "get", lambda name: row)
    facts, (case,) = ranks(*where), program_cases(PLAN, len(where))
    method = choose_method(PLAN, facts, simulated=False)

    def body(world: World) -> Record:
        session: Any = SimpleNamespace(world=world, clock=time.monotonic_ns, failures=None)
        return measure_program(case, PLAN, session, method, Unwatched())[0][0]

    return made_measurements.in_world(len(where), body)[0]


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
    siblings, method = Mock(return_value=("a note",)), made_measurements.method()
    monkeypatch.setattr(facts_of_ranks, "siblings", siblings)
    assert [method.siblings for _ in range(3)] == [("a note",)] * 3
    siblings.assert_called_once_with(method.ranks)


# Worlds that a resource manager started -------------------------------------------------------------------------------


def in_files(number: int) -> Confinement:
    """That of a rank in the mount namespace of this number."""
    return msgspec.structs.replace(rank_facts().confinement, namespaces={"mnt": number})


#: Two hosts with two ranks each, of two cores.
PLANNED = Shape(hosts=2, each=2, cores=2)
SEATS = tuple(replace(rank_facts(), host=host, kernel_id="boot", cores=frozenset(cores), gpu=None,
                      confinement=in_files(files)) for host, cores,
              files in (("n0", (0, 1), 1), ("n0", (2, 3), 1), ("n1", (0, 1), 2), ("n1", (2, 3), 2)))  # fmt: skip
SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}


def changed(rank: int, **fields: Any) -> tuple[RankFacts, ...]:
    return tuple(replace(seat, **fields) if number == rank else seat for number, seat in enumerate(SEATS))


#: Processors 0 and 1 are the hardware threads of one core, 2 and 3 those of the next; a rank on each of the first two.
THREADS = ((0, 1), (2, 3))
ONE_CORE = Shape(hosts=1, each=2, cores=1)
ON_ONE_CORE = tuple(replace(SEATS[0], cores=frozenset({cpu}), siblings=THREADS) for cpu in (0, 1))

#: Worlds that are not as planned: too few ranks or hosts, uneven hosts, cores that are shared or missing, ranks of a
#: host in several places or in one, a GPU for two.
UNSHAPED = ((PLANNED, SEATS[:3]), (PLANNED, tuple(replace(seat, host="n0") for seat in SEATS)),
            (PLANNED, changed(2, host="n0")), (PLANNED, changed(1, cores=frozenset({1, 2}))),
            (PLANNED, changed(3, cores=frozenset({2}))), (PLANNED, changed(1, confinement=in_files(9))),
            (msgspec.structs.replace(PLANNED, boxes="rank"), SEATS), (msgspec.structs.replace(PLANNED, boxes=1), SEATS),
            (PLANNED, tuple(replace(seat, gpu=f"GPU-{number // 2}") for number, seat in enumerate(SEATS))),
            (ONE_CORE, ON_ONE_CORE))  # fmt: skip


def test_a_world_as_planned() -> None:
    """Ranks may share cores where the plan says so."""
    assert shape_difference((PLANNED,), SEATS) is None
    assert facts_of_ranks.place_difference(SEATS, None, {SHAPE: msgspec.json.encode(PLANNED).decode()}) is None
    crowded = msgspec.structs.replace(PLANNED, crowded=True)
    assert shape_difference((crowded,), changed(1, cores=frozenset({0, 1}))) is None
    assert shape_difference((msgspec.structs.replace(ONE_CORE, crowded=True),), ON_ONE_CORE) is None
    apart = (ON_ONE_CORE[0], replace(ON_ONE_CORE[1], cores=frozenset({2})))
    assert shape_difference((ONE_CORE,), apart) is None


#: The mask of a rank, the shape of the world, and what ranks of a host take: of two hardware threads of a core, one
#: before both; of one mask for several ranks, their parts; of a mask of its own, all.
TAKEN: list[tuple[set[int], Shape, dict[int, set[int]]]] = [
    ({0, 1, 2, 3}, Shape(hosts=2, each=2, cores=1), {0: {0}, 1: {2}}),
    ({0, 1, 2, 3}, Shape(hosts=2, each=2, cores=2), {0: {0, 1}, 1: {2, 3}}),
    ({1, 2, 3}, Shape(hosts=2, each=2, cores=1), {0: {1}, 1: {2}}), ({0, 1}, Shape(hosts=2, each=1, cores=1), {0: {0}}),
    ({6, 7}, PLANNED, {1: {6, 7}}), ({4, 5, 6}, PLANNED, {1: {4, 5}}),
    ({4, 5, 6, 7}, Shape(hosts=2, each=4, cores=2, boxes=2), {1: {6, 7}}),
]  # fmt: skip


@pytest.mark.parametrize(("mask", "shape", "taken"), TAKEN)
def test_a_rank_takes_its_part_of_the_cores(monkeypatch: pytest.MonkeyPatch, bound: list[set[int]], mask: set[int],
                                            shape: Shape, taken: dict[int, set[int]]) -> None:  # fmt: skip
    monkeypatch.setattr("collbench.machine.facts.thread_siblings", lambda cpu: THREADS[cpu // 2] if cpu < 4 else (cpu,))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: mask)
    for local in taken:
        text = msgspec.json.encode(shape).decode()
        facts_of_ranks.bind(None, SRUN | {SHAPE: text, "SLURM_LOCALID": str(local)})
    assert bound == list(taken.values())


def test_a_pod_is_on_the_node_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own = rank_facts()
    monkeypatch.setenv(HOST, "node-7")
    assert replace(rank_facts(), host=own.host) == own
    assert rank_facts().host == host().name == "node-7" != own.host


def test_srun_is_seen_behind_its_pmi() -> None:
    """PMI_RANK alone is hydra's; srun with PMI-2 sets it too, and has the local rank."""
    pmi2 = SRUN | {"PMI_RANK": "3", "PMI_SIZE": "4"}
    assert launcher.detect(pmi2) == launcher.Launcher("slurm", 3, 4, 1)
    assert launcher.detect(pmi2 | {"MPI_LOCALRANKID": "0"}).kind == "mpich"
    assert launcher.contradiction(pmi2) is launcher.contradiction(SRUN) is None
    assert planned_shapes({}) == ()


# Ranks of one job run one program and one library ---------------------------------------------------------------------

OURS = ("collbench", "1.0")
OTHER_SOFTWARE: list[list[tuple[tuple[str, str], ...]]] = [
    [(OURS,), (("collbench", "0.9"),)], [(OURS, ("NCCL", "2.27.3")), (OURS,), (OURS, ("NCCL", "2.30.1"))],
]  # fmt: skip


def test_ranks_with_one_version_do_not_differ() -> None:
    """Nor from a server without a GPU, which cannot use its library."""
    assert software_difference([(OURS, ("Open MPI", "5.0.11"))] * 3) is None
    assert software_difference([(OURS,), (OURS, ("NCCL", "2.30.1"))]) is None


# Launchers and libraries ----------------------------------------------------------------------------------------------


def test_a_launcher_starts_libraries_of_its_pmi() -> None:
    pairs = {(mine, other) for mine in launcher.OF_MPI for other in launcher.OF_MPI if launcher.starts(mine, other)}
    same = {(name, name) for name in launcher.OF_MPI}
    assert pairs == same | {("mpich", "intelmpi"), ("intelmpi", "mpich")}
    assert not launcher.starts("openmpi", "unknown")
