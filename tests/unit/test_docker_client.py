"""A connection to Docker's engine: its name, its errors, its clock; several things done at once."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.made_engine import VERSION, made_engine

from collbench.errors import EngineError, Interrupted
from collbench.launch.engines.docker import images, look
from collbench.launch.engines.docker.client import DOCKER, Docker, Limit, each, objects, translated
from collbench.launch.folders import driver_identity

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

CLIENT = "collbench.launch.engines.docker.client"

# A connection --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "title"),
    [
        ([{"Name": "Engine"}, {"Name": "containerd"}], "Docker Engine 20.10.24"),
        ([{"Name": "Podman Engine"}, {"Name": "Engine"}], "Podman Engine 20.10.24"),
        ([], "Docker Engine 20.10.24"),
        (None, "Docker Engine 20.10.24"),
    ],
)
def test_an_engine_is_called_what_it_calls_itself(tmp_path: Path, components: Any, title: str) -> None:
    with (
        made_engine(tmp_path, lambda method, path: (200, VERSION | {"Components": components})) as made,
        closing(Docker(made.host)) as engine,
    ):
        assert (engine.title, engine.host, engine.limit.silent) == (title, made.host, False)
        assert re.fullmatch("cb[0-9a-f]{8}", engine.run)
        assert engine.labels == {"collbench.run": engine.run, "collbench.driver": driver_identity()}


def test_an_address_is_given_or_named_by_a_variable_or_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made_engine(tmp_path, lambda method, path: None) as made:
        monkeypatch.setenv("DOCKER_HOST", made.host)
        with closing(Docker()) as engine:
            assert engine.host == made.host
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
        with closing(Docker(made.host)) as engine:
            assert engine.host == made.host
    monkeypatch.delenv("DOCKER_HOST")
    assert DOCKER.host == "unix:///var/run/docker.sock"


def refusing(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """No client can be made."""
    import docker

    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(docker, "APIClient", refuse)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(13, "Permission denied"),
            "permission denied. Add yourself to the group docker, or run this as",
        ),
        (
            ConnectionRefusedError(111, "Connection refused"),
            "not running. Start it (systemctl start docker), or name an",
        ),
        (FileNotFoundError(2, "No such file or directory"), "not running. Start it"),
        (OSError("first\nsecond"), "first"),
        (OSError(""), "OSError"),
    ],
)
def test_why_an_engine_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, error: OSError, said: str) -> None:
    refusing(monkeypatch, error)
    with pytest.raises(EngineError) as caught:
        Docker("unix:///x")
    assert str(caught.value).startswith(f"Docker Engine at unix:///x: {said}")
    assert "second" not in str(caught.value)


def test_a_stop_counts_more_than_the_engines_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise Interrupted("interrupted.")

    refusing(monkeypatch, OSError("the SDK's name for it"))
    with pytest.raises(Interrupted):
        Docker("unix:///x", stop)


@pytest.mark.parametrize("found", [[], [{"Id": "1"}], [{"Id": "1"}, {"Id": "2", "x": 1}]])
def test_a_list_of_things_is_taken_as_it_is(found: Any) -> None:
    assert objects(found) == found


@pytest.mark.parametrize("found", [None, {}, "text", [{}], [{"Id": 1}], [{"Id": "1"}, {"Id": None}], [1]])
def test_what_is_no_list_of_things_is_an_answer_of_no_engine(found: Any) -> None:
    with (
        pytest.raises(EngineError, match=r"^listing: the engine's answer cannot be read \((TypeError|KeyError): "),
        translated("listing"),
    ):
        objects(found)


@pytest.mark.parametrize(
    ("path", "ask"),
    [
        ("/containers/json", lambda engine: engine.labelled()),
        ("/networks", lambda engine: engine.networks()),
        ("/images/json", lambda engine: images.listed(engine)),
        ("/images/x/json", lambda engine: look.inspect(engine, "x")),
        ("/info", lambda engine: engine.describe()),
    ],
)
def test_an_answer_that_is_nested_without_end_is_an_answer_of_no_engine(
    tmp_path: Path, path: str, ask: Callable[[Docker], Any]
) -> None:
    nested = (200, b"[" * 50_000)
    with (
        made_engine(tmp_path, lambda method, asked: nested if asked.startswith(path) else None) as made,
        closing(Docker(made.host)) as engine,
        pytest.raises(EngineError, match="cannot be read"),
    ):
        ask(engine)


def test_an_engine_whose_version_is_nested_without_end_is_none(tmp_path: Path) -> None:
    answer = lambda method, path: (200, b"[" * 50_000)  # noqa: E731
    with made_engine(tmp_path, answer) as made, pytest.raises(EngineError):
        Docker(made.host)


def test_what_an_engine_explains_is_said_in_its_words(tmp_path: Path) -> None:
    with made_engine(
        tmp_path, lambda method, path: (500, {"message": " no space "}) if "json" in path else None
    ) as made:
        with closing(Docker(made.host)) as engine, pytest.raises(EngineError) as caught:
            engine.labelled()
        assert str(caught.value) == "listing containers: no space"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [({"SystemTime": "2026-01-02T03:04:05+00:00"}, 1767323045.0), ({}, None), ({"SystemTime": "soon"}, None)],
)
def test_the_engines_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], seconds: float | None
) -> None:
    with made_engine(tmp_path, lambda method, path: (200, said) if path == "/info" else None) as made:
        monkeypatch.setattr(f"{CLIENT}.time", SimpleNamespace(time=lambda: 7.0, monotonic=time.monotonic))
        with closing(Docker(made.host)) as engine:
            assert engine.now() == (7.0 if seconds is None else seconds)


def test_an_engine_that_restarts_is_waited_for_and_no_longer_than_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look closes old connections first, and is asked whether to stop before."""
    engine, did, now = Docker.__new__(Docker), list[str](), [0.0]

    class Api:
        timeout = 60

        def ping(self) -> None:
            did.append(f"ping {self.timeout}")
            if len(did) < 9:
                raise OSError("refused")

        def close(self) -> None:
            did.append("close")

    engine.api, engine.limit = Api(), Limit(lambda: None)
    engine.service, engine.host = DOCKER, "unix:///x"

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(f"{CLIENT}.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    engine.wait(lambda: did.append("check"))
    assert (did, now) == (["check", "close", "ping 5"] * 3, [1.0])
    did.clear()
    with pytest.raises(EngineError, match="Docker Engine at unix:///x: refused"):
        engine.wait(lambda: None, limit=0.6)
    assert did == ["close", "ping 5"] * 3, "the last look is the first after the limit"


# Side by side --------------------------------------------------------------------------------------------------------


def test_all_things_are_done_once_by_so_many_at_a_time() -> None:
    done: list[int] = []
    each(done.append, range(20), 3, lambda: None)
    assert sorted(done) == list(range(20))
    each(done.append, (), 3, lambda: None)
    assert len(done) == 20


def test_an_error_ends_it_and_is_raised() -> None:
    done: list[int] = []

    def act(thing: int) -> None:
        if thing == 2:
            raise OSError("the third")
        done.append(thing)

    with pytest.raises(OSError, match="the third"):
        each(act, range(10), 1, lambda: None)
    assert done == [0, 1], "one at a time, in order"


def test_told_to_stop_nothing_more_is_begun_and_what_was_begun_is_waited_for() -> None:
    begun, ended, go_on = list[int](), list[int](), threading.Event()

    def act(thing: int) -> None:
        begun.append(thing)
        go_on.wait(60)
        ended.append(thing)

    def check() -> None:
        threading.Timer(0.2, go_on.set).start()
        raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        each(act, range(6), 2, check)
    assert sorted(begun) == sorted(ended) == [0, 1]


# Processes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "pid"),
    [
        ({"Pid": os.getpid(), "ContainerID": "/"}, os.getpid()),
        ({"Pid": os.getpid(), "ContainerID": "0123456789abcdef"}, None),
        ({"Pid": 0, "ContainerID": "0123456789abcdef"}, 0),
        ({"Pid": 1 << 30, "ContainerID": "/"}, None),
        ({}, None),
    ],
    ids=["its own", "of another machine", "not begun", "none", "untold"],  # without the number of this process
)
def test_a_process_is_of_this_machine_if_its_control_group_is_the_containers(
    tmp_path: Path, told: dict[str, Any], pid: int | None
) -> None:
    def answer(method: str, path: str) -> Any:
        return (200, VERSION) if path.endswith("/version") else (200, told) if "/exec/e1/json" in path else None

    with made_engine(tmp_path, answer) as made, closing(Docker(made.host)) as engine:
        assert engine._locate("e1") == pid
