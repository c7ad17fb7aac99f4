"""Cells, their order and their places, GPUs too: pure functions, on machines that are made up."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.refusals import refusals

from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.bindings.gpu.assignment import assign_gpus
from collbench.bindings.spec import World, WorldSettings
from collbench.errors import PlanError, RequestError
from collbench.launch import engines, launchers, placement
from collbench.launch.campaign import finished
from collbench.launch.cells import LaunchCell, cases_in, order_of
from collbench.launch.collect import placed_case
from collbench.launch.engines.docker.spec import STEPS, layout_of
from collbench.launch.engines.host import HostSession, environment_of
from collbench.launch.engines.spec import Stack, WorldSpec, steps_of
from collbench.launch.expansion import expand, places, refuse_too_large
from collbench.launch.folders import folders
from collbench.launch.placement import place
from collbench.machine.facts import Core, Topology, TopologyGpu, container
from collbench.registry import find_plan
from collbench.run.facts_of_ranks import bind
from collbench.schema.plan import Plan, load_launch_plan
from collbench.schema.record import Record
from collbench.schema.world import GPU, Place, read_places
from collbench.units import parse_spans

Golden = Callable[[str, str], None]
Collbench = Callable[..., CompletedProcess[str]]
Cores = tuple[int, ...]

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
    step = None if policy == "host" else "strict"
    return LaunchCell("openmpi", policy, step, ranks, "far" if far else "near", servers=servers)


def plan(**more: Any) -> Plan:
    return Plan(**{"collectives": ("allreduce",), "images": ("openmpi",)} | more)


def on_gpus(each: int | str = "share", **more: Any) -> Plan:
    return plan(device="gpu", cores_per_rank=each, **more)


def cells_of(plan: Plan) -> tuple[LaunchCell, ...]:
    """On a machine of one node with 8 cores."""
    return expand(plan, lambda engine: machine(1, 8)).cells


# Containers -----------------------------------------------------------------------------------------------------------


def test_the_policies_are_known_by_their_files() -> None:
    assert placement.policy_names() == ("host", "multi", "numa", "packed", "single")


@pytest.mark.parametrize(
    ("policy", "ranks", "servers", "groups"),
    [
        ("host", 3, 0, ((0, 1, 2),)), ("multi", 3, 0, ((0, 1, 2),)), ("single", 3, 0, ((0,), (1,), (2,))),
        ("packed:2", 5, 0, ((0, 1), (2, 3), (4,))), ("packed:7", 5, 0, ((0, 1, 2, 3, 4),)),
        ("host", 3, 1, ((0, 1, 2),)), ("multi", 3, 1, ((0, 1, 2),)), ("single", 3, 1, ((0,), (1,), (2,))),
        ("packed:2", 4, 1, ((0,), (1, 2), (3,))), ("packed:2", 5, 2, ((0,), (1,), (2, 3), (4,))),
        ("multi", 5, 2, ((0, 1, 2, 3, 4),)),
    ],
)  # fmt: skip
def test_who_shares_a_container(policy: str, ranks: int, servers: int, groups: tuple[tuple[int, ...], ...]) -> None:
    """A parameter server shares that of the workers, or each of them has its own."""
    assert tuple(box.ranks for box in place(machine(1, 5), cell(policy, ranks, servers), plan()).boxes) == groups


# Cores ----------------------------------------------------------------------------------------------------------------


#: Of half of the worlds a machine has too little.
TWICE = settings(max_examples=2 * settings().max_examples)


@TWICE
@given(
    st.sampled_from(POLICIES), st.integers(1, 12), st.integers(1, 3),
    st.integers(1, 4), st.integers(1, 8), st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_every_rank_has_a_slot_of_its_own_or_all_are_refused(
    policy: str, ranks: int, each: int, nodes: int, cores: int, threads: int, oversubscribe: bool
) -> None:
    there = machine(nodes, cores, threads)
    world, wanted = cell(policy, ranks), plan(cores_per_rank=each, oversubscribe=oversubscribe)
    if ranks * each > len(there.cores) and not oversubscribe:
        with pytest.raises(PlanError, match="oversubscribe = true"):
            place(there, world, wanted)
        return
    placed = place(there, world, wanted)
    assert sorted(rank for box in placed.boxes for rank in box.ranks) == list(range(ranks))
    on_core = Counter(core for slot in placed.slots for core in {number % (nodes * cores) for number in slot.cores})
    assert placed.crowded == any(count > 1 for count in on_core.values())
    assert placed.load == (ranks, len(on_core))
    assert placed.crowded or ranks * each <= len(there.cores) or ranks == 1, "one rank shares with nobody"
    if ranks * each <= nodes * cores or each == threads:
        assert placed.crowded == (ranks > 1 and ranks * each > len(there.cores)), "no core has to be shared"
    used = [core for slot in placed.slots for core in slot.cores]
    assert set(used) <= {core.number for core in there.cores}
    assert len(placed.slots) == ranks
    if not placed.crowded:
        assert len(used) == len(set(used)) == min(ranks * each, len(there.cores))
        assert sorted((*used, *placed.idle)) == sorted(core.number for core in there.cores)
    node_of = {core.number: core.node for core in there.cores}
    for box in placed.boxes:
        mine = {core for slot in box.slots for core in slot.cores}
        assert parse_spans(box.cores) == mine
        assert parse_spans(box.nodes) == {node_of[core] for core in mine}


#: Where processor 4 is the second thread of processor 0's core.
THREADS = machine(nodes=2, cores=2, threads=2)

#: The cores of each rank.
CORES: dict[str, tuple[Topology, LaunchCell, Plan, list[Cores]]] = {
    "nodes are filled one by one": (THREADS, cell("single", 3), plan(), [(0,), (1,), (2,)]),
    "two cores each": (THREADS, cell("single", 2), plan(cores_per_rank=2), [(0, 1), (2, 3)]),
    "then hardware threads": (THREADS, cell("single", 4), plan(cores_per_rank=2), [(0, 4), (1, 5), (2, 6), (3, 7)]),
    "then another's core": (THREADS, cell("single", 8), plan(), [(0,), (4,), (1,), (5,), (2,), (6,), (3,), (7,)]),
    "spare cores are idle": (machine(1, 6), cell("multi", 3, servers=1), plan(), [(0,), (1,), (2,)]),
    "spare cores are the first worker's": (
        machine(1, 6), cell("multi", 3, servers=1), plan(spare="chief"), [(0,), (1, 3, 4, 5), (2,)]),
    "not threads of others' cores": (machine(1, 3, 2), cell("single", 2), plan(spare="chief"), [(0, 2, 3, 5), (1,)]),
    "GPUs of a node share its cores": (
        with_gpus(2, 4, 2), cell("single", 4), plan(device="gpu"), [(0, 1), (2, 3), (4, 5), (6, 7)]),
    "with a server": (with_gpus(1, 8, 2), cell("single", 3, 1), plan(device="gpu"), [(4, 5), (0, 1), (2, 3)]),
    "a server gets what workers leave": (
        with_gpus(1, 3, 2), cell("single", 3, servers=1), on_gpus(1), [(2,), (0,), (1,)]),
    "on another node, where the first GPU's has none": (
        with_gpus(2, 2, 1), cell("single", 2, servers=1), on_gpus(2), [(2, 3), (0, 1)]),
    "on its own first": (with_gpus(2, 4, 1), cell("single", 2, servers=1), on_gpus(2), [(2, 3), (0, 1)]),
    "one of its own, and one of another": (
        with_gpus(2, 3, 1), cell("single", 2, servers=1), on_gpus(2), [(2, 3), (0, 1)]),
    "on the node of the first GPU": (with_gpus(2, 2, 1), cell("single", 3, servers=1), on_gpus(1), [(1,), (0,), (2,)]),
    "a server shares a core where that is allowed": (
        with_gpus(1, 2, 2), cell("single", 3, servers=1), on_gpus(1, oversubscribe=True), [(0,), (0,), (1,)]),
    "GPUs whose cores are used up take turns": (
        with_gpus(1, 3, 4), cell("single", 4), on_gpus(2, oversubscribe=True), [(0, 1), (0, 2), (1, 2), (0, 1)]),
    "a GPU whose node has no cores is served by the first": (
        replace(machine(1, 2), gpus=(TopologyGpu("GPU-0", 7),)), cell("single", 1), on_gpus(1), [(0,)]),
    "far from a GPU is the next node, and after the last the first": (
        with_gpus(3, 1, 1), cell("single", 3, far=True), on_gpus(1), [(1,), (2,), (0,)]),
}  # fmt: skip


@pytest.mark.parametrize(("there", "wanted", "plan", "cores"), CORES.values(), ids=CORES)
def test_which_cores_ranks_get(there: Topology, wanted: LaunchCell, plan: Plan, cores: list[Cores]) -> None:
    placed = place(there, wanted, plan)
    assert [slot.cores for slot in placed.slots] == cores
    used, everything = {core for slot in cores for core in slot}, {core.number for core in there.cores}
    assert (set(placed.idle), len(placed.idle)) == (everything - used, len(everything - used))
    whole = [core for slot in cores for core in there.physical(slot)]
    assert placed.load == (len(cores), len(set(whole))) and placed.crowded == (len(whole) > len(set(whole)))
    workers = wanted.ranks - wanted.servers
    assert placed.gpus == tuple(gpu.uuid for gpu in there.gpus[:workers])


def test_far_takes_memory_from_the_other_node() -> None:
    boxes = place(machine(2, 1), cell("single", 2, far=True), plan()).boxes
    assert [(box.cores, box.nodes) for box in boxes] == [("0", "1"), ("1", "0")]


FAR = cell("single", 1, far=True)

#: What a machine does not have.
TOO_MUCH: list[tuple[Topology, LaunchCell, Plan]] = [
    (machine(1, 2), FAR, plan()), (with_gpus(1, 2, 2), FAR, plan(device="gpu")),
    (machine(2, 1), FAR, plan(cores_per_rank="share")), (with_gpus(2, 1, 1), FAR, on_gpus(2)),
    (with_gpus(1, 2, 2), cell("single", 3, servers=1), on_gpus(1)), (with_gpus(1, 3, 4), cell("single", 4), on_gpus(2)),
    (machine(1, 4), cell("multi", 2), plan(device="gpu")), (with_gpus(1, 4, 2), cell("multi", 3), plan(device="gpu")),
    (replace(machine(1, 4), no_gpus="NVML: no driver"), cell("multi", 1), plan(device="gpu")),
]  # fmt: skip

#: What no world could measure.
UNMEASURABLE: list[dict[str, Any]] = [
    {"backends": ("mpii",)}, {"image_backends": {"openmpi": ("fake",)}}, {"cadence": "streaming"},
    {"collectives": ("ps_bcast",), "ranks": (1,)},
    {"collectives": (), "benchmarks": ({"name": "parameter_server", "servers": 2},), "workers": (1,)},
    {"benchmarks": ("stream",), "ranks": (1, 2)}, {"collectives": (), "benchmarks": ("streem",)},
]  # fmt: skip


def test_what_is_refused_before_anything_starts(golden: Golden) -> None:

    def cases_of(plan: Plan) -> object:
        return expand(plan, lambda engine: machine(1, 4)).cases

    large = plan(collectives=("ps_gather",), sizes=("1G",), workers=(4,))
    cases = {world: cases_in(large, world) for world in cells_of(large)}
    refuse_too_large(large, cases, free=9 << 30)
    attempts: list[Callable[[], object]] = [
        *(partial(place, *world) for world in TOO_MUCH),
        partial(refuse_too_large, large, cases, free=8 << 30),
        *(partial(cases_of, plan(**changes)) for changes in UNMEASURABLE),
    ]
    golden("placements-refused.txt", refusals(attempts))


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


@TWICE
@given(
    st.sampled_from(POLICIES), st.integers(1, 8), st.booleans(), st.booleans(),
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.sampled_from((1, 2, "share")),
)  # fmt: skip
def test_every_worker_has_a_gpu_with_cores_of_its_node_or_all_are_refused(
    policy: str, workers: int, server: bool, far: bool, nodes: int, cores: int, gpus: int, each: int | str
) -> None:
    """A server has none."""
    topology, world = with_gpus(nodes, cores, gpus), cell(policy, workers + server, server, far)
    if not fits(workers, server, far, nodes, cores, gpus, each):
        with pytest.raises(PlanError):
            place(topology, world, on_gpus(each))
        return
    placement = place(topology, world, on_gpus(each))
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


# Cells and their order ------------------------------------------------------------------------------------------------


def test_workers_make_two_kinds_of_worlds() -> None:
    both = plan(collectives=("ps_bcast", "allreduce", "ps_gather"), policies=("single",), workers=(1, 4))
    cells = cells_of(both)
    assert [(world.ranks, world.servers) for world in cells] == [(2, 1), (4, 0), (5, 1)]
    workloads = [{case.workload for kind in cases_in(both, world) for case in kind.identities} for world in cells]
    assert workloads == [{"ps_bcast", "ps_gather"}, {"allreduce"}, {"ps_bcast", "ps_gather"}]
    assert cells[2].title == "openmpi single strict, 1 server and 4 workers"


def test_an_image_has_backends_of_its_own() -> None:
    both = plan(images=("openmpi", "torch"), image_backends={"torch": ("torch-gloo",)})
    for world in cells_of(both):
        backends = {case["backend"] for kind in cases_in(both, world) for case in kind.identities}
        assert backends == {"torch-gloo" if world.image == "torch" else "mpi"}


def test_steps_that_differ() -> None:
    docker = engines.get("docker").ladder
    assert steps_of(engines.get("host").ladder, 1, STEPS) == (None,)
    assert steps_of(docker, 2, STEPS) == STEPS
    assert steps_of(docker, 1, STEPS) == ("strict", "limits", "ipc", "files")
    assert steps_of(docker, 1, ("strict", "visible", "files")) == ("strict", "ipc", "files")
    fake = engines.get("fake").ladder
    assert steps_of(fake, 2, ("strict", "visible")) == ("strict", "visible")
    assert steps_of(fake, 1, ("visible", "files")) == ("strict", "files")


def test_a_plan_has_the_steps_that_differ_on_its_machine() -> None:
    """One container has those up to ipc and files: `single` with one rank, `numa` where all ranks are on one node."""
    every = plan(policies=("host", "single", "multi", "numa"), isolation=STEPS, ranks=(1, 2))
    alone, both = ["strict", "limits", "ipc", "files"], list(STEPS)
    for there, numa in ((machine(1, 2), alone), (machine(2, 1), both)):
        steps: dict[tuple[str, int], list[str | None]] = {}
        for world in expand(every, dict.fromkeys(("docker", "host"), there).__getitem__).cells:
            steps.setdefault((world.policy, world.ranks), []).append(world.isolation)
        assert steps == {
            ("host", 1): [None], ("single", 1): alone, ("multi", 1): alone, ("numa", 1): alone,
            ("host", 2): [None], ("single", 2): both, ("multi", 2): alone, ("numa", 2): numa,
        }  # fmt: skip


def test_the_plan_of_lee_and_lee_has_their_four_places() -> None:
    """Bare metal, everything shared but files (as Singularity), one container, and a container for each rank."""
    there = dict.fromkeys(("docker", "host"), machine(1, 2))
    done = expand(load_launch_plan(find_plan("leelee2024")), there.__getitem__)
    in_containers = {(policy, step) for policy in ("multi", "single") for step in ("strict", "files")}
    assert {(world.policy, world.isolation) for world in done.cells} == {("host", None)} | in_containers
    assert {case.workload for cases in done.expected.values() for case in cases} == {"bcast", "gather", "allreduce"}


def test_blocks_hold_every_cell_once_and_follow_from_the_seed() -> None:
    random, other = (plan(images=("a", "b"), isolation=STEPS, launches=5, seed=seed) for seed in (3, 4))
    cells = cells_of(random)
    order = order_of(random, cells)
    assert [launch.sequence for launch in order] == list(range(len(cells) * 5))
    blocks = [[launch.cell for launch in order if launch.number == block] for block in range(5)]
    assert all(sorted(map(repr, block)) == sorted(map(repr, cells)) for block in blocks)
    assert len({tuple(map(repr, block)) for block in blocks}) > 1
    assert order == order_of(random, cells) != order_of(other, cells)


def test_a_launch_is_finished_when_all_its_own_cases_are_recorded_or_one_failed() -> None:
    """Two workers and a server are three ranks, as three workers are: their records are not taken for each other's."""
    both = plan(collectives=("ps_bcast", "allreduce"), policies=("single",), workers=(2, 3), sizes=("8", "16"),
                launches=1)  # fmt: skip
    expanded = expand(both, lambda engine: machine(1, 4))
    served = next(world for world in expanded.expected if world.servers and world.ranks == 3)
    cases = expanded.expected[served]
    whole = tuple(Record(case=placed_case(case, served), launch=0, status="ok") for case in cases)
    assert finished(expanded, whole) == {(served, 0)}
    assert finished(expanded, (msgspec.structs.replace(whole[0], status="failed"),)) == {(served, 0)}
    assert finished(expanded, whole[:1]) == finished(expanded, ()) == frozenset()
    alone = msgspec.structs.replace(whole[0], status="failed", how="blocks")
    assert finished(expanded, (alone,)) == frozenset(), "of a case, whose launch went on"


