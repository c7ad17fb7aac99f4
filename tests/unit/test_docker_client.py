"""The engine docker: its client, its errors, and answers that are odd, too short or missing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.made_engine import VERSION, MadeEngine, made_engine, raw_engine

from collbench.errors import EngineError, Interrupted, PlanError
from collbench.launch import engines
from collbench.launch.engines.docker import client, images, look
from collbench.launch.engines.docker.client import DOCKER, Docker, Limit, each, objects, translated
from collbench.launch.engines.docker.containers import clear, remove_all
from collbench.launch.engines.docker.look import ImageRef, ask, inspect
from collbench.launch.engines.spec import cleaned
from collbench.launch.folders import driver_identity
from collbench.schema.axes import STEPS
from collbench.schema.plan import Plan

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


# An engine that says something else, too little, or nothing -----------------------------------------------------------

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

PLAN = Plan(images=("openmpi",))
IMAGE = ImageRef("some/image", "sha256:1")

#: The state of a container that did what it was to do.
ENDED = {"Status": "exited", "ExitCode": 0}

#: What no engine answers, and some did.
ODD: tuple[Any, ...] = (None, [], {}, 42, "text", [None], [[]], {"Id": None}, [{"Id": 1}], {"State": None})


@pytest.mark.parametrize(
    "version",
    [
        {}, None, [], 42, "text", {"ApiVersion": "1.41"}, {"Version": "1"}, {**VERSION, "ApiVersion": "banana"},
        {**VERSION, "ApiVersion": 1.41}, {**VERSION, "Components": "Engine"}, {**VERSION, "Components": [{}]},
        {**VERSION, "Components": 7},
    ],
)  # fmt: skip
def test_a_version_of_another_shape_is_no_engine(tmp_path: Path, version: Any) -> None:
    with made_engine(tmp_path, lambda method, path: (200, version)) as made, pytest.raises(EngineError) as caught:
        Docker(made.host)
    assert str(caught.value).startswith(f"Docker Engine at {made.host}: ")


#: What is asked, by the path that is.
QUESTIONS: dict[str, Callable[[Docker], Any]] = {
    "/images/": lambda engine: inspect(engine, "some/image"),
    "/containers/json": lambda engine: engine.labelled(),
    "/networks": lambda engine: engine.networks(),
    "/containers/create": lambda engine: ask(engine, IMAGE, ("true",)),
    "/containers/1/json": lambda engine: ask(engine, IMAGE, ("true",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("odd", [odd for odd in ODD if odd != []])  # an empty list is what one answers that has none
@pytest.mark.parametrize("what", QUESTIONS)
def test_an_answer_of_another_shape_is_an_error_of_the_engine(tmp_path: Path, odd: Any, what: str) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith(what):
            return 200, odd
        return (201, {"Id": "1"}) if path.startswith("/containers/create") else None

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        with pytest.raises(EngineError):
            QUESTIONS[what](engine)


@pytest.mark.parametrize("host", ["tcp://[::1", "tcp://a:99999", "tcp://a:80:80", "tcp://", "nonsense://x"])
def test_an_address_of_no_engine(host: str) -> None:
    with pytest.raises(EngineError, match="Docker Engine at"):
        Docker(host)


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:1", "http://127.0.0.1:1"])
def test_tls_that_is_asked_for_is_not_left_out(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"asks for TLS; .* needs ca\.pem, cert\.pem and key\.pem"):
        Docker(host)


def test_tls_is_for_engines_that_are_reached_over_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with made_engine(tmp_path, lambda method, path: None) as made:
        assert Docker(made.host).title == "Docker Engine 20.10.24"


# An engine that does not answer ---------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test waits one second where a launch waits a minute."""
    monkeypatch.setattr(client, "ANSWER", 1)
    monkeypatch.setattr(client, "PING", 1)


