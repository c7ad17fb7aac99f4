"""A world as its engine would be told by hand (`launch --dry-run`), byte by byte, on a machine that is made up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.launch import engines, launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.spec import MEMLOCK, SEALED
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.folders import folders_in
from collbench.launch.placement import place
from collbench.machine import facts
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan

MACHINE = Topology(tuple(Core(number) for number in range(4)))
PLAN = Plan(collectives=("allreduce",), images=("openmpi",))


def commands_of(engine: str, world: WorldSpec) -> tuple[str, ...]:
    commands = engines.get(engine).commands
    assert commands is not None
    return commands(world)


@pytest.mark.parametrize(
    ("engine", "policy", "step", "vendor"),
    [
        ("host", "host", None, "openmpi"),
        ("docker", "multi", "strict", "openmpi"),
        ("docker", "single", "net", "openmpi"),
        ("podman", "single", "strict", "mpich"),
        ("docker", "single", "limits", "torch"),
        ("docker", "single", "files", "torch"),
        ("docker", "multi", "files", "openmpi"),
        ("podman", "single", "files", "openmpi"),
        ("fake", "single", "visible", "openmpi"),
    ],
)
def test_a_world_in_commands(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, engine: str, policy: str, step: str | None,
    vendor: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(facts, "container", lambda: None)
    cell = LaunchCell(vendor, policy, step, 2, engine=engine)
    stack = Stack(launchers.get(vendor, vendor), "REFERENCE", grants=frozenset({MEMLOCK, SEALED}))
    world = WorldSpec(
        "cb1", "cb1-0", "boot/1/2", cell, place(MACHINE, cell, PLAN), stack, folders_in(Path("/folder")), (1000, 1000)
    )
    golden(f"world-{engine}-{policy}-{step}.txt", "\n".join(commands_of(engine, world)) + "\n")


def test_root_is_told_to_open_mpi_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, where ranks are root's where the driver is; containers have a user of their own."""
    cell = LaunchCell("openmpi", "host", None, 2, engine="host")
    stack = Stack(launchers.get("openmpi", "openmpi"), "/venv")
    placement = place(MACHINE, cell, PLAN)
    for user, told in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        world = WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, stack, folders_in(Path("/folder")), (user, user))
        (line,) = commands_of("host", world)
        assert ("OMPI_ALLOW_RUN_AS_ROOT=1" in line) is told
        assert ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in line) is told
        assert " HOME=" not in line
        assert "TMPDIR=/folder " in line
