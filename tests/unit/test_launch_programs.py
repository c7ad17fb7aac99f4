"""Programs in launch plans: one rank, a record for each measure, memory."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.unit.test_placement import cells_of, machine, with_gpus

from collbench.errors import PlanError
from collbench.launch.campaign import PreparedCampaign, finished
from collbench.launch.cells import cases_in, inner_plan
from collbench.launch.collect import placed_case
from collbench.launch.expansion import expand, refuse_too_large
from collbench.launch.stacks import Stacks
from collbench.schema.plan import Plan
from collbench.schema.record import Record

POLICIES = ("host", "single", "multi", "packed:1", "packed:2", "packed:3", "packed:9")


def test_workloads_are_launched_on_one_rank_and_have_a_record_for_each_measure() -> None:
    asked = Plan(
        benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "16")},),
        images=("openmpi",),
        policies=("host", "multi"),
    )
    expanded = expand(asked, lambda engine: machine(1, 4))
    cells, cases = expanded.cells, expanded.expected
    assert [(one.policy, one.ranks) for one in cells] == [("host", 1), ("multi", 1)]
    assert {len(found) for found in cases.values()} == {8}
    assert {kept["backend"] for found in cases.values() for kept in found} == {""}
    prepared = PreparedCampaign(expanded, {}, Stacks({}, (), (), ()))
    host = cells[0]
    whole = tuple(Record(case=placed_case(case, host), launch=0, status="ok") for case in cases[host])
    assert finished(prepared.expanded, whole) == {(host, 0)}
    assert finished(prepared.expanded, whole[1:]) == frozenset()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_program_that_takes_more_memory_than_is_free_is_not_started(device: Literal["cpu", "gpu"]) -> None:
    """stream has three arrays in host memory, also in a plan whose collectives are on GPUs."""
    asked = Plan(
        benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "1G")},), images=("openmpi",), device=device
    )
    cases = {cell: cases_in(asked, cell) for cell in expand(asked, lambda engine: with_gpus(1, 4, 1)).cells}
    refuse_too_large(asked, cases, free=4 << 30)
    with pytest.raises(PlanError, match=r"stream size=1G arrays=any needs 3\.00 GiB of memory, and 3\.00 GiB are free"):
        refuse_too_large(asked, cases, free=3 << 30)


def test_collectives_and_workloads_of_one_launch_plan() -> None:
    asked = Plan(collectives=("allreduce",), benchmarks=("stream",), images=("openmpi",), sizes=("8",))
    (first, *_) = cells_of(asked)
    found = [kept.workload for case in cases_in(asked, first) for kept in case.identities]
    assert found == ["allreduce"] + 4 * ["stream"]
    assert inner_plan(asked, first).workloads == ("stream",)
