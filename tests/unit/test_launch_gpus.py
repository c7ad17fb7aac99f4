"""Launch plans on GPUs, on a machine that is made up: what images must hold, what containers and ranks are told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import collbench
from collbench.cli.plan import commands_of
from collbench.errors import ImageMissing, PlanError, RequestError
from collbench.launch import launchers
from collbench.launch.campaign import PreparedCampaign
from collbench.launch.cells import Launch, LaunchCell, backends_of, check_backends
from collbench.launch.engines.docker import look
from collbench.launch.engines.docker.images import Recipe, arguments_of, labels_of
from collbench.launch.engines.docker.look import ImageRef
from collbench.launch.engines.docker.spec import INHIBIT_ADDRESS, MEMLOCK, SEALED, STEPS
from collbench.launch.engines.fake import FakeEngineSession
from collbench.launch.engines.spec import Look, Stack
from collbench.launch.expansion import expand
from collbench.launch.placement import place
from collbench.launch.probe import Contents, sources
from collbench.launch.rank_environment import NCCL_CONNECTION, hides_peers, nccl_shortage, notes, variables
from collbench.launch.shipped import dockerfiles
from collbench.launch.stacks import Stacks, differences_of, refuse_missing
from collbench.machine.topology import Core, Topology, TopologyGpu
from collbench.schema.axes import sizes_in_bytes
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan, load_launch_plan, load_plan
from collbench.schema.record import SCHEMA

ROOT = Path(__file__).parents[2]
MACHINE = Topology(tuple(Core(n) for n in range(16)), tuple(TopologyGpu(f"GPU-{letter}") for letter in "abcd"))
BASE = Plan(collectives=("allreduce",), images=("mpich",), backends=("nccl",), device="gpu")


def side(image: str, nccl: bool = True) -> Stack:
    vendor = "openmpi" if image == "openmpi-cuda" else image
    return Stack(launchers.get(vendor, image), f"collbench/{image}", nccl=nccl, grants=frozenset({MEMLOCK, SEALED}))


# Plans ----------------------------------------------------------------------------------------------------------------


def test_the_whole_2021_experiment_has_for_each_image_the_backends_that_it_can_serve() -> None:
    plan = load_launch_plan(ROOT / "launch" / "choi2021-gpu.toml")
    assert {image: backends_of(plan, image) for image in plan.images} == {
        "openmpi": ("mpi-staged", "nccl"), "mpich": ("mpi-staged", "nccl"),
        "openmpi-cuda": ("mpi-cuda",), "torch": ("torch-nccl",),
    }  # fmt: skip
    found = expand(plan, lambda engine: MACHINE).placements
    assert {cell.ranks - cell.servers for cell in found} == {1, 2, 3, 4}
    for cell, placement in found.items():
        assert len(placement.gpus) == cell.ranks - cell.servers
        assert placement.slots[0].gpu == (None if cell.servers else "GPU-a")


def test_the_cpu_plan_moves_the_same() -> None:
    plans = [load_launch_plan(ROOT / "launch" / f"choi2021{kind}.toml") for kind in ("", "-gpu")]
    same = [
        (plan.collectives, sizes_in_bytes(plan["sizes"]), plan.iters, plan.workers, plan.policies, plan.isolation)
        for plan in plans
    ]
    assert same[0] == same[1]


def test_the_smoke_plan_is_one_for_run_and_skips_what_is_not_there() -> None:
    plan = load_plan(ROOT / "launch" / "choi2021-gpu-smoke.toml")
    assert plan.unusable == "skip"
    assert plan["backends"] == ("mpi-staged", "mpi-cuda", "nccl", "torch-nccl")


def test_a_backend_of_gpus_takes_a_plan_that_gives_them() -> None:
    check_backends(BASE)
    with pytest.raises(PlanError, match=r'backend nccl: its data is on GPUs.*Set device = "gpu"'):
        check_backends(msgspec.structs.replace(BASE, device="cpu"))


# What ranks are told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", ["single", "multi"])
@pytest.mark.parametrize("nccl", [True, False])
def test_nccl_does_not_reach_for_gpus_that_its_container_hides(step: str, policy: str, nccl: bool) -> None:
    """Containers of one hostname are one machine to NCCL; before, they are machines of their own, later all is seen."""
    cell = LaunchCell("mpich", policy, step, 2)
    hidden = (step, policy, nccl) == ("net", "single", True)
    placement = place(MACHINE, cell, BASE)
    assert hides_peers(cell, placement, side("mpich", nccl)) == hidden
    told = variables(cell, placement, side("mpich", nccl))
    assert told.get("NCCL_P2P_DISABLE") == ("1" if hidden else None)
    said = notes(cell, placement, side("mpich", nccl))
    assert any(note.startswith("NCCL_P2P_DISABLE=1, because") for note in said) == hidden
    assert {name for name in told if name.startswith("NCCL")} <= {"NCCL_P2P_DISABLE"}


def test_one_gpu_has_no_peer_and_the_host_hides_none() -> None:
    server = LaunchCell("mpich", "single", "net", 2, servers=1)
    assert "NCCL_P2P_DISABLE" not in variables(server, place(MACHINE, server, BASE), side("mpich"))
    host = LaunchCell("mpich", "host", None, 4)
    assert not hides_peers(host, place(MACHINE, host, BASE), side("mpich"))


@pytest.mark.parametrize(
    ("policy", "step", "said", "helps"),
    [
        ("multi", "strict", "NCCL_ERROR_SYSTEM_ERROR: unhandled system error", True),
        ("packed:2", "strict", "ncclSystemError: unhandled system error", True),
        ("multi", "strict", "exit code 139", False), ("multi", "limits", "unhandled system error", False),
        ("single", "strict", "unhandled system error", False), ("host", None, "unhandled system error", False),
    ],
)  # fmt: skip
def test_a_system_error_of_nccls_may_be_a_small_shm(policy: str, step: Any, said: str, helps: bool) -> None:
    cell = LaunchCell("mpich", policy, step, 4)
    placement = place(MACHINE, cell, BASE)
    found = nccl_shortage(cell, placement, side("mpich"), said)
    assert (found is not None) == helps
    assert found is None or ("9.19 MiB" in found and "the step limits" in found)
    assert nccl_shortage(cell, placement, side("mpich", nccl=False), said) is None


def test_what_nccl_takes_is_its_three_buffers_and_a_header() -> None:
    steps = 8
    low_latency, low_latency_128, simple = 8 * 512 * steps * 16, 120 * 640 * steps * 8, 4 << 20
    assert 0 <= NCCL_CONNECTION - (low_latency + low_latency_128 + simple) <= 8192


# Dry run --------------------------------------------------------------------------------------------------------------


def shown(plan: Plan) -> dict[str, list[str]]:
    """The lines of each cell by its title."""
    expanded = expand(plan, lambda engine: MACHINE)
    start = {
        (cell.engine, cell.image, cell.side): side(
            cell.image, any("nccl" in one for one in backends_of(plan, cell.image))
        )
        for cell in expanded.cells
    }
    sessions = {name: FakeEngineSession(lambda command: 0) for name in ("docker", "host")}
    prepared = PreparedCampaign(expanded, sessions, Stacks(start, (), (), ()))
    found = {}
    for number, cell in enumerate(expanded.cells):
        title, *lines = commands_of(prepared, Launch(cell, 0, number))
        title = title.strip()
        found[title.removeprefix("# ")] = lines
    return found


def test_a_dry_run_says_who_gets_which_gpu() -> None:
    plan = load_launch_plan(ROOT / "launch" / "choi2021-gpu.toml")
    found = shown(plan)
    _, inner, places, network, server, first, second, *rest = found["mpich single strict, 1 server and 2 workers"]
    assert '"backends": ["mpi-staged", "nccl"]' in inner
    assert '"staging": ["pinned"]' in inner
    assert network == f"docker network create --internal --opt {INHIBIT_ADDRESS}=true {network.split()[-1]}"
    assert "--gpus" not in server and "nvidia.com" not in server
    for line, gpu in ((first, "GPU-a"), (second, "GPU-b")):
        assert f"""'--gpus="device={gpu}","capabilities=gpu,compute,utility"'""" in line
        assert "target=/collbench/placement.json,readonly" in line
    assert [one["gpu"] for one in json.loads(shlex.split(places)[2])] == [None, "GPU-a", "GPU-b"]
    assert not any("NCCL_" in line for line in (server, first, second, *rest))


def test_a_dry_run_of_each_library() -> None:
    found = shown(load_launch_plan(ROOT / "launch" / "choi2021-gpu.toml"))
    net = "\n".join(found["openmpi single net, 2 ranks"])
    assert "--env=NCCL_P2P_DISABLE=1" in net
    cuda = "\n".join(found["openmpi-cuda single net, 2 ranks"])
    assert '"backends": ["mpi-cuda"]' in cuda
    assert "NCCL_P2P_DISABLE" not in cuda
    torch = found["torch single strict, 1 server and 2 workers"]
    assert [line.split("MASTER_ADDR=")[1].split()[0][-2:] for line in torch if "MASTER_ADDR=" in line] == ["c0"] * 3
    host = found["torch host, 2 ranks"][-1]
    assert "torchrun --standalone --nproc-per-node 2" in host
    assert "/placement.json --out " in host


# Images ---------------------------------------------------------------------------------------------------------------


def contents(**more: Any) -> Contents:
    there: dict[str, Any] = {
        "collbench": collbench.__version__, "python": "3.11", "vendor": "mpich", "native": True, "missing": {},
        "libraries": (Library(name="MPICH", version="5.0.2"),), "packages": {}, "schema": SCHEMA, "sources": sources(),
    }  # fmt: skip
    return Contents(**(there | more))


NCCL = Library(name="NCCL", version="2.29.7", sha256="ab")


def test_every_image_can_be_built_for_cuda_and_a_dockerfile_without_it_says_so(tmp_path: Path) -> None:
    found = dockerfiles()
    tools = found.pop("tools")
    for dockerfile in found.values():
        assert arguments_of(dockerfile, Recipe(cuda="13", base="b")) == {"BASE": "b", "CUDA": "13"}
        assert arguments_of(dockerfile, Recipe()) == {}
    assert arguments_of(tools, Recipe(arguments=("HPCG_SHA256=00=",))) == {"HPCG_SHA256": "00="}
    for argument in ("HPCG_SHA=0", "HPCG_URL"):
        with pytest.raises(RequestError, match=f"--build-arg {argument}: write NAME=VALUE; tools.Dockerfile has BASE"):
            arguments_of(tools, Recipe(arguments=(argument,)))
    plain = tmp_path / "plain.Dockerfile"
    plain.write_text("ARG CUDA_RUNTIME=1\n")
    with pytest.raises(RequestError, match=r"--cuda 12: plain\.Dockerfile has no argument CUDA"):
        arguments_of(plain, Recipe(cuda="12"))


def test_no_image_shows_gpus_that_nobody_asked_for() -> None:
    """Bases may say NVIDIA_VISIBLE_DEVICES=all, and NVIDIA's runtime may be the engine's default."""
    for dockerfile in dockerfiles().values():
        last = dockerfile.read_text(encoding="utf-8").rpartition("FROM ")[2]
        assert "NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility" in last


def test_labels_say_which_nccl_and_cupy() -> None:
    found = labels_of(contents(
        libraries=(Library(name="MPICH", version="5.0.2"), NCCL), packages={"cupy-cuda12x": "14.2.0"}, cuda="12"
    ))  # fmt: skip
    wanted = {"collbench.mpi": "MPICH 5.0.2", "collbench.nccl": "2.29.7", "collbench.nccl.sha256": "ab",
              "collbench.cupy": "14.2.0", "collbench.cuda": "12"}  # fmt: skip
    assert wanted.items() <= found.items()
    assert not {"collbench.nccl", "collbench.cupy", "collbench.cuda"} & set(labels_of(contents()))


def test_another_nccl_is_a_difference_besides_the_container() -> None:
    mpi = contents().libraries
    both, other = contents(libraries=(*mpi, NCCL)), contents(libraries=(*mpi, replace_version(NCCL, "2.30.7")))
    assert differences_of(both, both) == []
    assert differences_of(both, other) == ["NCCL 2.29.7 on the host, 2.30.7 in the image"]
    assert differences_of(both, contents()) == ["NCCL 2.29.7 on the host, missing in the image"]
    assert differences_of(contents(), both) == ["NCCL missing on the host, 2.29.7 in the image"]


def replace_version(library: Library, version: str) -> Library:
    return msgspec.structs.replace(library, version=version)


def test_an_image_is_asked_with_the_gpus_that_its_ranks_will_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, every backend of GPUs would be missing in it."""
    asked: list[dict[str, Any]] = []

    def ask(engine: object, image: ImageRef, argv: tuple[str, ...], **settings: Any) -> tuple[int, str]:
        asked.append(settings)
        return 0, msgspec.json.encode(contents()).decode()

    monkeypatch.setattr(look, "ask", ask)
    nobody: Any = None
    look.contents_of(nobody, ImageRef("mpich", "sha256:1"), requests=[{"Count": -1}])
    look.contents_of(nobody, ImageRef("mpich", "sha256:1"))
    assert [one.get("device_requests") for one in asked] == [[{"Count": -1}], None]


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"collbench": "0.0.1"}, rf"holds collbench 0\.0\.1 \(schema {SCHEMA}\), this is "),
        ({"schema": SCHEMA - 1}, rf" \(schema {SCHEMA - 1}\), this is .* \(schema {SCHEMA}\)"),
        ({"schema": 0}, r" \(schema unknown\), this is "),
        ({"sources": "0" * 64}, r"sources 000000000000"),
    ],
)
def test_an_image_of_another_collbench_is_refused_though_its_version_is_the_same(
    monkeypatch: pytest.MonkeyPatch, of: dict[str, Any], said: str
) -> None:
    """Its records would be read as older ones are, and stand beside others that were measured in another way."""
    monkeypatch.setattr(look, "ask", lambda *_, **__: (0, msgspec.json.encode(contents(**of)).decode()))
    nobody: Any = None
    with pytest.raises(ImageMissing, match=rf"{said}.*Build it again: collbench image build mpich"):
        look.contents_of(nobody, ImageRef("collbench/mpich", "sha256:1"))