# The places of ranks are told by a file, which holds as many as there are ---------------------------------------------

RANKS = 20_000
MACHINE = Topology(tuple(Core(number) for number in range(RANKS)))

#: The longest string of an environment (execve(2): MAX_ARG_STRLEN), and a small part of it.
LONGEST, SHORT = 128 << 10, 4 << 10


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for temporary files, of a driver whose files nobody else may read unless it says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize(("engine", "policy", "step"), [("host", "host", None), ("docker", "multi", "strict")])
def test_a_placement_of_many_ranks_gets_through(
    monkeypatch: pytest.MonkeyPatch, engine: str, policy: str, step: str | None
) -> None:
    """By the file, and not in a variable or a word of the command."""
    bound: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: bound.append(cores))
    many = LaunchCell("openmpi", policy, step, RANKS, engine=engine)
    placed = place(MACHINE, many, plan())
    planned = places(many, placed)
    with folders(Plan(), (os.getuid(), os.getgid()), places=planned) as at:
        assert at.placement.stat().st_size > LONGEST
        assert stat.S_IMODE(at.placement.stat().st_mode) == 0o644, "a user of the containers reads it"
        stack = Stack(launchers.get("openmpi", "openmpi"), "REFERENCE")
        world = WorldSpec("cb1", "cb1-0", "boot/1/2", many, placed, stack, at, (1000, 1000))
        if engine == "host":
            with HostSession(lambda: None).open(world) as opened:
                told = [*map("=".join, environment_of(world).items()), *opened.program]
        else:
            (spec,) = layout_of(world).specs
            told = [*map("=".join, spec.environment), *(f"{mount.source}{mount.target}" for mount in spec.mounts)]
        assert str(at.placement) in " ".join(told) and max(map(len, told)) < SHORT
        read = read_places(at.placement)
    assert read == planned
    for rank in (0, RANKS - 1):
        bind(read, {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(RANKS)})
    assert bound == [{0}, {RANKS - 1}]


