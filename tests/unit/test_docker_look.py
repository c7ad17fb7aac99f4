"""What a Docker engine can give, what its images hold, and containers as they are described."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.fake_engine import contents
from tests.unit.made_engine import Reply, connected

from collbench.errors import EngineError, ImageMissing
from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.images import ImageRef
from collbench.launch.engines.docker.spec import CDI, MEMLOCK, SEALED, STEPS, Spec, container_command, layout_of
from collbench.launch.engines.docker.spec import container_settings as settings_for
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.expansion import expand, notes, places
from collbench.launch.folders import Folders
from collbench.launch.launchers import PROCESS
from collbench.launch.overrides import Overrides
from collbench.launch.placement import place
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.schema.plan import Plan

Golden = Callable[[str, str], None]
docker_types = pytest.importorskip("docker.types", reason="the Docker SDK for Python is not installed")

IMAGE = ImageRef("some/image", "sha256:1")
PLAN = Plan(collectives=("allreduce",), images=("mpich", "site/openmpi:5"), policies=("multi",))
NOBODY: Any = SimpleNamespace(check=lambda: None, host="unix:///x")

#: Command and settings of a container that was asked for.
Asked = tuple[tuple[str, ...], dict[str, Any]]
Answering = Callable[..., list[Asked]]


def machine(gpus: str = "") -> Topology:
    return Topology(tuple(map(Core, range(4))), tuple(TopologyGpu(f"GPU-{letter}") for letter in gpus))


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """`answering(code, output, error)`: whatever is run in an image ends so, and is noted in what this returns.

    The output may follow from the command and the settings.
    """

    def answer(code: int = 0, output: Any = "", error: str | None = None) -> list[Asked]:
        asked: list[Asked] = []

        def ask(engine: Any, image: Any, argv: Any, **settings: Any) -> tuple[int, str]:
            asked.append((argv, settings))
            if error is not None:
                raise EngineError(error)
            return code, output(argv, settings) if callable(output) else output

        monkeypatch.setattr(images, "ask", ask)
        return asked

    return answer


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


# What an engine can give ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "error", "allowed"), [(0, None, True), (1, None, False), (0, "rlimits", False)])
def test_whether_memory_may_be_locked(answering: Answering, code: int, error: str | None, allowed: bool) -> None:
    asked = answering(code, error=error)
    assert images.allows_memlock(NOBODY, IMAGE) is allowed
    assert asked[0][1] == {"ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}]}
    answering(error="ENOSPC")
    with pytest.raises(EngineError, match="ENOSPC"):
        images.allows_memlock(NOBODY, IMAGE)


@pytest.mark.parametrize(("output", "allowed"), [
    ('{"plain": {"readv": 0, "kcmp": 0}}', {"process_vm_readv", "kcmp"}),
    ('an entry says\n{"plain": {"readv": 0, "kcmp": 0}}', {"process_vm_readv", "kcmp"}),
    ('{"plain": {"readv": 1, "kcmp": 0}}\n', {"kcmp"}), ('{"plain": {"readv": 0, "kcmp": null}}', {"process_vm_readv"}),
    ('{"plain": {"readv": -1}}', set()), ('{"other": {"readv": 0}}', set()), ("Traceback", set()),
])  # fmt: skip
def test_calls_are_allowed_as_a_probe_in_a_container_says(answering: Answering, output: str, allowed: set[str]) -> None:
    asked = answering(output=output)
    assert images.allowed_calls(NOBODY, IMAGE) == allowed
    assert asked[0][0] == ("python", "-m", "collbench.machine.attach_probe")


@pytest.mark.parametrize(("code", "output", "error", "is_seen"), [
    (0, "{}", None, True), (0, "an entry says\n{}", None, True), (0, "another", None, False), (1, "{}", None, False),
    (0, "", None, False), (0, "", "source path {}", False),
])  # fmt: skip
def test_a_folder_that_containers_cannot_use_is_refused(
    answering: Answering, temporary: Path, code: int, output: str, error: str | None, is_seen: bool
) -> None:
    def read(argv: Any, settings: dict[str, Any]) -> str:
        source = settings["mounts"][0]["Source"]
        if error is not None:
            raise EngineError(error.format(source))
        return output.format(Path(source, "token").read_text())

    asked = answering(code, read)
    raises = pytest.raises(EngineError, match=f"{temporary}: .*unix:///x.*TMPDIR")
    with contextlib.nullcontext() if is_seen else raises:
        images.refuse_unseen_folder(NOBODY, IMAGE, PLAN.of_world())
    ((argv, settings),) = asked
    (mount,) = settings["mounts"]
    assert argv == ("sh", "-c", "cat /collbench/out/token && : > /collbench/out/seen")
    assert (mount["Type"], mount["Target"], mount["ReadOnly"]) == ("bind", "/collbench/out", False)
    assert list(temporary.iterdir()) == []
    answering(error="ENOSPC")
    with pytest.raises(EngineError, match=r"^ENOSPC$"):
        images.refuse_unseen_folder(NOBODY, IMAGE, PLAN.of_world())


def test_gpus_are_tried_in_a_container(answering: Answering) -> None:
    asked = answering()
    images.refuse_without_gpus(NOBODY, IMAGE, ("GPU-a",), False)
    assert asked[0][1]["device_requests"][0]["DeviceIDs"] == ["GPU-a"]
    answering(error="ENODEV")
    with pytest.raises(EngineError, match=r"^ENODEV.*nvidia-ctk"):
        images.refuse_without_gpus(NOBODY, IMAGE, ("GPU-a",), True)


@pytest.mark.parametrize("other", ["", "ipc", "pid"])
def test_the_hosts_namespaces_must_be_those_of_the_driver(answering: Answering, other: str) -> None:
    """Else what killed ranks leave in /dev/shm is out of its reach, or their processes are."""

    def read(argv: tuple[str, ...], settings: Any) -> str:
        links = (f"{other}:[1]" if Path(space).name == other else str(Path(space).readlink()) for space in argv[1:])
        return "\n".join(("an entry point says hello", *links))

    asked = answering(output=read)
    raises = pytest.raises(EngineError, match=r"^step files: .*--ipc=host --pid=host")
    with raises if other else contextlib.nullcontext():
        images.refuse_without_host(NOBODY, IMAGE)
    assert asked[0][1] == dict.fromkeys(("network_mode", "ipc_mode", "pid_mode", "uts_mode"), "host")


FOLDERS = {"CDISpecDirs": ["/gone", "/etc/cdi"]}


@pytest.mark.parametrize(("description", "name", "text", "is_known"), [
    (FOLDERS, "nvidia.json", '{"kind": "nvidia.com/gpu"}', True),
    (FOLDERS, "nvidia.yaml", "kind: nvidia.com/gpu", True), (FOLDERS, "nvidia.yml", "kind: nvidia.com/gpu", False),
    (FOLDERS, "other.yaml", "kind: example.com/gpu", False), (FOLDERS, "folder.yaml", None, False),
    ({}, "nvidia.yaml", "kind: nvidia.com/gpu", False),
    ({"CDISpecDirs": None, "DiscoveredDevices": None}, "nvidia.yaml", "kind: nvidia.com/gpu", False),
    ({"DiscoveredDevices": [{"Source": "cdi", "ID": "example.com/x=0"}]}, "other.yaml", "", False),
    ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "other.yaml", "", True),
])  # fmt: skip
def test_cdi_is_known_by_devices_or_by_specifications_in_their_folders(
    tmp_path: Path, description: dict[str, Any], name: str, text: str | None, is_known: bool
) -> None:
    path = tmp_path / "etc" / "cdi" / name
    path.parent.mkdir(parents=True)
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    assert images.knows_cdi(description, tmp_path) is is_known


@pytest.mark.parametrize(
    ("status", "message", "is_sealed"),
    [(201, "", True), (500, "unsupported option inhibit_ipv4", False), (500, "EADDRINUSE", None)],
)
def test_an_engine_may_refuse_to_seal_networks(
    tmp_path: Path, status: int, message: str, is_sealed: bool | None
) -> None:
    answers: dict[str, Reply] = {"/networks/create": (status, {"Id": "1", "message": message}),
                                 "/networks?": (200, [{"Id": "1", "Name": "x"}])}  # fmt: skip
    with connected(tmp_path, answers) as (docker, made):
        if is_sealed is None:
            with pytest.raises(EngineError, match=message):
                images.seals_networks(docker)
        else:
            assert images.seals_networks(docker) is is_sealed
            assert (("DELETE", "/networks/1") in made.asked) is is_sealed


# Images --------------------------------------------------------------------------------------------------------------


def test_the_last_line_of_an_image_is_its_answer(answering: Answering) -> None:
    asked = answering(output="an entry says\n" + json.dumps(msgspec.to_builtins(contents("mpich"))) + "\n")
    assert images.contents_of(NOBODY, IMAGE) == contents("mpich")
    images.contents_of(NOBODY, IMAGE, build=True)
    images.contents_of(NOBODY, IMAGE, requests=[{"Count": -1}])
    module = ("python", "-m", "collbench.launch.probe")
    assert asked == [(module, {}), ((*module, "--build"), {}), (module, {"device_requests": [{"Count": -1}]})]


@pytest.mark.parametrize("command", ["", "collbench image build mpich --as mine --build-arg MPICH_VERSION=4.3.2"])
def test_an_image_of_another_collbench_is_refused(answering: Answering, temporary: Path, command: str) -> None:
    """With the command that built it, where its labels say it."""
    answering(output=msgspec.json.encode(msgspec.structs.replace(contents("mpich"), schema=2)).decode())
    labels = {"Id": "sha256:1", "Config": {"Labels": {"collbench.command": command} if command else None}}
    with (
        connected(temporary, {"/images/": (200, labels)}) as (docker, _),
        pytest.raises(ImageMissing, match=rf"\(schema 2\).*: {command or 'collbench image build mpich'}$"),
    ):
        images.contents_of(docker, ImageRef("collbench/mpich", "sha256:1"))


#: What a command printed that was to say what an image holds, and how it ended.
ANSWERS = {"no collbench": (1, "Traceback\nModuleNotFoundError: collbench\n"), "no program": (127, ""),
           "nothing": (0, "  \n"), "a long line": (1, "x" * 300)}  # fmt: skip


def test_what_cannot_be_used_is_refused_with_what_helps(answering: Answering, temporary: Path, golden: Golden) -> None:
    lines: list[str] = []

    def refused(what: str, kind: type[Exception], call: Callable[..., Any], *arguments: Any) -> None:
        with pytest.raises(kind) as caught:
            call(*arguments)
        lines.append(f"{what}: {str(caught.value).replace(str(temporary), 'DIR')}\n")

    with connected(temporary, {"/images/": (404, {"message": "No such image"})}) as (docker, _):
        for image in ("mpich", "site/x", "x:1"):
            refused("a missing image", ImageMissing, images.find, docker, image)
    for what, (code, output) in ANSWERS.items():
        answering(code, output)
        refused(f"an image's answer with {what}", ImageMissing, images.contents_of, NOBODY, IMAGE)
    answering(1)
    refused("a folder that is not seen", EngineError, images.refuse_unseen_folder, NOBODY, IMAGE, PLAN.of_world())
    refused("other namespaces", EngineError, images.refuse_without_host, NOBODY, IMAGE)
    answering(error="could not select device driver")
    refused("no GPUs", EngineError, images.refuse_without_gpus, NOBODY, IMAGE, ("GPU-a",), True)
    lines += (f"not granted, {name}: {remark}\n" for name, remark in images._NOT_GRANTED.items())
    golden("docker-refusals.txt", "".join(lines))


Looking = Callable[..., tuple[Any, dict[str, list[Any]]]]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Looking:
    """`looking(plan, **other)`: what is learnt of a plan's images on an engine that gives everything, and every call.

    `other` are other answers of the engine.
    """

    def look_at(plan: Plan, **other: Any) -> tuple[Any, dict[str, list[Any]]]:
        calls: dict[str, list[Any]] = {}

        def noting(name: str, answer: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                calls.setdefault(name, []).append((arguments[1:], named))
                return answer(*arguments[1:]) if callable(answer) else answer

            return call

        image = {"Id": "sha256:7", "RepoDigests": ["x@1"], "Config": {"Labels": {"collbench.a": 1, "other": 2}}}
        usual: dict[str, Any] = {
            "find": lambda name: ImageRef(name, f"sha256:{name}"), "contents_of": lambda image: contents("mpich"),
            "refuse_unseen_folder": None, "refuse_without_gpus": None, "refuse_without_host": None,
            "inspect": image, "seals_networks": True, "allows_memlock": True, "allowed_calls": frozenset({"kcmp"}),
        }  # fmt: skip
        for name, answer in (usual | other).items():
            monkeypatch.setattr(images, name, noting(name, answer))
        engine: Any = SimpleNamespace(check=lambda: None, describe=dict, service=SimpleNamespace(only_cdi=True))
        return images.look_at(engine, plan, expand(plan, lambda engine: machine("abc")).placements), calls

    return look_at


def test_every_image_is_looked_up_once_and_asked_what_it_holds(looking: Looking) -> None:
    looks, calls = looking(msgspec.structs.replace(PLAN, isolation=("strict", "limits"), ranks=(2, 3)))
    assert list(looks.by_image) == ["mpich", "site/openmpi:5"]
    mpich = looks.by_image["mpich"]
    assert (mpich.contents, mpich.reference, mpich.title) == (contents("mpich"), "sha256:mpich", "image mpich")
    assert (mpich.id, mpich.digests, mpich.labels) == ("sha256:7", ("x@1",), {"collbench.a": "1"})
    assert mpich.refused == launchers.get("mpich", "mpich").attach - {"kcmp"}
    assert (mpich.grants, looks.remarks) == (frozenset({MEMLOCK, SEALED}), ())
    assert [arguments for arguments, _ in calls["find"]] == [("mpich",), ("site/openmpi:5",)]
    assert "refuse_without_gpus" not in calls
    assert len(calls["contents_of"]) == len(calls["allowed_calls"]) == 2


def test_images_are_asked_about_the_libraries_of_a_plan(looking: Looking) -> None:
    benchmarks: tuple[Any, ...] = ("stream", {"name": "linpack", "blas": "mkl"})
    _, calls = looking(Plan(benchmarks=benchmarks, images=("mpich",), policies=("multi",)))
    assert [named["benchmarks"] for _, named in calls["contents_of"]] == [("stream", "linpack blas=mkl")]


def test_what_an_engine_does_not_grant_is_a_remark(looking: Looking) -> None:
    plan = msgspec.structs.replace(PLAN, isolation=("limits",))
    looks, _ = looking(plan, allows_memlock=False, seals_networks=False, inspect={"Id": "sha256:7"})
    mpich = looks.by_image["mpich"]
    assert (mpich.grants, mpich.labels, mpich.digests) == (frozenset(), {}, ())
    assert looks.remarks == (images._NOT_GRANTED[MEMLOCK], images._NOT_GRANTED[SEALED])


@pytest.mark.parametrize(("values", "call", "times"), [
    ({}, "allows_memlock", 0), ({"isolation": ("strict", "limits")}, "allows_memlock", 1),
    ({"isolation": ("strict", "visible")}, "refuse_without_host", 0),
    ({"isolation": ("strict", "files")}, "refuse_without_host", 1), ({}, "refuse_without_gpus", 0),
    ({"policies": ("single", "packed:1"), "ranks": (3,)}, "allowed_calls", 0),
    ({"policies": ("packed:2",), "ranks": (3,)}, "allowed_calls", 1), ({"ranks": (1,)}, "allowed_calls", 0),
    ({"ranks": (3,)}, "allowed_calls", 1), ({"policies": ("numa",)}, "allowed_calls", 1),
])  # fmt: skip
def test_what_a_plan_needs_is_tried(looking: Looking, values: dict[str, Any], call: str, times: int) -> None:
    """Locked memory from the second step on, the namespaces of the host at the last, memory where ranks share it."""
    plan = msgspec.structs.replace(PLAN, images=("mpich",), **values)
    looks, calls = looking(plan, allows_memlock=False)
    assert [arguments[0] for arguments, _ in calls.get(call, ())] == [ImageRef("mpich", "sha256:mpich")] * times
    assert bool(looks.remarks) is ("allows_memlock" in calls)
    attach = launchers.get("mpich", "mpich").attach - {"kcmp"}
    assert looks.by_image["mpich"].refused == (attach if "allowed_calls" in calls else frozenset())


def test_the_most_gpus_of_a_world_are_tried_before_images_are_asked_with_them(looking: Looking) -> None:
    plan = msgspec.structs.replace(PLAN, device="gpu", backends=("nccl",), ranks=(1, 3, 2), images=("mpich",))
    looks, calls = looking(plan)
    (((_, gpus, is_cdi), _),) = calls["refuse_without_gpus"]
    assert (gpus, is_cdi) == (("GPU-a", "GPU-b", "GPU-c"), True)
    (request,) = calls["contents_of"][0][1]["requests"]
    assert request["DeviceIDs"] == ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-c"]
    assert looks.by_image["mpich"].grants == frozenset({MEMLOCK, SEALED, CDI})


# Containers as they are described -------------------------------------------------------------------------------------

AT = Folders(Path("/at/plan"), Path("/at/placement"), Path("/at/out"), Path("/at/relay"))


def world(
    step: str, policy: str = "single", *grants: str, ranks: int = 2, servers: int = 0, gpus: str = "",
    launcher: Any = PROCESS,
) -> WorldSpec:  # fmt: skip
    """Ranks on a machine with four cores, and GPUs by their letters."""
    cell = LaunchCell("mpich", policy, step, ranks, servers=servers)
    plan = Plan(collectives=("allreduce",), images=("mpich",), device="gpu" if gpus else "cpu")
    stack = Stack(launcher, "collbench/mpich", grants=frozenset(grants), overrides=Overrides({"A": "b"}))
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, place(machine(gpus), cell, plan), stack, AT, (1000, 1000))


def specs(step: str, policy: str = "single", *grants: str, **more: Any) -> tuple[Spec, ...]:
    return layout_of(world(step, policy, *(grants or (MEMLOCK,)), **more)).specs


def created(spec: Spec) -> dict[str, Any]:
    """What the SDK is told, which refuses settings of the host's part that it does not know."""
    settings = settings_for(SimpleNamespace(create_host_config=dict), spec)
    docker_types.HostConfig(version="1.41", **settings["host_config"])
    return settings


