"""Containers as they are described: the ladder step by step, and the docker command that does the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.look import knows_cdi
from collbench.launch.engines.docker.spec import (
    CDI,
    MEMLOCK,
    STEPS,
    Spec,
    container_command,
    container_settings,
    layout_of,
)
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.folders import Folders
from collbench.launch.launchers import PROCESS
from collbench.launch.overrides import Overrides
from collbench.launch.placement import Placement, place
from collbench.launch.rank_environment import notes, places
from collbench.machine.topology import Core, Topology, TopologyGpu
from collbench.schema.plan import Plan

MACHINE = Topology(tuple(Core(n) for n in range(4)))
PLAN = Plan(collectives=("allreduce",), images=("mpich",))
AT = Folders(Path("/at/plan"), Path("/at/placement"), Path("/at/out"), Path("/at/relay"))


def world_of(cell: LaunchCell, placement: Placement, *grants: str) -> WorldSpec:
    stack = Stack(PROCESS, "collbench/mpich", grants=frozenset(grants), overrides=Overrides({"A": "b"}))
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, stack, AT, (1000, 1000))


def specs_in(cell: LaunchCell, placement: Placement, *grants: str) -> tuple[Spec, ...]:
    return layout_of(world_of(cell, placement, *grants)).specs


def specs(step: str, policy: str = "single", memlock: bool = True) -> tuple[Spec, ...]:
    cell = LaunchCell("mpich", policy, step, 2)
    return specs_in(cell, place(MACHINE, cell, PLAN), *((MEMLOCK,) if memlock else ()))


def host_settings(spec: Spec) -> Any:
    """What the SDK is told of the host's part of a container."""
    return container_settings(SimpleNamespace(create_host_config=dict), spec)["host_config"]


def placed(cell: LaunchCell) -> Placement:
    return place(MACHINE, cell, msgspec.structs.replace(PLAN, oversubscribe=True))


def test_strict_shares_nothing() -> None:
    first, second = specs("strict")
    assert (first.cores, second.cores) == ("0", "1")
    for spec in (first, second):
        assert (spec.joins_ipc, spec.joins_net, spec.capabilities, spec.donates) == (None, None, (), False)
        assert (spec.shm_bytes, spec.unlimited_memlock, spec.network) == (64 << 20, False, "cb1-0-net")
        assert (spec.cdi, spec.gpus, spec.processes, spec.aliases) == (False, (), 4096, ())
        assert dict(spec.environment)["COLLBENCH_CONTAINER"] in ("c0", "c1")
    assert not any(mount.writable for mount in second.mounts)


def test_each_step_adds_to_the_one_before() -> None:
    limits = specs("limits")
    assert all(spec.unlimited_memlock and spec.shm_bytes == 1 << 30 for spec in limits)
    assert all(spec.capabilities == ("SYS_NICE",) for spec in limits)
    anchor, *members = specs("ipc")
    assert anchor.donates
    assert anchor.cores == "0-1"
    assert all(spec.joins_ipc == anchor.name and spec.joins_net is None for spec in members)
    assert all(spec.capabilities == ("SYS_NICE", "SYS_PTRACE") for spec in members)
    anchor, *members = specs("net")
    assert anchor.aliases == ("cb1-0-c0", "cb1-0-c1")
    assert all(spec.joins_net == anchor.name and spec.hostname is None for spec in members)
    assert anchor.hostname == members[0].name


def test_a_lone_container_needs_no_anchor() -> None:
    (only,) = specs("ipc", "multi")
    assert (only.joins_ipc, only.capabilities) == (None, ("SYS_NICE", "SYS_PTRACE"))


