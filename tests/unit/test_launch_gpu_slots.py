"""Which GPUs and cores a launch gives to workers and to a parameter server: pure functions, on made-up machines."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.test_launch_placement import POLICIES, cell, plan, with_gpus

from collbench.errors import PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.placement import place
from collbench.schema.plan import Plan


def fits(workers: int, server: bool, far: bool, nodes: int, cores: int, gpus: int, each: int | str) -> bool:
    """Whether there are GPUs, cores on every node for the GPUs that it serves, and one core left for a server."""
    if workers > nodes * gpus or (far and nodes == 1):
        return False
    homes = [(gpu // gpus + far) % nodes for gpu in range(workers)]
    left = nodes * cores
    for node in set(homes):
        others = homes.count(node) + (server and node == homes[0])
        taken = homes.count(node) * (max(1, cores // others) if each == "share" else int(each))
        if taken > cores:
            return False
        left -= taken
    return not server or left > 0


def on_gpus(policy: str, workers: int, server: bool, far: bool, each: int | str) -> tuple[LaunchCell, Plan]:
    return cell(policy, workers + server, server, far), plan(device="gpu", cores_per_rank=each)


@given(
    st.sampled_from(POLICIES), st.integers(1, 8), st.booleans(), st.booleans(),
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.sampled_from((1, 2, "share")),
)  # fmt: skip
def test_workers_without_a_gpu_or_cores_of_its_node_are_refused(
    policy: str, workers: int, server: bool, far: bool, nodes: int, cores: int, gpus: int, each: int | str
) -> None:
    assume(not fits(workers, server, far, nodes, cores, gpus, each))
    with pytest.raises(PlanError):
        place(with_gpus(nodes, cores, gpus), *on_gpus(policy, workers, server, far, each))


@given(
    st.sampled_from(POLICIES), st.integers(1, 8), st.booleans(), st.booleans(),
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.sampled_from((1, 2, "share")),
)  # fmt: skip
def test_every_worker_has_a_gpu_with_cores_of_its_node_and_a_server_has_none(
    policy: str, workers: int, server: bool, far: bool, nodes: int, cores: int, gpus: int, each: int | str
) -> None:
    assume(fits(workers, server, far, nodes, cores, gpus, each))
    topology = with_gpus(nodes, cores, gpus)
    placement = place(topology, *on_gpus(policy, workers, server, far, each))
    assert sorted(rank for box in placement.boxes for rank in box.ranks) == list(range(workers + server))
    slots = placement.slots
    assert [slot.gpu for slot in slots[server:]] == [gpu.uuid for gpu in topology.gpus[:workers]]
    assert not server or slots[0].gpu is None
    used = [core for slot in slots for core in slot.cores]
    assert len(used) == len(set(used)) and all(slot.cores for slot in slots)
    node_of = {core.number: core.node for core in topology.cores}
    for gpu, slot in zip(topology.gpus, slots[server:], strict=False):
        assert all((node_of[core] == gpu.node) != far for core in slot.cores)
        assert set(slot.nodes) == {node_of[core] for core in slot.cores}


def test_cores_are_shared_out_between_the_gpus_of_a_node() -> None:
    placement = place(with_gpus(2, 8, 2), cell("single", 4), plan(device="gpu"))
    assert [(box.cores, box.gpus) for box in placement.boxes] == [
        ("0-3", ("GPU-0",)), ("4-7", ("GPU-1",)), ("8-11", ("GPU-2",)), ("12-15", ("GPU-3",))
    ]  # fmt: skip
    with_server = place(with_gpus(1, 8, 2), cell("single", 3, servers=1), plan(device="gpu"))
    assert [(box.cores, box.gpus) for box in with_server.boxes] == [
        ("4-5", ()), ("0-1", ("GPU-0",)), ("2-3", ("GPU-1",))
    ]  # fmt: skip
    assert with_server.idle == (6, 7)
