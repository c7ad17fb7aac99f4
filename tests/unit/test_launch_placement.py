"""Cells, their order and their places: pure functions, on machines that are made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import PlanError
from collbench.launch import placement
from collbench.launch.cells import Cell, cells_of, order_of, steps_of
from collbench.launch.slots import place
from collbench.launch.topology import Core, Topology
from collbench.run.facts import parse_cores
from collbench.schema.launch_plan import ISOLATIONS, LaunchPlan

POLICIES = ("host", "single", "multi", "packed:1", "packed:2", "packed:3", "packed:9")


def machine(nodes: int, cores: int, threads: int = 1) -> Topology:
    """Nodes of cores of threads, numbered as Linux does: all first threads, then all second ones."""
    whole = range(nodes * cores)
    return Topology(tuple(Core(thread * len(whole) + n, n // cores, n) for thread in range(threads) for n in whole))


def cell(policy: str, ranks: int) -> Cell:
    return Cell("openmpi", policy, None if policy == "host" else "strict", ranks)


def test_the_policies_are_known_by_their_files() -> None:
    assert placement.names() == ("host", "multi", "packed", "single")


@pytest.mark.parametrize(
    ("policy", "groups"),
    [
        ("host", ((0, 1, 2, 3, 4),)),
        ("multi", ((0, 1, 2, 3, 4),)),
        ("single", ((0,), (1,), (2,), (3,), (4,))),
        ("packed:2", ((0, 1), (2, 3), (4,))),
        ("packed:7", ((0, 1, 2, 3, 4),)),
    ],
)
def test_who_shares_a_container(policy: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert placement.groups_of(policy, 5) == groups


@given(
    st.sampled_from(POLICIES), st.integers(1, 12), st.integers(1, 3),
    st.integers(1, 4), st.integers(1, 8), st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_every_rank_has_a_slot_of_its_own(
    policy: str, ranks: int, each: int, nodes: int, cores: int, threads: int, oversubscribe: bool
) -> None:
    there = machine(nodes, cores, threads)
    if ranks * each > len(there.cores) and not oversubscribe:
        with pytest.raises(PlanError, match="oversubscribe = true"):
            place(there, cell(policy, ranks), each)
        return
    found = place(there, cell(policy, ranks), each, oversubscribe)
    assert sorted(rank for box in found.boxes for rank in box.ranks) == list(range(ranks))
    assert found.crowded == (ranks * each > len(there.cores))
    used = [core for slot in found.slots for core in slot.cores]
    assert set(used) <= {core.number for core in there.cores}
    assert len(found.slots) == ranks
    if not found.crowded:
        assert len(used) == len(set(used)) == ranks * each
    node_of = {core.number: core.node for core in there.cores}
    for box in found.boxes:
        mine = {core for slot in box.slots for core in slot.cores}
        assert parse_cores(box.cores) == mine
        assert parse_cores(box.nodes) == {node_of[core] for core in mine}


def test_whole_cores_come_before_second_threads_and_nodes_are_filled_one_by_one() -> None:
    there = machine(nodes=2, cores=2, threads=2)
    assert [slot.cores for slot in place(there, cell("single", 8)).slots] == [
        (0,), (1,), (4,), (5,), (2,), (3,), (6,), (7,)
    ]  # fmt: skip


def test_far_takes_memory_from_the_other_node_or_says_that_there_is_none() -> None:
    far = Cell("openmpi", "single", "strict", 2, "far")
    found = place(machine(2, 1), far)
    assert [(box.cores, box.nodes) for box in found.boxes] == [("0", "1"), ("1", "0")]
    with pytest.raises(PlanError, match="affinity far: this machine has one memory node"):
        place(machine(1, 2), far)


def test_steps_that_differ() -> None:
    assert steps_of("host", 2, ISOLATIONS) == (None,)
    assert steps_of("single", 2, ISOLATIONS) == ISOLATIONS
    assert steps_of("multi", 2, ISOLATIONS) == ("strict", "limits", "ipc")
    assert steps_of("single", 1, ("strict", "visible")) == ("strict", "ipc")


def test_blocks_hold_every_cell_once_and_follow_from_the_seed() -> None:
    plan = LaunchPlan(collectives=("bcast",), images=("a", "b"), isolation=ISOLATIONS, launches=5, seed=3)
    cells = cells_of(plan)
    order = order_of(plan)
    assert [launch.sequence for launch in order] == list(range(len(cells) * 5))
    blocks = [[launch.cell for launch in order if launch.number == block] for block in range(5)]
    assert all(sorted(map(repr, block)) == sorted(map(repr, cells)) for block in blocks)
    assert len({tuple(map(repr, block)) for block in blocks}) > 1
    assert order == order_of(plan)
    other = LaunchPlan(collectives=("bcast",), images=("a", "b"), isolation=ISOLATIONS, launches=5, seed=4)
    assert order != order_of(other)