def image_with(held: Contents) -> Look:
    return Look(held, "sha256:1", "image mpich", id="sha256:1")


def test_what_an_image_lacks_is_said_with_how_to_build_it_or_skipped() -> None:
    plan = msgspec.structs.replace(BASE, backends=("nccl", "mpi"))
    lacking = contents(missing={"nccl": "CuPy is not installed"})
    with pytest.raises(PlanError, match=r"CuPy is not installed\. Build it for GPUs: .* image build mpich --cuda 12"):
        refuse_missing(plan, "mpich", image_with(lacking))
    with pytest.raises(PlanError, match=r"no driver\. It has"):
        refuse_missing(plan, "mpich", image_with(contents(missing={"nccl": "no driver"}, cuda="12")))
    skipping = msgspec.structs.replace(plan, unusable="skip")
    refuse_missing(skipping, "mpich", image_with(lacking))
    with pytest.raises(PlanError):  # nothing would be left
        refuse_missing(msgspec.structs.replace(skipping, backends=("nccl",)), "mpich", image_with(lacking))


# What is asked of an engine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policies", "ranks", "asked"),
    [
        (("single", "packed:1"), 3, False), (("packed:2",), 3, True), (("multi",), 1, False), (("multi",), 3, True),
        (("numa",), 2, True),
    ],
)  # fmt: skip
def test_memory_of_other_ranks_is_tried_where_ranks_share_a_container(
    policies: tuple[str, ...], ranks: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[str]()

    def allowed(engine: object, image: ImageRef) -> frozenset[str]:
        tried.append(image.name)
        return frozenset()

    said: dict[str, Any] = {
        "find": lambda engine, name: ImageRef(name, "sha256:1"), "refuse_unseen_folder": lambda *_: None,
        "contents_of": lambda *_, **__: contents(), "inspect": lambda *_: {"Id": "sha256:1"},
        "seals_networks": lambda _: True, "allowed_calls": allowed,
    }  # fmt: skip
    for name, value in said.items():
        monkeypatch.setattr(look, name, value)
    plan = msgspec.structs.replace(BASE, backends=("mpi",), device="cpu", policies=policies, ranks=(ranks,))
    engine: Any = SimpleNamespace(check=lambda: None)
    found = look.look_at(engine, plan, expand(plan, lambda engine: MACHINE).placements).by_image["mpich"]
    assert tried == (["mpich"] if asked else [])
    assert found.refused == (launchers.get("mpich", "mpich").attach if asked else frozenset())
