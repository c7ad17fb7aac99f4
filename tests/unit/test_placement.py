"""Cells, their order and their places, GPUs too: pure functions, on machines that are made up."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.bindings.gpu.assignment import assign_gpus
from collbench.bindings.spec import World, WorldSettings
from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError, RequestError
from collbench.launch import engines, launchers, placement
from collbench.launch.campaign import PreparedCampaign, finished
from collbench.launch.cells import LaunchCell, cases_in, order_of
from collbench.launch.collect import placed_case
from collbench.launch.engines.docker.spec import STEPS, layout_of
from collbench.launch.engines.host import HostSession, environment_of
from collbench.launch.engines.spec import Stack, WorldSpec, steps_of
from collbench.launch.expansion import expand, refuse_too_large
from collbench.launch.folders import Folders, folders
from collbench.launch.placement import place
from collbench.launch.rank_environment import places
from collbench.launch.shipped import find_plan
from collbench.launch.stacks import Stacks
from collbench.machine.facts import container, parse_cores
from collbench.machine.topology import Core, Topology, TopologyGpu
from collbench.run.binding import bind
from collbench.schema.plan import Plan, load_launch_plan
from collbench.schema.record import Record
from collbench.schema.world import GPU, Place, read_places
from collbench.workloads.program import ProgramCase

POLICIES = ("host", "single", "multi", "packed:1", "packed:2", "packed:3", "packed:9")


def machine(nodes: int, cores: int, threads: int = 1) -> Topology:
    """Nodes of cores of threads, numbered as Linux does: all first threads, then all second ones."""
    whole = range(nodes * cores)
    return Topology(tuple(Core(thread * len(whole) + n, n // cores, n) for thread in range(threads) for n in whole))


def with_gpus(nodes: int, cores: int, gpus: int) -> Topology:
    """The same with so many GPUs on each node, numbered node by node."""
    there = tuple(TopologyGpu(f"GPU-{n}", n // gpus) for n in range(nodes * gpus))
    return replace(machine(nodes, cores), gpus=there)


def cell(policy: str, ranks: int, servers: int = 0, far: bool = False) -> LaunchCell:
    return LaunchCell(
        "openmpi", policy, None if policy == "host" else "strict", ranks, "far" if far else "near", servers
    )


def plan(**more: Any) -> Plan:
    return Plan(collectives=("allreduce",), images=("openmpi",), **more)


def placed_groups(there: Topology, asked: LaunchCell, **more: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(box.ranks for box in place(there, asked, plan(**more)).boxes)


def cells_of(asked: Plan) -> tuple[LaunchCell, ...]:
    """On a machine of one node with 8 cores."""
    return expand(asked, lambda engine: machine(1, 8)).cells


def test_the_policies_are_known_by_their_files() -> None:
    assert placement.policy_names() == ("host", "multi", "numa", "packed", "single")


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
    assert placed_groups(machine(1, 5), cell(policy, 5)) == groups


@given(
    st.sampled_from(POLICIES), st.integers(1, 12), st.integers(1, 3),
    st.integers(1, 4), st.integers(1, 8), st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_every_rank_has_a_slot_of_its_own(
    policy: str, ranks: int, each: int, nodes: int, cores: int, threads: int, oversubscribe: bool
) -> None:
    there = machine(nodes, cores, threads)
    assume(ranks * each <= len(there.cores) or oversubscribe)
    found = place(there, cell(policy, ranks), plan(cores_per_rank=each, oversubscribe=oversubscribe))
    assert sorted(rank for box in found.boxes for rank in box.ranks) == list(range(ranks))
    on_core = Counter(core for slot in found.slots for core in {number % (nodes * cores) for number in slot.cores})
    assert found.crowded == any(count > 1 for count in on_core.values())
    assert found.load == (ranks, len(on_core))
    assert found.crowded or ranks * each <= len(there.cores) or ranks == 1, "one rank shares with nobody"
    if ranks * each <= nodes * cores or each == threads:
        assert found.crowded == (ranks > 1 and ranks * each > len(there.cores)), "no core has to be shared"
    used = [core for slot in found.slots for core in slot.cores]
    assert set(used) <= {core.number for core in there.cores}
    assert len(found.slots) == ranks
    if not found.crowded:
        assert len(used) == len(set(used)) == min(ranks * each, len(there.cores))
        assert sorted((*used, *found.idle)) == sorted(core.number for core in there.cores)
    node_of = {core.number: core.node for core in there.cores}
    for box in found.boxes:
        mine = {core for slot in box.slots for core in slot.cores}
        assert parse_cores(box.cores) == mine
        assert parse_cores(box.nodes) == {node_of[core] for core in mine}


@given(st.sampled_from(POLICIES), st.integers(1, 12), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8))
def test_more_ranks_than_cores_are_refused_unless_asked_for(
    policy: str, ranks: int, each: int, nodes: int, cores: int
) -> None:
    there = machine(nodes, cores)
    assume(ranks * each > len(there.cores))
    with pytest.raises(PlanError, match="oversubscribe = true"):
        place(there, cell(policy, ranks), plan(cores_per_rank=each))


@pytest.mark.parametrize(
    ("ranks", "each", "cores", "crowded"),
    [
        (3, 1, [(0,), (1,), (2,)], False),
        (2, 2, [(0, 1), (2, 3)], False),
        (4, 2, [(0, 4), (1, 5), (2, 6), (3, 7)], False),
        (8, 1, [(0,), (4,), (1,), (5,), (2,), (6,), (3,), (7,)], True),
    ],
)
def test_ranks_get_cores_of_their_own_before_hardware_threads(
    ranks: int, each: int, cores: list[tuple[int, ...]], crowded: bool
) -> None:
    """Nodes are filled one by one; processor 4 is the second thread of processor 0's core."""
    found = place(machine(nodes=2, cores=2, threads=2), cell("single", ranks), plan(cores_per_rank=each))
    assert ([slot.cores for slot in found.slots], found.crowded) == (cores, crowded)