def trickle(connection: Any) -> None:
    """A byte, and another, for ever: none is late."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def silence(connection: Any) -> None:
    while connection.recv(4096):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("talk", [trickle, silence])
def test_a_whole_answer_has_a_limit(tmp_path: Path, soon: None, talk: Any) -> None:
    with raw_engine(tmp_path, talk) as made, pytest.raises(EngineError, match=r"no answer within 1 s|timed out"):
        Docker(made.host)


@pytest.fixture
def stalling(tmp_path: Path, soon: None) -> Iterator[tuple[Docker, MadeEngine, threading.Event]]:
    """An engine that answers until its event is set, and then no more."""
    stalled, over = threading.Event(), threading.Event()

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if stalled.is_set():
            over.wait(60)
        return (200, []) if path.startswith(("/containers/json", "/networks")) else None

    with made_engine(tmp_path, answer) as made:
        yield Docker(made.host), made, stalled
        over.set()


@pytest.mark.slow
def test_an_engine_that_did_not_answer_is_asked_once_more_and_no_oftener(
    stalling: tuple[Docker, MadeEngine, threading.Event],
) -> None:
    engine, made, stalled = stalling
    made.asked.clear()
    stalled.set()
    with pytest.raises(EngineError, match="no answer within 1 s") as caught, cleaned(partial(remove_all, engine)):
        engine.labelled()
    assert "Containers may be left (" in "".join(caught.value.__notes__)
    assert "collbench launch --sweep removes them" in "".join(caught.value.__notes__)
    assert [path for _, path in made.asked if not path.startswith("/containers/json")] == ["/_ping"]
    assert len(made.asked) == 2
    with pytest.raises(EngineError, match="no longer answers"):
        engine.networks()
    assert len(made.asked) == 2


@pytest.mark.slow
def test_an_engine_that_answers_again_is_asked_again(stalling: tuple[Docker, MadeEngine, threading.Event]) -> None:
    engine, _, stalled = stalling
    stalled.set()
    with pytest.raises(EngineError):
        engine.labelled()
    stalled.clear()
    engine.wait(lambda: None)
    assert engine.labelled() == []


def test_one_who_asked_twice_to_stop_is_not_kept_waiting_by_the_engine(
    stalling: tuple[Docker, MadeEngine, threading.Event],
) -> None:
    engine, made, _ = stalling
    made.asked.clear()
    with pytest.raises(KeyboardInterrupt) as caught, cleaned(partial(remove_all, engine)):
        raise KeyboardInterrupt
    assert "Containers may be left" in "".join(caught.value.__notes__)
    assert made.asked == []


def test_a_stop_is_heard_while_a_silent_engine_is_asked_for_its_version(tmp_path: Path) -> None:
    def check() -> None:
        raise Interrupted("interrupted.")

    with raw_engine(tmp_path, silence) as made, pytest.raises(Interrupted):
        Docker(made.host, check)


# What is made is found again ------------------------------------------------------------------------------------------


def test_two_runs_have_two_names_and_both_labels_choose_what_is_removed(tmp_path: Path) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        return (200, []) if path.startswith(("/containers/json", "/networks")) else None

    with made_engine(tmp_path, answer) as made:
        engines = [Docker(made.host) for _ in range(20)]
        assert len({engine.run for engine in engines}) == 20
        made.asked.clear()
        assert clear(engines[0]) == 0
    for _, path in made.asked:
        assert f"collbench.run%3D{engines[0].run}" in path
        assert f"collbench.driver%3D{driver_identity().replace('/', '%2F')}" in path
    assert len(made.asked) == 4


@pytest.mark.parametrize(
    "spoiled", ["/containers/create", "/containers/1/start", "/containers/1/json", "/containers/1/logs"]
)
def test_a_probe_that_could_not_be_removed_is_said(tmp_path: Path, spoiled: str) -> None:
    """It was made, an answer went wrong, and so did the one to its removal."""

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith(spoiled) or method == "DELETE":
            return 500, {"message": "spoiled"}
        if path.startswith("/containers/json"):
            wanted = json.loads(parse_qs(urlsplit(path).query)["filters"][0])["label"]
            labels = [f"{key}={value}" for body in made.bodies for key, value in body.get("Labels", {}).items()]
            return 200, [{"Id": "1", "Names": ["/x"]}] if set(wanted) <= set(labels) else []
        known: dict[str, tuple[int, Any]] = {
            "/containers/create": (201, {"Id": "1"}),
            "/containers/1/start": (204, None),
            "/containers/1/json": (200, {"Id": "1", "Config": {"Tty": False}, "State": ENDED}),
            "/networks": (200, []),
        }
        return next((found for begin, found in known.items() if path.startswith(begin)), None)

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        with pytest.raises(EngineError, match="spoiled") as caught, cleaned(partial(remove_all, engine)):
            ask(engine, IMAGE, ("true",))
    assert "1 containers and networks are left; collbench launch --sweep removes them" in "".join(
        caught.value.__notes__
    )


@pytest.mark.parametrize("left", ["/containers/json", "/networks", None])
def test_what_is_left_at_a_normal_end_is_an_error(tmp_path: Path, left: str | None) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith(("/containers/json", "/networks")) and method == "GET":
            return 200, [{"Id": "1", "Names": ["/x"], "Name": "x"}] if left and path.startswith(left) else []
        return (500, {"message": "in use"}) if method == "DELETE" else None

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        raises = pytest.raises(EngineError, match="--sweep") if left else contextlib.nullcontext()
        with raises, cleaned(partial(remove_all, engine)):
            pass


def test_a_network_that_cannot_be_removed_does_not_keep_others(tmp_path: Path) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if method == "DELETE":
            return (403, {"message": "has active endpoints"}) if path == "/networks/1" else (204, None)
        return None

    with made_engine(tmp_path, answer) as made:
        Docker(made.host).remove([], [{"Id": "1"}, {"Id": "2"}])
    assert made.asked[-2:] == [("DELETE", "/networks/1"), ("DELETE", "/networks/2")]


def test_a_probe_that_hangs_is_left_when_we_are_to_stop(tmp_path: Path) -> None:
    """Its container is looked at again and again, and removed."""

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/containers/create"):
            return 201, {"Id": "1"}
        if path.startswith("/containers/1/json"):
            return 200, {"Id": "1", "State": {"Status": "running"}}
        return (204, None) if method in ("POST", "DELETE") else None

    asked = iter((False, False, True))

    def check() -> None:
        if next(asked):
            raise Interrupted("interrupted.")

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        engine.check = check
        with pytest.raises(Interrupted):
            ask(engine, IMAGE, ("sleep", "1000"))
    assert made.asked[-1][0] == "DELETE"


# Podman ---------------------------------------------------------------------------------------------------------------


def test_podman_is_reached_at_its_own_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at Docker's, which both may be there."""
    podman = engines.get("podman")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2")
    monkeypatch.setenv("CONTAINER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(EngineError) as caught:
        podman.connect(PLAN, lambda: None)
    assert str(caught.value).startswith("Podman at tcp://127.0.0.1:1: not running. Start it (systemctl ")
    version = VERSION | {"Components": [{"Name": "Podman Engine"}]}
    with made_engine(tmp_path, lambda method, path: (200, version)) as made:
        monkeypatch.setenv("CONTAINER_HOST", made.host)
        assert podman.connect(PLAN, lambda: None).title == "Podman Engine 20.10.24"


# What engines say of themselves, before any is asked for something ----------------------------------------------------


@pytest.mark.parametrize("name", engines.names())
def test_what_every_engine_says_of_itself(name: str) -> None:
    """A ladder begins with its most isolated step; one that only matters between boxes has one before that does not."""
    engine = engines.get(name)
    assert engine.name == name
    names = [step.name for step in engine.ladder]
    assert len(set(names)) == len(names)
    assert names[:1] in ([], ["strict"], ["files"])
    assert names == [name for name in reversed(STEPS) if name in names]
    assert not any(step.between for step in engine.ladder[:1])
    assert all(step.adds for step in engine.ladder)
    assert all(seconds >= 0 for seconds in engine.start_seconds)
    assert (engine.start_seconds[0] > 0, engine.starts_ranks) == (name != "fake", name in ("slurm", "k8s"))
    assert engine.makes_containers is (name in ("docker", "podman", "fake"))
    assert (engine.script is None, engine.commands is None) == (not engine.starts_ranks, engine.starts_ranks)
    plan = Plan(images=("openmpi",))
    if engine.starts_ranks:
        with pytest.raises(PlanError, match="needs a site file"):
            engine.site(plan)
    else:
        site = engine.site(plan)
        assert site.machine.cores and (site.seconds, site.cautions) == (None, ())


def test_the_machine_of_the_fake_engine_has_two_nodes() -> None:
    cores = engines.get("fake").site(Plan(images=("openmpi",))).machine.cores
    assert [(core.number, core.node) for core in cores] == [(n, 0) for n in range(8)] + [(n, 1) for n in range(8, 16)]