@pytest.mark.parametrize("policy", ["single", "multi"])
def test_the_namespaces_of_the_host_need_no_anchor_no_network_and_no_names(policy: str) -> None:
    """And no init process: it would not be the first of its PID namespace, and orphans are the engine's to reap."""
    found = specs("files", policy)
    assert [spec.name for spec in found] == (["cb1-0-c0", "cb1-0-c1"] if policy == "single" else ["cb1-0-c0"])
    for spec in found:
        assert (spec.network, spec.hostname, spec.aliases) == (None, None, ())
        assert (spec.joins_ipc, spec.joins_net, spec.donates) == (None, None, False)
        assert (spec.capabilities, spec.unlimited_memlock) == (("SYS_NICE", "SYS_PTRACE"), True)
        settings = host_settings(spec)
        spaces = {name: settings[f"{name}_mode"] for name in ("ipc", "network", "pid", "uts")}
        assert (spaces, settings["init"]) == (dict.fromkeys(spaces, "host"), False)
        assert "shm_size" not in settings
        assert "--network=host --ipc=host --pid=host --uts=host" in container_command(spec)
        for own in ("--init", "--shm-size", "--hostname"):
            assert own not in container_command(spec)
        made = container_settings(create_host_config_of_the_sdk(), spec)
        assert (made["hostname"], made["networking_config"], made["user"]) == (None, None, "1000:1000")
        assert (made["host_config"]["UTSMode"], made["host_config"]["PidMode"]) == ("host", "host")


def create_host_config_of_the_sdk() -> Any:
    """The SDK's own, which refuses what it does not know."""
    from docker.types import HostConfig

    return SimpleNamespace(create_host_config=lambda **settings: HostConfig(version="1.41", **settings))


@pytest.mark.parametrize(("step", "first"), [("strict", "cb1-0-c0"), ("net", "cb1-0-c0"), ("files", "localhost")])
def test_a_launcher_finds_its_own_container_among_its_hosts(step: str, first: str) -> None:
    cell = LaunchCell("mpich", "single", step, 2)
    layout = layout_of(world_of(cell, place(MACHINE, cell, PLAN)))
    assert layout.hosts == ((first, 1), ("cb1-0-c1", 1))
    assert layout.names == {first: "cb1-0-c0", "cb1-0-c1": "cb1-0-c1"}


def gpu_specs(step: str, policy: str, cdi: bool = False) -> tuple[Spec, ...]:
    """A parameter server and two workers on a machine with three GPUs."""
    there = replace(MACHINE, gpus=tuple(TopologyGpu(f"GPU-{letter}") for letter in "abc"))
    cell = LaunchCell("mpich", policy, step, 3, servers=1)
    placement = place(there, cell, msgspec.structs.replace(PLAN, device="gpu"))
    return specs_in(cell, placement, MEMLOCK, *((CDI,) if cdi else ()))


def test_a_container_sees_its_ranks_gpus_and_the_servers_none() -> None:
    assert [spec.gpus for spec in gpu_specs("strict", "single")] == [(), ("GPU-a",), ("GPU-b",)]
    assert [spec.gpus for spec in gpu_specs("net", "single")] == [(), (), ("GPU-a",), ("GPU-b",)]
    assert [spec.gpus for spec in gpu_specs("strict", "multi")] == [("GPU-a", "GPU-b")]


def test_from_visible_on_every_container_sees_every_gpu_of_the_world() -> None:
    anchor, *members = gpu_specs("visible", "single")
    assert anchor.gpus == ()
    assert [spec.gpus for spec in members] == [("GPU-a", "GPU-b")] * 3
    cell = LaunchCell("mpich", "single", "visible", 2)
    side = Stack(launchers.get("mpich", "mpich"), "collbench/mpich")
    there = replace(MACHINE, gpus=(TopologyGpu("GPU-a"), TopologyGpu("GPU-b")))
    with_gpus = place(there, cell, msgspec.structs.replace(PLAN, device="gpu"))
    assert any("devices are not isolated" in line for line in notes(cell, with_gpus, side))
    assert not any("devices are not isolated" in line for line in notes(cell, placed(cell), side))


