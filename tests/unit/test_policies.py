"""Policies: which ranks share a container on machines that are made up, and policies of other packages."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit import made_packages
from tests.unit.fake_engine import FakeEngineSession

from collbench.cli.plan import commands_of
from collbench.errors import PlanError
from collbench.launch import launchers, placement
from collbench.launch.campaign import PreparedCampaign
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.engines.spec import Stack
from collbench.launch.expansion import expand, notes
from collbench.launch.placement import Policy, place
from collbench.launch.stacks import Stacks
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.schema.axes import policy_order
from collbench.schema.plan import Plan, load_launch_plan

SIDE = Stack(launchers.get("openmpi", "openmpi"), "sha256:1")


def machine(*cores: int, gpus: tuple[int, ...] = ()) -> Topology:
    """So many cores on each node, and the node of each GPU."""
    nodes = [node for node, number in enumerate(cores) for _ in range(number)]
    there = tuple(TopologyGpu(f"GPU-{number}", node) for number, node in enumerate(gpus))
    return Topology(tuple(Core(number, node) for number, node in enumerate(nodes)), there)


def numa(ranks: int, servers: int = 0, far: bool = False) -> LaunchCell:
    return LaunchCell("openmpi", "numa", "strict", ranks, "far" if far else "near", servers=servers)


def plan(**more: Any) -> Plan:
    return Plan(collectives=("allreduce",), images=("openmpi",), **more)


# numa -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "ranks", "more", "boxes"),
    [
        (machine(2, 2), 4, {}, [((0, 1), "0-1", "0"), ((2, 3), "2-3", "1")]),
        (machine(2, 2), 3, {}, [((0, 1), "0-1", "0"), ((2,), "2", "1")]),
        (machine(1, 3), 4, {}, [((0,), "0", "0"), ((1, 2, 3), "1-3", "1")]),
        (machine(4, 4), 2, {"cores_per_rank": "share"}, [((0,), "0-3", "0"), ((1,), "4-7", "1")]),
        (machine(2, 2, 2, 2), 8, {},
         [((0, 1), "0-1", "0"), ((2, 3), "2-3", "1"), ((4, 5), "4-5", "2"), ((6, 7), "6-7", "3")]),
        (machine(2, 2, 2, 2), 5, {}, [((0, 1), "0-1", "0"), ((2, 3), "2-3", "1"), ((4,), "4", "2")]),
        (machine(2, 4, 2, 4), 5, {"cores_per_rank": 2},
         [((0,), "0-1", "0"), ((1, 2), "2-5", "1"), ((3,), "6-7", "2"), ((4,), "8-9", "3")]),
        (machine(4), 3, {}, [((0, 1, 2), "0-2", "0")]),
        (machine(4, 4), 3, {}, [((0, 1, 2), "0-2", "0")]),
    ],
)  # fmt: skip
def test_numa_is_a_container_for_each_memory_node_with_ranks(
    there: Topology, ranks: int, more: dict[str, Any], boxes: list[tuple[tuple[int, ...], str, str]]
) -> None:
    found = place(there, numa(ranks), plan(**more))
    assert [(box.ranks, box.cores, box.nodes) for box in found.boxes] == boxes


def test_numa_goes_by_the_cores_where_memory_is_far() -> None:
    found = place(machine(2, 2), numa(4, far=True), plan())
    assert [(box.ranks, box.cores, box.nodes) for box in found.boxes] == [((0, 1), "0-1", "1"), ((2, 3), "2-3", "0")]


def test_numa_with_gpus_goes_by_the_nodes_they_hang_on_and_a_server_shares_the_first_ones() -> None:
    gpus = plan(device="gpu")
    four = machine(4, 4, gpus=(0, 0, 1, 1))
    assert [(box.ranks, box.gpus) for box in place(four, numa(4), gpus).boxes] == [
        ((0, 1), ("GPU-0", "GPU-1")), ((2, 3), ("GPU-2", "GPU-3"))
    ]  # fmt: skip
    uneven = machine(4, 4, 4, 4, gpus=(1, 3, 3, 3))
    assert [(box.ranks, box.nodes) for box in place(uneven, numa(4), gpus).boxes] == [((0,), "1"), ((1, 2, 3), "3")]
    assert [(box.ranks, box.gpus) for box in place(four, numa(4, servers=True), gpus).boxes] == [
        ((0, 1, 2), ("GPU-0", "GPU-1")), ((3,), ("GPU-2",))
    ]  # fmt: skip
    with pytest.raises(PlanError, match="memory nodes 0, 1, 0"):
        place(machine(4, 4, gpus=(0, 1, 0)), numa(3), gpus)


def test_numa_takes_no_rank_with_cores_of_two_nodes() -> None:
    with pytest.raises(PlanError, match=r"numa: rank 1 .* 0-1.*cores_per_rank"):
        place(machine(3, 3), numa(3), plan(cores_per_rank=2))


def test_one_container_of_numa_is_said_to_be_what_multi_is() -> None:
    one, rest = place(machine(4), numa(2), plan()), place(machine(4, 4), numa(2), plan())
    assert "numa" in one.note and "multi" in one.note and "numa" in rest.note and one.note != rest.note
    assert one.note in notes(numa(2), one, SIDE)
    assert place(machine(1, 1), numa(2), plan()).note == ""


# Spelling and order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("singel", "policy 'singel': unknown. Did you mean single"),
        ("nodes", f"policy 'nodes': unknown. There are: {', '.join(placement.policy_names())}."),
        ("packed", "policy 'packed': takes a number, such as packed:2"),
        ("multi:2", "policy 'multi:2': takes no number; write multi"),
    ],
)
def test_what_is_no_policy_is_refused_before_anything_is_placed(policy: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        expand(plan(policies=("host", policy)), lambda engine: machine(8))
    assert str(caught.value).startswith(message)


def test_policies_stand_from_the_least_isolated_to_the_most_and_unknown_ones_between() -> None:
    """Nothing is less isolated than one container, or more than a container for every rank."""
    found = ["zones:2", "single", "packed:2", "numa", "multi", "packed:10", "host", "zones:4"]
    assert sorted(found, key=policy_order) == [
        "host", "multi", "numa", "packed:10", "packed:2", "zones:4", "zones:2", "single"
    ]  # fmt: skip


# Policies of other packages -------------------------------------------------------------------------------------------

#: The example of the manual: a module, and the entry point in its package's pyproject.toml.
MODULE, POINTS = made_packages.example("A policy")
((NAME, VALUE),) = tomllib.loads(POINTS)["project"]["entry-points"][placement.ENTRY_POINTS].items()

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts the example beside the other packages, as pip would, with one entry point (name, value); its folder."""

    def installed(name: str, value: str) -> Path:
        made_packages.install(tmp_path, "site_policies", MODULE, placement.ENTRY_POINTS, **{name: value})
        monkeypatch.syspath_prepend(tmp_path)
        placement._registered.cache_clear()
        return tmp_path

    yield installed
    monkeypatch.undo()
    sys.modules.pop("site_policies", None)
    placement._registered.cache_clear()


