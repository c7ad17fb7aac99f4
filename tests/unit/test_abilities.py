"""What is tried of an engine before the first launch, on engines that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_engine import made_engine

from collbench.errors import EngineError
from collbench.launch.engines.docker import images, look
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import Recipe
from collbench.launch.engines.docker.look import Resolved, refuse_unseen_folder, refuse_without_host, seals_networks
from collbench.launch.waiting import Stopping
from collbench.schema.plan import LaunchPlan

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

IMAGE = Resolved("some/image", "sha256:1")
PLAN = LaunchPlan(collectives=("allreduce",), images=("mpich",)).inner()


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
            refuse_unseen_folder(Docker(made.host), IMAGE, PLAN)
        told = "Engine and driver must share it: set TMPDIR" in str(caught.value)
        assert told is ("bind source" in what)
        (mount,) = made.bodies[-1]["HostConfig"]["Mounts"]
        assert (mount["Type"], mount["Target"]) == ("bind", "/collbench/out")


def test_two_builds_of_one_image_have_two_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would take the tag from the first one's draft, which is just being asked what it holds."""
    drafts = []

    def contents_of(engine: Docker, draft: Resolved, build: bool) -> None:
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

    def ask(engine: Any, image: Resolved, argv: tuple[str, ...], **settings: Any) -> tuple[int, str]:
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