def test_spare_hardware_threads_of_other_ranks_cores_are_not_the_first_workers() -> None:
    found = place(machine(1, 3, 2), cell("single", 2), plan(spare="chief"))
    assert [slot.cores for slot in found.slots] == [(0, 2, 3, 5), (1,)]
    assert not found.crowded


def test_far_takes_memory_from_the_other_node_or_says_that_there_is_none() -> None:
    far = cell("single", 2, far=True)
    found = place(machine(2, 1), far, plan())
    assert [(box.cores, box.nodes) for box in found.boxes] == [("0", "1"), ("1", "0")]
    with pytest.raises(PlanError, match="affinity far: needs two memory nodes; this machine has one"):
        place(machine(1, 2), far, plan())
    with pytest.raises(PlanError, match="affinity far: needs two memory nodes; this machine has one"):
        place(with_gpus(1, 2, 2), far, plan(device="gpu"))
    with pytest.raises(PlanError, match=r"far: rank 0 is near to every memory node of this machine\. Lower cores_per_"):
        place(machine(2, 1), cell("single", 1, far=True), plan(cores_per_rank="share"))


@pytest.mark.parametrize(
    ("there", "workers", "each", "server"),
    [
        (with_gpus(1, 3, 2), 2, 1, (2,)),  # what is left beside the workers
        (with_gpus(2, 2, 1), 1, 2, (2, 3)),  # on another node, where its own has none
        (with_gpus(2, 4, 1), 1, 2, (2, 3)),  # on its own first
        (with_gpus(2, 3, 1), 1, 2, (2, 3)),  # one of its own, and one of another
        (with_gpus(2, 2, 1), 2, 1, (1,)),
    ],
)
def test_a_server_sits_where_the_first_gpu_does_and_gets_what_is_left(
    there: Topology, workers: int, each: int, server: tuple[int, ...]
) -> None:
    found = place(there, cell("single", workers + 1, servers=1), plan(device="gpu", cores_per_rank=each))
    assert (found.slots[0].cores, found.slots[0].gpu) == (server, None)


def test_without_a_core_for_the_server_it_shares_one_where_that_is_allowed() -> None:
    there, asked = with_gpus(1, 2, 2), cell("single", 3, servers=1)
    with pytest.raises(
        PlanError, match=r"device gpu: no core is left for the parameter server\. Lower cores_per_rank or"
    ):
        place(there, asked, plan(device="gpu", cores_per_rank=1))
    found = place(there, asked, plan(device="gpu", cores_per_rank=1, oversubscribe=True))
    assert ([slot.cores for slot in found.slots], found.crowded, found.load) == ([(0,), (0,), (1,)], True, (3, 2))