def written(folder: Path, more: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(f'collectives = ["allreduce"]\nimages = ["openmpi"]\n{more}\n', encoding="utf-8")
    return path


def test_a_policy_of_another_package_is_expanded_placed_and_shown_as_commands(install: Install, tmp_path: Path) -> None:
    install(NAME, VALUE)
    wanted = load_launch_plan(written(tmp_path, 'policies = ["host", "split:2"]\nranks = [3]\nlaunches = 2'))
    expanded = expand(wanted, lambda engine: machine(4))
    found = expanded.placements
    assert [(cell.title, [box.ranks for box in placed.boxes]) for cell, placed in found.items()] == [
        ("openmpi host, 3 ranks", [(0, 1, 2)]), ("openmpi split:2 strict, 3 ranks", [(0,), (1, 2)])
    ]  # fmt: skip
    assert place(machine(4), LaunchCell("openmpi", "split:9", "strict", 2), wanted).boxes[2:] == ()
    sessions = {"docker": FakeEngineSession(lambda command: 0, run="cb1")}
    prepared = PreparedCampaign(expanded, sessions, Stacks({("docker", "openmpi", None): SIDE}, (), (), ()))
    shown = commands_of(prepared, Launch(tuple(found)[1], 0, 1))
    assert [line.split("--name=")[1].split()[0] for line in shown if "docker run" in line] == ["cb1-1-c0", "cb1-1-c1"]
    assert any("--host cb1-1-c0:1,cb1-1-c1:2" in line for line in shown)


@pytest.mark.slow
def test_a_policy_of_another_package_is_listed_and_planned_by_the_program(
    install: Install, tmp_path: Path, collbench: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    search = f"{install(NAME, VALUE)}:{os.environ.get('PYTHONPATH', '')}"
    path = written(tmp_path, 'policies = ["split:2"]\noversubscribe = true')
    planned = collbench("plan", path, PYTHONPATH=search)
    assert "openmpi split:2 strict, 2 ranks: " in planned.stdout, planned.stderr
    assert "c1: rank 1 on cores " in planned.stdout
    listed = collbench("list", PYTHONPATH=search).stdout
    assert "split:K         K containers with equal numbers of ranks" in listed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("split", "site_nowhere:POLICY", "site_nowhere:POLICY cannot be loaded: ModuleNotFoundError"),
        ("split", "site_policies:groups", "site_policies:groups is not a Policy of that name"),
        ("splits", "site_policies:POLICY", "site_policies:POLICY is not a Policy of that name"),
        ("multi", "site_policies:POLICY",
         "defined more than once: collbench.launch.placement:MULTI, site_policies:POLICY. Uninstall"),
    ],
)  # fmt: skip
def test_a_package_that_defines_no_policy_of_that_name_is_named(
    install: Install, name: str, value: str, message: str
) -> None:
    install(name, value)
    assert placement.find_policy("single")[0].name == "single"
    with pytest.raises(PlanError) as caught:
        placement.find_policy(name)
    assert message in str(caught.value)


@pytest.mark.parametrize("groups", [((0, 2), (1,)), ((0, 1),), ((0, 1, 2, 3),), ((0, 1), (), (2,)), ((1, 2), (0,)), ()])
def test_groups_are_all_ranks_in_order(groups: tuple[tuple[int, ...], ...]) -> None:
    wrong = Policy("wrong", "", lambda ranks, k, topology: groups)
    slots = place(machine(4), LaunchCell("openmpi", "host", None, 3), plan()).slots
    with pytest.raises(PlanError, match="policy 'wrong': "):
        placement.container_groups(wrong, 0, slots, machine(4))
