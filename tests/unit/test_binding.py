"""Ranks take the cores that were planned for them, and a world that is not the planned one is named."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from collbench.errors import WorldMismatch
from collbench.machine.facts import RankFacts, rank_facts
from collbench.run.binding import bind, difference
from collbench.schema.world import GPU, Place

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
