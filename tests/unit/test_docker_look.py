"""What a Docker engine can give, what its images hold, and containers as they are described."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.made_engine import made_engine

from collbench.errors import EngineError, ImageMissing
from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker import images, look
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import Recipe
from collbench.launch.engines.docker.look import (
    ImageRef,
    allowed_calls,
    allows_memlock,
    knows_cdi,
    refuse_unseen_folder,
    refuse_without_gpus,
    refuse_without_host,
    seals_networks,
)
from collbench.launch.engines.docker.spec import (
    CDI,
    MEMLOCK,
    SEALED,
    STEPS,
    Spec,
    container_command,
    container_settings,
    layout_of,
)
from collbench.launch.engines.fake import contents
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.expansion import expand
from collbench.launch.folders import Folders
from collbench.launch.launchers import PROCESS
from collbench.launch.overrides import Overrides
from collbench.launch.placement import Placement, place
from collbench.launch.rank_environment import notes, places
from collbench.launch.waiting import Stopping
from collbench.machine.topology import Core, Topology, TopologyGpu
from collbench.schema.plan import Plan

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

IMAGE = ImageRef("some/image", "sha256:1")
PLAN = Plan(collectives=("allreduce",), images=("mpich", "site/openmpi:5"), policies=("multi",))
NOBODY: Any = SimpleNamespace(check=lambda: None, host="unix:///x")


# What it can give ----------------------------------------------------------------------------------------------------


def answering(monkeypatch: pytest.MonkeyPatch, code: int = 0, said: str = "", error: str | None = None) -> list[Any]:
    """Whatever is run in an image ends so; what was asked for is noted."""
    asked: list[Any] = []

    def ask(engine: Any, image: Any, argv: Any, **settings: Any) -> tuple[int, str]:
        asked.append((argv, settings))
        if error is not None:
            raise EngineError(error)
        return code, said

    monkeypatch.setattr(look, "ask", ask)
    return asked


@pytest.mark.parametrize(
    ("code", "error", "allowed"), [(0, None, True), (1, None, False), (0, "error setting rlimits for ready", False)]
)
def test_whether_memory_may_be_locked_is_tried(
    monkeypatch: pytest.MonkeyPatch, code: int, error: str | None, allowed: bool
) -> None:
    asked = answering(monkeypatch, code, error=error)
    assert allows_memlock(NOBODY, IMAGE) is allowed
    (limit,) = asked[0][1]["ulimits"]
    assert (limit["Name"], limit["Soft"], limit["Hard"]) == ("memlock", -1, -1)


def test_another_error_says_nothing_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, error="no space left")
    with pytest.raises(EngineError, match="no space left"):
        allows_memlock(NOBODY, IMAGE)


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ('{"plain": {"readv": 0, "kcmp": 0}}', {"process_vm_readv", "kcmp"}),
        ('{"plain": {"readv": 1, "kcmp": 0}}\n', {"kcmp"}),
        ('{"plain": {"readv": 0, "kcmp": null}}', {"process_vm_readv"}),
        ('{"plain": {"readv": -1}}', set()),
        ('{"other": {"readv": 0}}', set()),
        ("Traceback", set()),
    ],
)
def test_which_calls_are_allowed_is_what_a_probe_in_a_container_says(
    monkeypatch: pytest.MonkeyPatch, said: str, allowed: set[str]
) -> None:
    asked = answering(monkeypatch, said=said)
    assert allowed_calls(NOBODY, IMAGE) == allowed
    assert asked[0][0] == ("python", "-m", "collbench.doctor.attach_probe")


@pytest.mark.parametrize(
    ("code", "said", "seen"),
    [(0, "{}", True), (0, "an entry says\n{}", True), (0, "another", False), (1, "{}", False), (0, "", False)],
)
def test_a_folder_that_containers_cannot_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, said: str, seen: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mounts: list[Any] = []

    def ask(engine: Any, image: Any, argv: Any, **settings: Any) -> tuple[int, str]:
        (mount,) = settings["mounts"]
        mounts.append((argv, mount["Target"], mount["ReadOnly"]))
        return code, said.format(Path(mount["Source"], "token").read_text())

    monkeypatch.setattr(look, "ask", ask)
    if seen:
        refuse_unseen_folder(NOBODY, IMAGE, PLAN.of_world())
    else:
        with pytest.raises(
            EngineError, match=f"^temporary folder {tmp_path}: containers of the engine at unix:///x can"
        ):
            refuse_unseen_folder(NOBODY, IMAGE, PLAN.of_world())
    script = "cat /collbench/out/token && : > /collbench/out/seen"
    assert mounts == [(("sh", "-c", script), "/collbench/out", False)]
    assert list(tmp_path.iterdir()) == []


def test_without_gpus_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch)
    refuse_without_gpus(NOBODY, IMAGE, ("GPU-a",), False)
    assert asked[0][1]["device_requests"][0]["DeviceIDs"] == ["GPU-a"]
    answering(monkeypatch, error="could not select device driver")
    with pytest.raises(
        EngineError, match=r"^could not select device driver\. The engine cannot give GPUs to containers"
    ):
        refuse_without_gpus(NOBODY, IMAGE, ("GPU-a",), True)


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("nvidia.json", '{"kind": "nvidia.com/gpu"}', True),
        ("nvidia.yaml", "kind: nvidia.com/gpu", True),
        ("nvidia.yml", "kind: nvidia.com/gpu", False),
        ("other.yaml", "kind: example.com/gpu", False),
        ("folder.yaml", None, False),
    ],
)
def test_cdi_is_known_by_specifications_in_their_folders(
    tmp_path: Path, name: str, text: str | None, known: bool
) -> None:
    (tmp_path / "etc" / "cdi").mkdir(parents=True)
    if text is None:
        (tmp_path / "etc" / "cdi" / name).mkdir()
    else:
        (tmp_path / "etc" / "cdi" / name).write_text(text)
    assert knows_cdi({"CDISpecDirs": ["/gone", "/etc/cdi"]}, tmp_path) is known
    assert not knows_cdi({"CDISpecDirs": None, "DiscoveredDevices": None}, tmp_path)
    assert not knows_cdi({"DiscoveredDevices": [{"ID": "example.com/x=0"}]}, tmp_path)


# Images --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "reference"),
    [("openmpi", "collbench/openmpi"), ("site/openmpi", "site/openmpi"), ("openmpi:5", "openmpi:5")],
)
def test_an_image_without_a_slash_or_a_colon_is_collbenchs(image: str, reference: str) -> None:
    assert look.reference_of(image) == reference


@pytest.mark.parametrize(
    ("image", "hint"),
    [("mpich", "Build it: collbench image build mpich"), ("site/x", "Pull it, or build it."), ("x:1", "Pull it, or")],
)
def test_an_image_that_is_missing_is_said_with_how_to_get_it(tmp_path: Path, image: str, hint: str) -> None:
    gone = (404, {"message": "No such image"})
    with (
        made_engine(tmp_path, lambda method, path: gone if "/images/" in path else None) as made,
        closing(Docker(made.host)) as engine,
        pytest.raises(ImageMissing) as caught,
    ):
        look.find(engine, image)
    assert str(caught.value).startswith(f"image {look.reference_of(image)}: not on this engine (unix://")
    assert f"). {hint}" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (1, "Traceback\nModuleNotFoundError: collbench\n", "ModuleNotFoundError: collbench"),
        (127, "", "exit code 127"),
        (0, "  \n", "exit code 0"),
        (1, "x" * 300, "x" * 200),
    ],
)
def test_an_image_that_cannot_say_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str, reason: str
) -> None:
    monkeypatch.setattr(look, "ask", lambda *_, **__: (code, said))
    with pytest.raises(ImageMissing) as caught:
        look.contents_of(NOBODY, IMAGE)
    assert str(caught.value) == f"image some/image: does not hold collbench ({reason})."


def test_the_last_line_of_an_image_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(engine: Any, image: Any, argv: Any, **settings: Any) -> tuple[int, str]:
        asked.append((argv, settings))
        return 0, "an entry says\n" + json.dumps(msgspec.to_builtins(contents("mpich"))) + "\n"

    monkeypatch.setattr(look, "ask", ask)
    assert look.contents_of(NOBODY, IMAGE) == contents("mpich")
    look.contents_of(NOBODY, IMAGE, build=True)
    module = ("python", "-m", "collbench.launch.probe")
    assert asked == [(module, {}), ((*module, "--build"), {})]


def looked(monkeypatch: pytest.MonkeyPatch, plan: Plan, **more: Any) -> tuple[Any, dict[str, list[Any]]]:
    """What is found of a plan's images on an engine that gives everything, and what was asked for."""
    asked: dict[str, list[Any]] = {}

    def noting(name: str, answer: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            asked.setdefault(name, []).append((given[1:], named))
            return answer(*given[1:]) if callable(answer) else answer

        return call

    known = {"Id": "sha256:7", "RepoDigests": ["x@1"], "Config": {"Labels": {"collbench.a": 1, "other": 2}}}
    said: dict[str, Any] = {
        "find": lambda name: ImageRef(name, f"sha256:{name}"), "refuse_unseen_folder": None,
        "refuse_without_gpus": None, "refuse_without_host": None,
        "inspect": known, "seals_networks": True, "allows_memlock": True,
        "allowed_calls": frozenset({"kcmp"}), "contents_of": lambda image: contents("mpich"),
    }  # fmt: skip
    for name, answer in (said | more).items():
        monkeypatch.setattr(look, name, noting(name, answer))
    engine: Any = SimpleNamespace(check=lambda: None, describe=dict, service=SimpleNamespace(only_cdi=True))
    there = Topology(tuple(map(Core, range(4))), tuple(TopologyGpu(f"GPU-{letter}") for letter in "abc"))
    return look.look_at(engine, plan, expand(plan, lambda engine: there).placements), asked


def test_every_image_is_looked_up_once_and_asked_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = msgspec.structs.replace(PLAN, isolation=("strict", "limits"), ranks=(2, 3))
    found, asked = looked(monkeypatch, plan)
    assert list(found.by_image) == ["mpich", "site/openmpi:5"]
    one = found.by_image["mpich"]
    assert (one.contents, one.reference, one.title) == (contents("mpich"), "sha256:mpich", "image mpich")
    assert (one.id, one.digests, one.labels) == ("sha256:7", ("x@1",), {"collbench.a": "1"})
    assert one.refused == launchers.get("mpich", "mpich").attach - {"kcmp"}
    assert (one.grants, found.remarks) == (frozenset({MEMLOCK, SEALED}), ())
    assert [given for given, _ in asked["find"]] == [("mpich",), ("site/openmpi:5",)]
    assert "refuse_without_gpus" not in asked
    assert len(asked["contents_of"]) == len(asked["allowed_calls"]) == 2


def test_images_are_asked_about_the_libraries_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmarks: tuple[Any, ...] = ("stream", {"name": "linpack", "blas": "mkl"})
    plan = Plan(benchmarks=benchmarks, images=("mpich",), policies=("multi",))
    _, asked = looked(monkeypatch, plan)
    assert [named["benchmarks"] for _, named in asked["contents_of"]] == [("stream", "linpack blas=mkl")]


def test_what_an_engine_cannot_give_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = msgspec.structs.replace(PLAN, isolation=("limits",))
    found, _ = looked(monkeypatch, plan, allows_memlock=False, seals_networks=False, inspect={"Id": "sha256:7"})
    assert found.by_image["mpich"].grants == frozenset()
    assert (found.by_image["mpich"].labels, found.by_image["mpich"].digests) == ({}, ())
    assert found.remarks == (
        "the engine cannot grant unlimited memlock: the step limits does not include it (ulimit -l)",
        "the engine cannot keep the host's address off a network: ranks reach what listens there",
    )


def test_at_the_first_step_memory_is_not_locked_and_nobody_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = looked(monkeypatch, PLAN, allows_memlock=False)
    assert found.remarks == () and "allows_memlock" not in asked


@pytest.mark.parametrize(("steps", "tried"), [(("strict", "visible"), 0), (("strict", "files"), 1)])
def test_the_namespaces_of_the_host_are_tried_where_a_step_has_them(
    monkeypatch: pytest.MonkeyPatch, steps: tuple[str, ...], tried: int
) -> None:
    _, asked = looked(monkeypatch, msgspec.structs.replace(PLAN, isolation=steps))
    image = ImageRef("mpich", "sha256:mpich")
    assert asked.get("refuse_without_host", []) == [((image,), {})] * tried


def test_the_most_gpus_of_a_world_are_tried_before_images_are_asked_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = msgspec.structs.replace(PLAN, device="gpu", backends=("nccl",), ranks=(1, 3, 2), images=("mpich",))
    found, asked = looked(monkeypatch, plan)
    assert asked["refuse_without_gpus"] == [
        ((ImageRef("mpich", "sha256:mpich"), ("GPU-a", "GPU-b", "GPU-c"), True), {})
    ]
    (request,) = asked["contents_of"][0][1]["requests"]
    assert request["DeviceIDs"] == ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-c"]
    assert found.by_image["mpich"].grants == frozenset({MEMLOCK, SEALED, CDI})


# Asked of engines that are made up ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "sealed"),
    [
        (201, "", True),
        (500, "unsupported bridge network option com.docker.network.bridge.inhibit_ipv4", False),
        (500, "could not find an available, non-overlapping IPv4 address pool", None),
    ],
)
def test_an_engine_that_refuses_the_option_of_a_network(
    tmp_path: Path, status: int, message: str, sealed: bool | None
) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path == "/networks/create":
            return status, {"Id": "1", "message": message}
        return (200, [{"Id": "1", "Name": "x"}]) if path.startswith("/networks?") else None

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        if sealed is None:
            with pytest.raises(EngineError, match="address pool"):
                seals_networks(engine)
        else:
            assert seals_networks(engine) is sealed
            assert (("DELETE", "/networks/1") in made.asked) is sealed