@pytest.mark.usefixtures("temporary")
def test_where_nobody_planned_places_there_is_no_file() -> None:
    with folders(Plan(), (os.getuid(), os.getgid())) as at:
        assert not at.placement.exists()


def written(folder: Path, planned: tuple[Place, ...]) -> tuple[object, ...]:
    """What `collbench` is given for two ranks: a plan for the fake backend. A placement is beside it."""
    file = folder / "plan.toml"
    file.write_text("collectives = ['bcast']\nbackends = ['fake']\nsizes = [8]\niters = 2\nwarmup = 1\n")
    (folder / "placement.json").write_bytes(msgspec.json.encode(planned))
    return ("run", file, "--ranks", 2, "--style", "csv")


def cores_in(run: Path) -> set[str]:
    """Those of all ranks, as its record says."""
    (line,) = (run / "records.jsonl").read_text().splitlines()
    return set(json.loads(line)["ranks"]["binding"])


@pytest.mark.usefixtures("temporary")
def test_ranks_take_the_cores_of_the_file_that_they_are_given(collbench: Collbench, tmp_path: Path) -> None:
    core = str(max(os.sched_getaffinity(0)))
    run = written(tmp_path, (Place(container=container(), cores=core),) * 2)
    done = collbench(*run, "--placement", tmp_path / "placement.json", "--out", tmp_path / "bound")
    assert (done.returncode, done.stderr) == (0, "")
    assert cores_in(tmp_path / "bound") == {core}
    assert collbench(*run, "--out", tmp_path / "free").returncode == 0, "a file beside the plan is not looked for"
    if len(os.sched_getaffinity(0)) > 1:
        assert cores_in(tmp_path / "free") != {core}