def test_gpus_whose_cores_are_used_up_share_them_in_turn_where_that_is_allowed() -> None:
    there, asked = with_gpus(1, 3, 4), cell("single", 4)
    with pytest.raises(
        PlanError, match=r"GPU GPU-1: 2 cores near to it are asked for, and 1 are left\. Lower cores_per"
    ):
        place(there, asked, plan(device="gpu", cores_per_rank=2))
    found = place(there, asked, plan(device="gpu", cores_per_rank=2, oversubscribe=True))
    assert [slot.cores for slot in found.slots] == [(0, 1), (0, 2), (1, 2), (0, 1)]


def test_a_gpu_whose_node_has_no_cores_is_served_by_the_first() -> None:
    there = replace(machine(1, 2), gpus=(TopologyGpu("GPU-0", 7),))
    assert place(there, cell("single", 1), plan(device="gpu", cores_per_rank=1)).slots[0].cores == (0,)


def test_far_from_a_gpu_is_the_next_node_and_after_the_last_the_first() -> None:
    found = place(with_gpus(3, 1, 1), cell("single", 3, far=True), plan(device="gpu", cores_per_rank=1))
    assert [(slot.cores, slot.nodes) for slot in found.slots] == [((1,), (1,)), ((2,), (2,)), ((0,), (0,))]
    with pytest.raises(PlanError, match="GPU GPU-0: 2 cores far from it are asked for, and 1 are left"):
        place(with_gpus(2, 1, 1), cell("single", 1, far=True), plan(device="gpu", cores_per_rank=2))