@pytest.mark.parametrize(
    "what", ["invalid mount config: bind source path does not exist: {source}", "out of disk space"]
)
def test_a_mount_that_is_refused_is_told_from_other_errors(tmp_path: Path, what: str) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/containers/create"):
            source = made.bodies[-1]["HostConfig"]["Mounts"][0]["Source"]
            return 400, {"message": what.format(source=source)}
        return None

    with made_engine(tmp_path, answer) as made:
        with pytest.raises(EngineError) as caught:
            refuse_unseen_folder(Docker(made.host), IMAGE, PLAN.of_world())
        told = "Engine and driver must share it: set TMPDIR" in str(caught.value)
        assert told is ("bind source" in what)
        (mount,) = made.bodies[-1]["HostConfig"]["Mounts"]
        assert (mount["Type"], mount["Target"]) == ("bind", "/collbench/out")


def test_two_builds_of_one_image_have_two_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would take the tag from the first one's draft, which is just being asked what it holds."""
    drafts = []

    def contents_of(engine: Docker, draft: ImageRef, build: bool) -> None:
        drafts.append(draft.name)
        raise EngineError("enough")

    monkeypatch.setattr(images, "contents_of", contents_of)

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith(("/containers/json", "/networks")):
            return 200, []
        if path.startswith("/build"):
            return 200, {"stream": "done"}
        return (200, {"Id": "sha256:1"}) if path.startswith("/images/") else None

    with made_engine(tmp_path, answer) as made:
        for _ in range(2):
            with pytest.raises(EngineError, match="enough"):
                images.build(Docker(made.host), images.prepare("mpich", Recipe()), lambda line: None, Stopping())
    assert len(set(drafts)) == 2
    for draft in drafts:
        assert any(method == "DELETE" and draft in path for method, path in made.asked)


