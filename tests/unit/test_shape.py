"""Worlds that a resource manager started: what ranks do with the shape that was planned, and what they find wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, host, rank_facts
from collbench.run import binding
from collbench.run.binding import shape_difference
from collbench.schema.record import Confinement
from collbench.schema.world import HOST, SHAPE, Boxes, Shape
from collbench.schema.world import shapes as planned_shapes


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