NET, ANCHOR, UNLIMITED = "cb1-0-net", "container:cb1-0-anchor", [{"Name": "memlock", "Soft": -1, "Hard": -1}]
ALONE = {"ipc_mode": "private", "network_mode": NET, "init": True}
# No init process: it would not be the first of its PID namespace, and orphans are the anchor's or the engine's to reap.
JOINED = {"ipc_mode": ANCHOR, "pid_mode": ANCHOR, "init": False, "ulimits": UNLIMITED}
OF_HOST = dict.fromkeys(("ipc_mode", "pid_mode", "network_mode", "uts_mode"), "host")
TRACING = {"cap_add": ["SYS_NICE", "SYS_PTRACE"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "strict": {**ALONE, "shm_size": 64 << 20, "cap_add": [], "ulimits": []},
    "limits": {**ALONE, "shm_size": 1 << 30, "cap_add": ["SYS_NICE"], "ulimits": UNLIMITED},
    "ipc": {**JOINED, **TRACING, "network_mode": NET},
    "net": {**JOINED, **TRACING, "network_mode": ANCHOR},
    "visible": {**JOINED, **TRACING, "network_mode": ANCHOR},
    "files": {**JOINED, **TRACING, **OF_HOST},
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", ["single", "multi"])
def test_each_step_adds_to_the_one_before_and_none_gives_the_host(step: str, policy: str) -> None:
    """At the last one its namespaces, and no more."""
    for spec in specs(step, policy):
        settings, command = created(spec), container_command(spec)
        if policy == "single" and not spec.donates:
            keys = {*ALONE, *OF_HOST, "shm_size", "cap_add", "ulimits"}
            assert {key: settings["host_config"][key] for key in keys & {*settings["host_config"]}} == SETTINGS[step]
        assert (settings["hostname"] is None) is (step == "files" or spec.joins_net is not None)
        assert (settings["networking_config"] is None) is (spec.network is None) is (settings["hostname"] is None)
        assert (settings["user"], command.count("=host")) == ("1000:1000", 4 if step == "files" else 0)
        for never in ("privileged", "docker.sock", "unconfined", "SYS_ADMIN", "--userns"):
            assert never not in command
        for always in ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=1000:1000", "sleep 86400"):
            assert always in command


def test_an_anchor_owns_what_is_shared_and_a_lone_container_needs_none() -> None:
    anchor, *members = specs("net")
    assert (anchor.donates, anchor.cores, anchor.aliases) == (True, "0-1", ("cb1-0-c0", "cb1-0-c1"))
    assert [(spec.cores, spec.processes, spec.cdi, spec.gpus) for spec in members] == [
        (core, 4096, False, ()) for core in "01"
    ]  # fmt: skip
    assert not any(mount.writable for mount in members[1].mounts)
    assert [spec.name for spec in specs("ipc", "multi")] == ["cb1-0-c0"]
    assert [spec.name for spec in specs("files")] == ["cb1-0-c0", "cb1-0-c1"]
    assert not any(spec.unlimited_memlock for spec in specs("visible", "single", SEALED)), "not granted"


@pytest.mark.parametrize(("step", "first"), [("strict", "cb1-0-c0"), ("net", "cb1-0-c0"), ("files", "localhost")])
def test_a_launcher_finds_its_own_container_among_its_hosts(step: str, first: str) -> None:
    layout = layout_of(world(step))
    assert layout.hosts == ((first, 1), ("cb1-0-c1", 1))
    assert layout.names == {first: "cb1-0-c0", "cb1-0-c1": "cb1-0-c1"}


@pytest.mark.parametrize(("step", "policy", "gpus"), [
    ("strict", "single", [(), ("GPU-a",), ("GPU-b",)]), ("net", "single", [(), (), ("GPU-a",), ("GPU-b",)]),
    ("strict", "multi", [("GPU-a", "GPU-b")]), ("visible", "single", [(), *[("GPU-a", "GPU-b")] * 3]),
])  # fmt: skip
def test_the_gpus_that_each_container_sees(step: str, policy: str, gpus: list[tuple[str, ...]]) -> None:
    assert [spec.gpus for spec in specs(step, policy, ranks=3, servers=1, gpus="abc")] == gpus


@pytest.mark.parametrize(("gpus", "times"), [("ab", 1), ("", 0)])
def test_that_devices_are_not_isolated_is_noted(gpus: str, times: int) -> None:
    visible = world("visible", gpus=gpus, launcher=launchers.get("mpich", "mpich"))
    assert sum("GPU" in note for note in notes(visible.cell, visible.placement, visible.stack)) == times


def test_a_ranks_gpu_is_told_by_its_rank_for_its_local_rank_is_0_in_every_container() -> None:
    strict = world("strict", ranks=3, gpus="abc")
    assert [(rank.container, rank.cores, rank.gpu) for rank in places(strict.cell, strict.placement)] == [
        ("c0", "0", "GPU-a"), ("c1", "1", "GPU-b"), ("c2", "2", "GPU-c")
    ]  # fmt: skip


CAPABLE = {"DeviceIDs": ["GPU-a", "GPU-b"], "Capabilities": [["gpu", "compute", "utility"]]}
BY_CDI = {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"]}


@pytest.mark.parametrize(("grants", "request_", "flags"), [
    ((MEMLOCK,), CAPABLE, """'--gpus="device=GPU-a,GPU-b","capabilities=gpu,compute,utility"'"""),
    ((MEMLOCK, CDI), BY_CDI, "--device=nvidia.com/gpu=GPU-a --device=nvidia.com/gpu=GPU-b"),
])  # fmt: skip
def test_gpus_are_asked_for_by_id_or_cdi_name(grants: tuple[str, ...], request_: dict[str, Any], flags: str) -> None:
    (spec,) = specs("strict", "multi", *grants, gpus="ab")
    assert created(spec)["host_config"]["device_requests"] == [request_]
    assert f" {flags} " in container_command(spec)