def test_a_ranks_gpu_is_told_by_its_rank_for_its_local_rank_is_0_in_every_container() -> None:
    there = replace(MACHINE, gpus=tuple(TopologyGpu(f"GPU-{letter}") for letter in "abc"))
    cell = LaunchCell("mpich", "single", "strict", 3)
    placement = place(there, cell, msgspec.structs.replace(PLAN, device="gpu"))
    assert [(one.container, one.cores, one.gpu) for one in places(cell, placement)] == [
        ("c0", "0", "GPU-a"), ("c1", "1", "GPU-b"), ("c2", "2", "GPU-c")
    ]  # fmt: skip


@pytest.mark.parametrize("cdi", [False, True])
def test_gpus_are_asked_for_by_device_request_or_by_cdi_name(cdi: bool) -> None:
    (spec,) = gpu_specs("strict", "multi", cdi)
    (request,) = host_settings(spec)["device_requests"]
    command = container_command(spec)
    if cdi:
        assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"])
        assert "--device=nvidia.com/gpu=GPU-a --device=nvidia.com/gpu=GPU-b" in command
    else:
        assert request["DeviceIDs"] == ["GPU-a", "GPU-b"]
        assert request["Capabilities"] == [["gpu", "compute", "utility"]]
        assert """'--gpus="device=GPU-a,GPU-b","capabilities=gpu,compute,utility"'""" in command
    assert "device_requests" not in host_settings(specs("strict")[0])


def test_cdi_is_used_where_the_engine_reads_a_specification_of_nvidias(tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "cdi"
    folder.mkdir(parents=True)
    description = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
    assert not knows_cdi(description, tmp_path)
    (folder / "other.yaml").write_text("kind: example.com/nic\n")
    assert not knows_cdi(description, tmp_path)
    (folder / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert knows_cdi(description, tmp_path)
    assert not knows_cdi({}, tmp_path)
    assert knows_cdi({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, tmp_path)


def test_memory_may_be_locked_without_limit_from_the_second_step_on() -> None:
    (limit,) = host_settings(specs("limits")[0])["ulimits"]
    assert (limit["Name"], limit["Soft"], limit["Hard"]) == ("memlock", -1, -1)
    assert host_settings(specs("strict")[0])["ulimits"] == []


def test_an_engine_that_may_not_lock_memory_is_not_asked_to() -> None:
    assert not any(spec.unlimited_memlock for spec in specs("visible", memlock=False))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", ["single", "multi"])
def test_no_container_is_given_the_host(step: str, policy: str) -> None:
    """At the last step its namespaces, and no more."""
    for spec in specs(step, policy):
        command = container_command(spec)
        assert spec.user == "1000:1000"
        assert command.count("=host") == (4 if step == "files" else 0)
        for never in ("privileged", "docker.sock", "unconfined", "SYS_ADMIN", "--userns"):
            assert never not in command
        for always in ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=1000:1000", "sleep 86400"):
            assert always in command


def test_the_docker_command_says_it_all() -> None:
    _, member, _ = specs("net")
    assert " --init " in container_command(specs("strict")[0])
    assert container_command(member) == (
        "docker run --detach --name=cb1-0-c0 --user=1000:1000 --cap-drop=ALL --security-opt=no-new-privileges "
        "--cpuset-cpus=0 --cpuset-mems=0 --pids-limit=4096 --log-driver=none --cap-add=SYS_NICE --cap-add=SYS_PTRACE "
        "--label=collbench.run=cb1 --label=collbench.launch=cb1-0 --label=collbench.driver=boot/1/2 "
        "--network=container:cb1-0-anchor --ipc=container:cb1-0-anchor --pid=container:cb1-0-anchor "
        "--ulimit=memlock=-1:-1 --env=OMP_NUM_THREADS=1 --env=A=b --env=HOME=/tmp --env=USER=collbench "
        "--env=COLLBENCH_CONTAINER=c0 "
        "--mount=type=bind,source=/at/plan,target=/collbench/plan.json,readonly "
        "--mount=type=bind,source=/at/placement,target=/collbench/placement.json,readonly "
        "--mount=type=bind,source=/at/out,target=/collbench/out --mount=type=bind,source=/at/relay,"
        "target=/collbench/relay "
        "collbench/mpich sleep 86400"
    )