@pytest.mark.parametrize(("other", "refused"), [("", False), ("ipc", True), ("pid", True)])
def test_the_hosts_namespaces_must_be_those_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, other: str, refused: bool
) -> None:
    """Else what killed ranks leave in /dev/shm is out of its reach, or their processes are."""
    asked: list[dict[str, Any]] = []

    def ask(engine: Any, image: ImageRef, argv: tuple[str, ...], **settings: Any) -> tuple[int, str]:
        asked.append(settings)
        return 0, "an entry point says hello\n" + "\n".join(
            f"{name}:[1]" if (name := Path(space).name) == other else str(Path(space).readlink()) for space in argv[1:]
        )

    monkeypatch.setattr(look, "ask", ask)
    if refused:
        with pytest.raises(EngineError, match=r"^step files: .* or in a container with --ipc=host --pid=host\.$"):
            refuse_without_host(made_up(), IMAGE)
    else:
        refuse_without_host(made_up(), IMAGE)
    assert asked == [dict.fromkeys(("network_mode", "ipc_mode", "pid_mode", "uts_mode"), "host")]


def made_up() -> Docker:
    return Docker.__new__(Docker)


# Containers as they are described -------------------------------------------------------------------------------------

MACHINE = Topology(tuple(Core(n) for n in range(4)))
LADDER_PLAN = Plan(collectives=("allreduce",), images=("mpich",))
AT = Folders(Path("/at/plan"), Path("/at/placement"), Path("/at/out"), Path("/at/relay"))