@pytest.mark.usefixtures("temporary")
def test_another_world_than_the_file_has_is_refused(collbench: Collbench, tmp_path: Path) -> None:
    run = written(tmp_path, (Place(container=None, cores="0"),) * RANKS)
    done = collbench(*run, "--placement", tmp_path / "placement.json")
    assert done.returncode == 2 and done.stderr.startswith(f"collbench: {RANKS} ranks ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "word"), [(None, "No such file"), (b"[{}]", "`container` - at `$[0]`"), (b"", "truncated")]
)
def test_a_file_that_no_launcher_wrote(tmp_path: Path, content: bytes | None, word: str) -> None:
    file = tmp_path / "placement.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RequestError) as refused:
        read_places(file)
    assert f"placement {file}: " in str(refused.value) and word in str(refused.value)


def test_backends_give_every_rank_the_gpu_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU, "GPU-of-programs-alone")
    planned = tuple(Place(container=None, cores="0", gpu=f"GPU-{letter}") for letter in "ba")
    taken: dict[int, str | None] = {}

    def take(world: World) -> None:
        settings = WorldSettings(places=planned)
        taken[world.rank] = assign_gpus("mpi-cuda", world, settings, None, lambda: ("GPU-a", "GPU-b")).gpu

    hub = Hub(2, 60.0)
    run_ranks(hub, lambda rank: take(FakeWorld(hub, rank)), 60.0)
    assert taken == {0: "GPU-b", 1: "GPU-a"}
