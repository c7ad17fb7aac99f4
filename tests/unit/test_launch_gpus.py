"""Launch plans on GPUs, on a machine that is made up: what images must hold, what containers and ranks are told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.fake_engine import FakeEngineSession

from collbench.cli.plan import commands_of
from collbench.errors import PlanError
from collbench.launch import launchers
from collbench.launch.campaign import PreparedCampaign
from collbench.launch.cells import Launch, LaunchCell, backends_of, check_backends
from collbench.launch.engines.docker.images import Recipe, arguments_of
from collbench.launch.engines.docker.spec import INHIBIT_ADDRESS, MEMLOCK, SEALED, STEPS
from collbench.launch.engines.spec import Stack
from collbench.launch.expansion import NCCL_CONNECTION, expand, hides_peers, nccl_shortage, notes, variables
from collbench.launch.placement import Placement, place
from collbench.launch.stacks import Stacks
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.registry import dockerfiles
from collbench.schema.plan import Plan, load_launch_plan, load_plan

ROOT = Path(__file__).parents[2]
MACHINE = Topology(tuple(Core(n) for n in range(16)), tuple(TopologyGpu(f"GPU-{letter}") for letter in "abcd"))
BASE = Plan(collectives=("allreduce",), images=("mpich",), backends=("nccl",), device="gpu")
OF_2021 = ROOT / "launch" / "choi2021-gpu.toml"


def side(image: str, nccl: bool = True) -> Stack:
    vendor = "openmpi" if image == "openmpi-cuda" else image
    return Stack(launchers.get(vendor, image), f"collbench/{image}", nccl=nccl, grants=frozenset({MEMLOCK, SEALED}))


def around(
    policy: str, step: str | None, ranks: int = 2, servers: int = 0, nccl: bool = True
) -> tuple[LaunchCell, Placement, Stack]:
    """Cell, placement and stack of ranks of MPICH, with NCCL or without."""
    cell = LaunchCell("mpich", policy, step, ranks, servers=servers)
    return cell, place(MACHINE, cell, BASE), side("mpich", nccl)


# Plans ----------------------------------------------------------------------------------------------------------------


def test_the_whole_2021_experiment_has_for_each_image_the_backends_that_it_can_serve() -> None:
    plan = load_launch_plan(OF_2021)
    assert {image: backends_of(plan, image) for image in plan.images} == {
        "openmpi": ("mpi-staged", "nccl"), "mpich": ("mpi-staged", "nccl"),
        "openmpi-cuda": ("mpi-cuda",), "torch": ("torch-nccl",),
    }  # fmt: skip
    placements = expand(plan, lambda engine: MACHINE).placements
    assert {cell.ranks - cell.servers for cell in placements} == {1, 2, 3, 4}
    for cell, placement in placements.items():
        assert len(placement.gpus) == cell.ranks - cell.servers
        assert placement.slots[0].gpu == (None if cell.servers else "GPU-a")


def test_the_smoke_plan_is_one_for_run_and_skips_what_is_not_there() -> None:
    plan = load_plan(ROOT / "launch" / "choi2021-gpu-smoke.toml")
    assert plan.unusable == "skip"
    assert plan["backends"] == ("mpi-staged", "mpi-cuda", "nccl", "torch-nccl")


def test_a_backend_of_gpus_takes_a_plan_that_gives_them() -> None:
    check_backends(BASE)
    with pytest.raises(PlanError, match=r'backend nccl: .*device = "gpu"'):
        check_backends(msgspec.structs.replace(BASE, device="cpu"))


# What ranks are told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", ["single", "multi"])
@pytest.mark.parametrize("nccl", [True, False])
def test_nccl_does_not_reach_for_gpus_that_its_container_hides(step: str, policy: str, nccl: bool) -> None:
    """Containers of one hostname are one machine to NCCL; before, they are machines of their own, later all is seen."""
    hidden = (step, policy, nccl) == ("net", "single", True)
    of = around(policy, step, nccl=nccl)
    assert hides_peers(*of) is hidden
    assert variables(*of).get("NCCL_P2P_DISABLE") == ("1" if hidden else None)
    assert any("NCCL_P2P_DISABLE=1" in note for note in notes(*of)) is hidden
    assert {name for name in variables(*of) if name.startswith("NCCL")} <= {"NCCL_P2P_DISABLE"}


def test_one_gpu_has_no_peer_and_the_host_hides_none() -> None:
    assert "NCCL_P2P_DISABLE" not in variables(*around("single", "net", servers=1))
    assert not hides_peers(*around("host", None, 4))


@pytest.mark.parametrize(("policy", "step", "output", "helps"), [
    ("multi", "strict", "NCCL_ERROR_SYSTEM_ERROR: unhandled system error", True),
    ("packed:2", "strict", "ncclSystemError: unhandled system error", True),
    ("multi", "strict", "exit code 139", False), ("multi", "limits", "unhandled system error", False),
    ("single", "strict", "unhandled system error", False), ("host", None, "unhandled system error", False),
])  # fmt: skip
def test_a_system_error_of_nccls_may_be_a_small_shm(policy: str, step: Any, output: str, helps: bool) -> None:
    shortage = nccl_shortage(*around(policy, step, 4), output) or ""
    assert ("9.19 MiB" in shortage, "step limits" in shortage) == (helps, helps)
    assert nccl_shortage(*around(policy, step, 4, nccl=False), output) is None


def test_what_nccl_takes_is_its_three_buffers_and_a_header() -> None:
    steps = 8
    low_latency, low_latency_128, simple = 8 * 512 * steps * 16, 120 * 640 * steps * 8, 4 << 20
    assert 0 <= NCCL_CONNECTION - (low_latency + low_latency_128 + simple) <= 8192


def shown() -> dict[str, list[str]]:
    """The lines of each cell of the 2021 experiment by its title."""
    plan = load_launch_plan(OF_2021)
    expanded = expand(plan, lambda engine: MACHINE)
    nccl = {image: any("nccl" in backend for backend in backends_of(plan, image)) for image in plan.images}
    start = {(cell.engine, cell.image, cell.side): side(cell.image, nccl[cell.image]) for cell in expanded.cells}
    sessions = {name: FakeEngineSession(lambda command: 0) for name in ("docker", "host")}
    prepared = PreparedCampaign(expanded, sessions, Stacks(start, (), (), ()))
    cells = (commands_of(prepared, Launch(cell, 0, number)) for number, cell in enumerate(expanded.cells))
    return {title.strip().removeprefix("# "): lines for title, *lines in cells}


def test_a_dry_run_says_who_gets_which_gpu_and_what_each_library_is_told() -> None:
    lines = shown()
    _, inner, places, network, server, first, second, *rest = lines["mpich single strict, 1 server and 2 workers"]
    assert '"backends": ["mpi-staged", "nccl"]' in inner and '"staging": ["pinned"]' in inner
    assert network == f"docker network create --internal --opt {INHIBIT_ADDRESS}=true {network.split()[-1]}"
    assert "--gpus" not in server and "nvidia.com" not in server
    for line, gpu in ((first, "GPU-a"), (second, "GPU-b")):
        assert f"""'--gpus="device={gpu}","capabilities=gpu,compute,utility"'""" in line
        assert "target=/collbench/placement.json,readonly" in line
    assert [rank["gpu"] for rank in json.loads(shlex.split(places)[2])] == [None, "GPU-a", "GPU-b"]
    assert not any("NCCL_" in line for line in (server, first, second, *rest))
    assert "--env=NCCL_P2P_DISABLE=1" in "\n".join(lines["openmpi single net, 2 ranks"])
    cuda = "\n".join(lines["openmpi-cuda single net, 2 ranks"])
    assert '"backends": ["mpi-cuda"]' in cuda and "NCCL_P2P_DISABLE" not in cuda
    torch = [line for line in lines["torch single strict, 1 server and 2 workers"] if "MASTER_ADDR=" in line]
    assert [line.split("MASTER_ADDR=")[1].split()[0][-2:] for line in torch] == ["c0"] * 3
    host = lines["torch host, 2 ranks"][-1]
    assert "torchrun --standalone --nproc-per-node 2" in host and "/placement.json --out " in host


def test_every_image_can_be_built_for_cuda_and_shows_no_gpus_that_nobody_asked_for() -> None:
    """Bases may say NVIDIA_VISIBLE_DEVICES=all, and NVIDIA's runtime may be the engine's default."""
    for name, dockerfile in dockerfiles().items():
        assert arguments_of(dockerfile, Recipe()) == {}
        if name != "tools":
            assert arguments_of(dockerfile, Recipe(cuda="13", base="b")) == {"BASE": "b", "CUDA": "13"}
        last = dockerfile.read_text(encoding="utf-8").rpartition("FROM ")[2]
        assert "NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility" in last