@pytest.mark.parametrize(
    ("there", "workers", "message"),
    [
        (machine(1, 4), 2, "2 workers need a GPU each, and this machine offers none"),
        (replace(machine(1, 4), no_gpus="NVML: no driver"), 1, "offers none (NVML: no driver)"),
        (with_gpus(1, 4, 2), 3, "3 workers need a GPU each, and this machine offers 2"),
    ],
)
def test_more_gpus_than_there_are(there: Topology, workers: int, message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        place(there, cell("multi", workers), plan(device="gpu"))


@pytest.mark.parametrize(
    ("policy", "groups"),
    [
        ("host", ((0, 1, 2, 3),)),
        ("multi", ((0, 1, 2, 3),)),
        ("single", ((0,), (1,), (2,), (3,))),
        ("packed:2", ((0,), (1, 2), (3,))),
    ],
)
def test_a_parameter_server_shares_the_workers_container_or_has_its_own(
    policy: str, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert placed_groups(machine(1, 4), cell(policy, 4, servers=1)) == groups


def test_each_of_several_parameter_servers_has_a_container_where_servers_are_kept_apart() -> None:
    assert placed_groups(machine(1, 5), cell("packed:2", 5, servers=2)) == ((0,), (1,), (2, 3), (4,))
    assert placed_groups(machine(1, 5), cell("multi", 5, servers=2)) == ((0, 1, 2, 3, 4),)


def test_spare_cores_are_idle_or_the_first_workers() -> None:
    asked = cell("multi", 3, servers=1)
    assert [slot.cores for slot in place(machine(1, 6), asked, plan()).slots] == [(0,), (1,), (2,)]
    found = place(machine(1, 6), asked, plan(spare="chief"))
    assert [slot.cores for slot in found.slots] == [(0,), (1, 3, 4, 5), (2,)]
    assert found.idle == ()


def test_workers_make_two_kinds_of_worlds() -> None:
    asked = Plan(
        collectives=("ps_bcast", "allreduce", "ps_gather"), images=("openmpi",), policies=("single",), workers=(1, 4)
    )
    cells = cells_of(asked)
    assert [(one.ranks, one.servers) for one in cells] == [(2, 1), (4, 0), (5, 1)]
    assert [{found.workload for case in cases_in(asked, one) for found in case.identities} for one in cells] == [
        {"ps_bcast", "ps_gather"}, {"allreduce"}, {"ps_bcast", "ps_gather"}
    ]  # fmt: skip
    assert cells[2].title == "openmpi single strict, 1 server and 4 workers"


def test_an_image_has_backends_of_its_own() -> None:
    asked = Plan(collectives=("allreduce",), images=("openmpi", "torch"), image_backends={"torch": ("torch-gloo",)})
    found = {
        one.image: {kept["backend"] for case in cases_in(asked, one) for kept in case.identities}
        for one in cells_of(asked)
    }
    assert found == {"openmpi": {"mpi"}, "torch": {"torch-gloo"}}


def test_buffers_that_do_not_fit_are_refused_before_anything_starts() -> None:
    asked = Plan(collectives=("ps_gather",), images=("openmpi",), sizes=("1G",), workers=(4,))
    cases = {one: cases_in(asked, one) for one in cells_of(asked)}
    refuse_too_large(asked, cases, free=9 << 30)
    with pytest.raises(PlanError, match=r"ps_gather of 1\.00 GiB needs 8\.00 GiB of memory, and 8\.00 GiB are free"):
        refuse_too_large(asked, cases, free=8 << 30)


def test_steps_that_differ() -> None:
    docker = engines.get("docker").ladder
    assert steps_of(engines.get("host").ladder, 1, STEPS) == (None,)
    assert steps_of(docker, 2, STEPS) == STEPS
    assert steps_of(docker, 1, STEPS) == ("strict", "limits", "ipc", "files")
    assert steps_of(docker, 1, ("strict", "visible", "files")) == ("strict", "ipc", "files")
    fake = engines.get("fake").ladder
    assert (steps_of(fake, 2, ("strict", "visible")), steps_of(fake, 1, ("visible", "files"))) == (
        ("strict", "visible"), ("strict", "files")
    )  # fmt: skip


def test_a_plan_has_the_steps_that_differ_on_its_machine() -> None:
    """One container has those up to ipc and files: `single` with one rank, `numa` where all ranks are on one node."""
    asked = plan(policies=("host", "single", "multi", "numa"), isolation=STEPS, ranks=(1, 2))
    alone, both = ["strict", "limits", "ipc", "files"], list(STEPS)
    for there, numa in ((machine(1, 2), alone), (machine(2, 1), both)):
        found: dict[tuple[str, int], list[str | None]] = {}
        for one in expand(asked, dict.fromkeys(("docker", "host"), there).__getitem__).cells:
            found.setdefault((one.policy, one.ranks), []).append(one.isolation)
        assert found == {
            ("host", 1): [None], ("single", 1): alone, ("multi", 1): alone, ("numa", 1): alone,
            ("host", 2): [None], ("single", 2): both, ("multi", 2): alone, ("numa", 2): numa,
        }  # fmt: skip


def test_the_plan_of_lee_and_lee_has_their_four_places() -> None:
    """Bare metal, everything shared but files (as Singularity), one container, and a container for each rank."""
    there = dict.fromkeys(("docker", "host"), machine(1, 2))
    found = expand(load_launch_plan(find_plan("leelee2024")), there.__getitem__)
    places = {(cell.policy, cell.isolation) for cell in found.cells}
    assert places == {
        ("host", None), ("multi", "strict"), ("multi", "files"), ("single", "strict"), ("single", "files")
    }  # fmt: skip
    assert {case.workload for cases in found.expected.values() for case in cases} == {"bcast", "gather", "allreduce"}


def test_blocks_hold_every_cell_once_and_follow_from_the_seed() -> None:
    asked = Plan(collectives=("bcast",), images=("a", "b"), isolation=STEPS, launches=5, seed=3)
    cells = cells_of(asked)
    order = order_of(asked, cells)
    assert [launch.sequence for launch in order] == list(range(len(cells) * 5))
    blocks = [[launch.cell for launch in order if launch.number == block] for block in range(5)]
    assert all(sorted(map(repr, block)) == sorted(map(repr, cells)) for block in blocks)
    assert len({tuple(map(repr, block)) for block in blocks}) > 1
    assert order == order_of(asked, cells)
    other = Plan(collectives=("bcast",), images=("a", "b"), isolation=STEPS, launches=5, seed=4)
    assert order != order_of(other, cells)


def test_a_launch_is_finished_when_all_its_own_cases_are_recorded_or_one_failed() -> None:
    """Two workers and a server are three ranks, as three workers are: their records are not taken for each other's."""
    asked = Plan(collectives=("ps_bcast", "allreduce"), images=("openmpi",), policies=("single",), workers=(2, 3),
                       sizes=("8", "16"), launches=1)  # fmt: skip
    prepared = PreparedCampaign(expand(asked, lambda engine: machine(1, 4)), {}, Stacks({}, (), (), ()))
    cases = prepared.expanded.expected
    served = next(one for one in cases if one.servers and one.ranks == 3)
    whole = tuple(Record(case=placed_case(case, served), launch=0, status="ok") for case in cases[served])
    assert finished(prepared.expanded, whole) == {(served, 0)}
    assert finished(prepared.expanded, whole[:1]) == frozenset()
    assert finished(prepared.expanded, (msgspec.structs.replace(whole[0], status="failed"),)) == {(served, 0)}
    assert finished(prepared.expanded, ()) == frozenset()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"backends": ("mpii",)}, "backend 'mpii': unknown. Did you mean mpi"),
        ({"image_backends": {"openmpi": ("fake",)}}, "backend fake: simulates its times"),
        ({"cadence": "streaming"}, "cadence streaming"),
        ({"collectives": ("ps_bcast",), "ranks": (1,)}, "openmpi host, 1 rank: ps_bcast needs more ranks"),
        (
            {"collectives": (), "benchmarks": ({"name": "parameter_server", "servers": 2},), "workers": (1,)},
            "benchmark parameter_server: servers = 2, and of a plan with workers servers says how many there are. "
            "Remove it from the benchmark, and write servers = [2] beside workers",
        ),
        ({"benchmarks": ("stream",), "ranks": (1, 2)}, "benchmarks stream: such a program runs on one rank, not on 2."),
        ({"collectives": (), "benchmarks": ("streem",)}, "benchmark 'streem': unknown. Did you mean stream"),
    ],
)
def test_what_no_world_could_measure_is_refused_before_one_starts(more: dict[str, Any], message: str) -> None:
    asked = Plan(**{"collectives": ("allreduce",), "images": ("openmpi",), **more})
    with pytest.raises(RequestError, match=re.escape(message)):
        all_cases(asked)


