"""What grows with the ranks and what does not, in made-up worlds: bytes and calls, which no busy machine changes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.unit.bench_modules import bench

from collbench.schema.samples import ALL_RANKS_LIMIT

SAMPLES = 50


@cache
def made_up(ranks: int, collective: str = "allreduce", containers: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = bench("scale").made_up(ranks, collective, containers, SAMPLES)
    return found


@pytest.mark.parametrize("collective", ["allreduce", "alltoall", "bcast", "reduce_scatter"])
def test_a_case_takes_as_many_messages_whatever_the_ranks(collective: str) -> None:
    few, many = made_up(65, collective), made_up(1000, collective)
    assert few["calls"] == many["calls"]
    assert few["start_calls"] == many["start_calls"]
    assert many["calls"]["gather"] == 1, "each rank's median"
    assert many["bytes"] <= 24 * 1000


def test_a_record_grows_with_machines_and_not_with_ranks() -> None:
    bound = bench("scale").RECORD
    assert made_up(10_000)["record"] < bound
    assert made_up(10_000, containers=True)["record"] < bound
    assert made_up(1_000)["record"] < bound / 5


@pytest.mark.parametrize("containers", [False, True])
def test_the_samples_are_those_of_one_row_and_ranks_that_are_confined_alike_are_one(containers: bool) -> None:
    found = made_up(10_000, containers=containers)
    assert (found["rows"], found["confinements"]) == (1, 1)
    assert found["samples"] < 8 * SAMPLES + 200
    assert made_up(ALL_RANKS_LIMIT)["rows"] == ALL_RANKS_LIMIT


def test_what_the_ranks_have_in_common_comes_once() -> None:
    """Of each rank four hashes, and what is its own; of each machine who it is and what it is made of."""
    assert made_up(10_000)["start_bytes"] <= 160 * 10_000
    assert made_up(10_000, containers=True)["start_bytes"] <= 500 * 10_000
    assert made_up(10_000, containers=True)["manifest"] < 100 * 10_000