def world_of(cell: LaunchCell, placement: Placement, *grants: str) -> WorldSpec:
    stack = Stack(PROCESS, "collbench/mpich", grants=frozenset(grants), overrides=Overrides({"A": "b"}))
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, stack, AT, (1000, 1000))


def specs_in(cell: LaunchCell, placement: Placement, *grants: str) -> tuple[Spec, ...]:
    return layout_of(world_of(cell, placement, *grants)).specs


def specs(step: str, policy: str = "single", memlock: bool = True) -> tuple[Spec, ...]:
    cell = LaunchCell("mpich", policy, step, 2)
    return specs_in(cell, place(MACHINE, cell, LADDER_PLAN), *((MEMLOCK,) if memlock else ()))


def host_settings(spec: Spec) -> Any:
    """What the SDK is told of the host's part of a container."""
    return container_settings(SimpleNamespace(create_host_config=dict), spec)["host_config"]


def placed(cell: LaunchCell) -> Placement:
    return place(MACHINE, cell, msgspec.structs.replace(LADDER_PLAN, oversubscribe=True))


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
    layout = layout_of(world_of(cell, place(MACHINE, cell, LADDER_PLAN)))
    assert layout.hosts == ((first, 1), ("cb1-0-c1", 1))
    assert layout.names == {first: "cb1-0-c0", "cb1-0-c1": "cb1-0-c1"}


def gpu_specs(step: str, policy: str, cdi: bool = False) -> tuple[Spec, ...]:
    """A parameter server and two workers on a machine with three GPUs."""
    there = replace(MACHINE, gpus=tuple(TopologyGpu(f"GPU-{letter}") for letter in "abc"))
    cell = LaunchCell("mpich", policy, step, 3, servers=1)
    placement = place(there, cell, msgspec.structs.replace(LADDER_PLAN, device="gpu"))
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
    with_gpus = place(there, cell, msgspec.structs.replace(LADDER_PLAN, device="gpu"))
    assert any("devices are not isolated" in line for line in notes(cell, with_gpus, side))
    assert not any("devices are not isolated" in line for line in notes(cell, placed(cell), side))


def test_a_ranks_gpu_is_told_by_its_rank_for_its_local_rank_is_0_in_every_container() -> None:
    there = replace(MACHINE, gpus=tuple(TopologyGpu(f"GPU-{letter}") for letter in "abc"))
    cell = LaunchCell("mpich", "single", "strict", 3)
    placement = place(there, cell, msgspec.structs.replace(LADDER_PLAN, device="gpu"))
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