def all_cases(asked: Plan) -> list[tuple[CollectiveCase | ProgramCase, ...]]:
    return [*expand(asked, lambda engine: machine(1, 4)).cases.values()]


# Which GPUs and cores a launch gives to workers and to a parameter server ---------------------------------------------


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


# The places of ranks are told by a file, which holds as many as there are ---------------------------------------------

Collbench = Callable[..., CompletedProcess[str]]

RANKS = 20_000
MACHINE = Topology(tuple(Core(number) for number in range(RANKS)))
PLAN = Plan(collectives=("allreduce",), images=("openmpi",))

#: The longest string of an environment (execve(2): MAX_ARG_STRLEN), and a small part of it.
LONGEST, SHORT = 128 << 10, 4 << 10


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for temporary files, of a driver whose files nobody else may read unless it says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0o077)
    yield
    os.umask(before)


def world(at: Folders, engine: str, policy: str, step: str | None) -> WorldSpec:
    """One of `RANKS` ranks."""
    cell = LaunchCell("openmpi", policy, step, RANKS, engine=engine)
    stack = Stack(launchers.get("openmpi", "openmpi"), "REFERENCE")
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, place(MACHINE, cell, PLAN), stack, at, (1000, 1000))


def told_by(engine: str, policy: str, step: str | None, at: Folders) -> list[str]:
    """What a rank of such a world is told besides the file: every variable and every word of its command."""
    made = world(at, engine, policy, step)
    if engine == "host":
        with HostSession(lambda: None).open(made) as opened:
            return [*map("=".join, environment_of(made).items()), *opened.program]
    (spec,) = layout_of(made).specs
    return [*map("=".join, spec.environment), *(f"{mount.source}{mount.target}" for mount in spec.mounts)]


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize(("engine", "policy", "step"), [("host", "host", None), ("docker", "multi", "strict")])
def test_a_placement_of_many_ranks_gets_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, policy: str, step: str | None
) -> None:
    bound: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: bound.append(cores))
    cell = LaunchCell("openmpi", policy, step, RANKS, engine=engine)
    planned = places(cell, place(MACHINE, cell, PLAN))
    with folders(Plan(), (os.getuid(), os.getgid()), places=planned) as at:
        assert at.placement.stat().st_size > LONGEST
        assert stat.S_IMODE(at.placement.stat().st_mode) == 0o644, "a user of the containers reads it"
        told = told_by(engine, policy, step, at)
        assert str(at.placement) in " ".join(told)
        assert max(map(len, told)) < SHORT
        found = read_places(at.placement)
    assert found == planned
    for rank in (0, RANKS - 1):
        bind(found, {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(RANKS)})
    assert bound == [{0}, {RANKS - 1}]


@pytest.mark.usefixtures("temporary")
def test_where_nobody_planned_places_there_is_no_file() -> None:
    with folders(Plan(), (os.getuid(), os.getgid())) as at:
        assert not at.placement.exists()


# collbench run --------------------------------------------------------------------------------------------------------


def written(folder: Path, planned: tuple[Place, ...]) -> tuple[Path, Path]:
    """A plan for the fake backend, and a placement."""
    plan, placement = folder / "plan.toml", folder / "placement.json"
    plan.write_text("collectives = ['bcast']\nbackends = ['fake']\nsizes = [8]\niters = 2\nwarmup = 1\n")
    placement.write_bytes(msgspec.json.encode(planned))
    return plan, placement


@pytest.mark.usefixtures("temporary")
def test_ranks_take_the_cores_of_the_file_that_they_are_given_and_of_no_other(
    collbench: Collbench, tmp_path: Path
) -> None:
    core = str(max(os.sched_getaffinity(0)))
    plan, placement = written(tmp_path, (Place(container=container(), cores=core),) * 2)
    run = ("run", plan, "--ranks", 2, "--style", "csv")
    done = collbench(*run, "--placement", placement, "--out", tmp_path / "bound")
    assert (done.returncode, done.stderr) == (0, "")
    assert cores_in(tmp_path / "bound") == {core}
    assert collbench(*run, "--out", tmp_path / "free").returncode == 0, "a file beside the plan is not looked for"
    if len(os.sched_getaffinity(0)) > 1:
        assert cores_in(tmp_path / "free") != {core}


def cores_in(run: Path) -> set[str]:
    """Those of all ranks, as its record says."""
    (line,) = (run / "records.jsonl").read_text().splitlines()
    return set(json.loads(line)["ranks"]["binding"])


@pytest.mark.usefixtures("temporary")
def test_another_world_than_the_file_has_is_refused(collbench: Collbench, tmp_path: Path) -> None:
    core = str(max(os.sched_getaffinity(0)))
    plan, placement = written(tmp_path, (Place(container=None, cores=core),) * RANKS)
    done = collbench("run", plan, "--ranks", 2, "--placement", placement)
    assert (done.returncode, done.stderr) == (2, f"collbench: {RANKS} ranks were planned and 2 met.\n")


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file or directory"), (b"[{}]", "Object missing required field `container` - at `$[0]`"),
     (b"", "Input data was truncated")],
)  # fmt: skip
def test_a_file_that_no_launcher_wrote(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "placement.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read_places(file)
    assert str(caught.value) == f"placement {file}: {said}. collbench launch writes such files."


# GPUs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("temporary")
def test_backends_give_every_rank_the_gpu_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU, "GPU-of-programs-alone")
    planned = tuple(Place(container=None, cores="0", gpu=f"GPU-{letter}") for letter in "ba")
    taken: dict[int, str | None] = {}

    def take(world: World) -> None:
        found = assign_gpus("mpi-cuda", world, WorldSettings(places=planned), None, lambda: ("GPU-a", "GPU-b"))
        taken[world.rank] = found.gpu

    hub = Hub(2, 60.0)
    run_ranks(hub, lambda rank: take(FakeWorld(hub, rank)), 60.0)
    assert taken == {0: "GPU-b", 1: "GPU-a"}
