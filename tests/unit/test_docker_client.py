"""The engine docker: its client, its errors, and answers that are odd, too short or missing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.made_engine import EMPTY, VERSION, MadeEngine, Reply, connected, made_engine, raw_engine

from collbench.errors import EngineError, Interrupted, PlanError
from collbench.launch import engines
from collbench.launch.engines.docker import client, images
from collbench.launch.engines.docker.client import DOCKER, Docker, Limit, clear, each, objects, remove_all, translated
from collbench.launch.engines.docker.images import ImageRef, ask, inspect
from collbench.launch.engines.spec import cleaned
from collbench.launch.folders import driver_identity
from collbench.schema.axes import STEPS
from collbench.schema.plan import Plan

Golden = Callable[[str, str], None]
sdk = pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

CLIENT = "collbench.launch.engines.docker.client"
PLAN = Plan(images=("openmpi",))
IMAGE = ImageRef("some/image", "sha256:1")


def stop() -> None:
    raise Interrupted("interrupted.")


# A connection --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("components", "title"), [
    ([{"Name": "Engine"}, {"Name": "containerd"}], "Docker Engine 20.10.24"),
    ([{"Name": "Podman Engine"}, {"Name": "Engine"}], "Podman Engine 20.10.24"), ([], "Docker Engine 20.10.24"),
    (None, "Docker Engine 20.10.24"),
])  # fmt: skip
def test_an_engine_is_called_what_it_calls_itself(tmp_path: Path, components: Any, title: str) -> None:
    with connected(tmp_path, {"/version": (200, VERSION | {"Components": components})}) as (docker, made):
        assert (docker.title, docker.host, docker.limit.silent) == (title, made.host, False)
        assert re.fullmatch("cb[0-9a-f]{8}", docker.run)
        assert docker.labels == {"collbench.run": docker.run, "collbench.driver": driver_identity()}


def test_an_address_is_given_or_named_by_a_variable_or_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made_engine(tmp_path, {}) as made:
        for variable, address in ((made.host, ""), ("unix:///nowhere", made.host)):
            monkeypatch.setenv("DOCKER_HOST", variable)
            with contextlib.closing(Docker(address)) as docker:
                assert docker.host == made.host
    assert DOCKER.host == "unix:///var/run/docker.sock"


UNREACHABLE = (PermissionError(13, "Permission denied"), ConnectionRefusedError(111, "Connection refused"),
               FileNotFoundError(2, "No such file or directory"), OSError("first\nsecond"), OSError(""))  # fmt: skip


def test_why_an_engine_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    lines: list[str] = []

    def refused(what: str, connect: Callable[[], Any]) -> None:
        with pytest.raises(EngineError) as caught:
            connect()
        lines.append(f"{what}: {str(caught.value).replace(str(tmp_path), 'DIR')}\n")

    for error in UNREACHABLE:

        def refuse(*_: Any, error: OSError = error, **__: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(sdk, "APIClient", refuse)
            refused(type(error).__name__, partial(Docker, "unix:///x"))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2")
    monkeypatch.setenv("CONTAINER_HOST", "tcp://127.0.0.1:1")
    refused("Podman at its own address", partial(engines.get("podman").connect, PLAN, lambda: None))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    for address in ("tcp://127.0.0.1:1", "http://127.0.0.1:1"):
        refused("TLS without certificates", partial(Docker, address))
    with connected(tmp_path, {}) as (docker, _):  # TLS is for engines that are reached over a network
        assert docker.title == "Docker Engine 20.10.24"
    with connected(tmp_path, {"/containers/json": (500, {"message": " no space "})}) as (docker, _):
        refused("what an engine explains", docker.labelled)
    golden("docker-unusable.txt", "".join(lines))


def test_podman_is_reached_at_its_own_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at Docker's, which both may be there."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2")
    with made_engine(tmp_path, {"/version": (200, VERSION | {"Components": [{"Name": "Podman Engine"}]})}) as made:
        monkeypatch.setenv("CONTAINER_HOST", made.host)
        assert engines.get("podman").connect(PLAN, lambda: None).title == "Podman Engine 20.10.24"


def test_a_stop_counts_more_than_the_engines_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("the SDK's name for it")

    monkeypatch.setattr(sdk, "APIClient", refuse)
    with pytest.raises(Interrupted):
        Docker("unix:///x", stop)


@pytest.mark.parametrize("host", ["tcp://[::1", "tcp://a:99999", "tcp://a:80:80", "tcp://", "nonsense://x"])
def test_an_address_of_no_engine(host: str) -> None:
    with pytest.raises(EngineError, match=re.escape(host)):
        Docker(host)


@pytest.mark.parametrize("version", [
    {}, None, [], 42, "text", {"ApiVersion": "1.41"}, {"Version": "1"}, {**VERSION, "ApiVersion": "banana"},
    {**VERSION, "ApiVersion": 1.41}, {**VERSION, "Components": "Engine"}, {**VERSION, "Components": [{}]},
    {**VERSION, "Components": 7}, b"[" * 50_000,
])  # fmt: skip
def test_a_version_of_another_shape_is_no_engine(tmp_path: Path, version: Any) -> None:
    with made_engine(tmp_path, {"/version": (200, version)}) as made, pytest.raises(EngineError) as caught:
        Docker(made.host)
    assert made.host in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [({"SystemTime": "2026-01-02T03:04:05+00:00"}, 1767323045.0), ({}, 7.0), ({"SystemTime": "soon"}, 7.0)],
)
def test_engine_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, str], seconds: float) -> None:
    with connected(tmp_path, {"/info": (200, answer)}) as (docker, _):
        monkeypatch.setattr(f"{CLIENT}.time", SimpleNamespace(time=lambda: 7.0, monotonic=time.monotonic))
        assert docker.now() == seconds


def test_an_engine_that_restarts_is_waited_for_and_no_longer_than_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look closes old connections first, and is asked whether to stop before."""
    docker, did, now = Docker.__new__(Docker), list[str](), [0.0]

    class Api:
        timeout = 60

        def ping(self) -> None:
            did.append(f"ping {self.timeout}")
            if len(did) < 9:
                raise OSError("refused")

        def close(self) -> None:
            did.append("close")

    def sleep(seconds: float) -> None:
        now[0] += seconds

    docker.api, docker.limit, docker.service, docker.host = Api(), Limit(lambda: None), DOCKER, "unix:///x"
    monkeypatch.setattr(f"{CLIENT}.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    docker.wait(lambda: did.append("check"))
    assert (did, now) == (["check", "close", "ping 5"] * 3, [1.0])
    did.clear()
    with pytest.raises(EngineError, match="unix:///x: refused"):
        docker.wait(lambda: None, limit=0.6)
    assert did == ["close", "ping 5"] * 3, "the last look is the first after the limit"


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
            raise OSError("third")
        done.append(thing)

    with pytest.raises(OSError, match="third"):
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
        stop()

    with pytest.raises(Interrupted):
        each(act, range(6), 2, check)
    assert sorted(begun) == sorted(ended) == [0, 1]


# Answers of another shape --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, {}, "text", [{}], [{"Id": 1}], [{"Id": "1"}, {"Id": None}], [1]])
def test_what_is_no_list_of_things_is_an_answer_of_no_engine(answer: Any) -> None:
    with pytest.raises(EngineError, match=r"^listing: .*\((TypeError|KeyError): "), translated("listing"):
        objects(answer)


CREATING: dict[str, Reply] = {"/containers/create": (201, {"Id": "1"})}

#: What is asked, by how the path begins that is.
QUESTIONS: dict[str, Callable[[Docker], Any]] = {
    "/images/some": lambda docker: inspect(docker, "some/image"),
    "/images/json": lambda docker: images.listed(docker),
    "/info": lambda docker: docker.describe(),
    "/containers/json": lambda docker: docker.labelled(),
    "/networks": lambda docker: docker.networks(),
    "/containers/create": lambda docker: ask(docker, IMAGE, ("true",)),
    "/containers/1/json": lambda docker: ask(docker, IMAGE, ("true",)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_that_is_nested_without_end_is_an_answer_of_no_engine(tmp_path: Path, question: str) -> None:
    answers = CREATING | {question: (200, b"[" * 50_000)}
    with connected(tmp_path, answers) as (docker, _), pytest.raises(EngineError, match="RecursionError"):
        QUESTIONS[question](docker)


@pytest.mark.slow
@pytest.mark.parametrize("odd", [None, {}, 42, "text", [None], [[]], {"Id": None}, [{"Id": 1}], {"State": None}])
@pytest.mark.parametrize("question", [path for path in QUESTIONS if path not in ("/images/json", "/info")])
def test_an_answer_of_another_shape_is_an_error_of_the_engine(tmp_path: Path, odd: Any, question: str) -> None:
    with connected(tmp_path, CREATING | {question: (200, odd)}) as (docker, _), pytest.raises(EngineError):
        QUESTIONS[question](docker)


@pytest.mark.parametrize(
    ("state", "pid"),
    [
        ({"Pid": os.getpid(), "ContainerID": "/"}, os.getpid()),
        ({"Pid": os.getpid(), "ContainerID": "0123456789abcdef"}, None),
        ({"Pid": 0, "ContainerID": "0123456789abcdef"}, 0),
        ({"Pid": 1 << 30, "ContainerID": "/"}, None),
        ({}, None),
    ],
    ids=["its own", "of another machine", "not begun", "none", "untold"],  # without the number of this process
)
def test_a_process_is_here_if_its_cgroup_is_the_containers(
    tmp_path: Path, state: dict[str, Any], pid: int | None
) -> None:
    with connected(tmp_path, {"/exec/e1/json": (200, state)}) as (docker, _):
        assert docker._locate("e1") == pid


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
    with raw_engine(tmp_path, talk) as made, pytest.raises(EngineError, match=r" 1 s|timed out"):
        Docker(made.host)


Stalling = tuple[Docker, MadeEngine, threading.Event]


@pytest.fixture
def stalling(tmp_path: Path, soon: None) -> Iterator[Stalling]:
    """An engine that answers until its event is set, and then no more."""
    stalled, over = threading.Event(), threading.Event()

    def answer(method: str, path: str) -> Reply:
        if stalled.is_set():
            over.wait(60)
        return (200, []) if path.startswith(("/containers/json", "/networks")) else None

    with made_engine(tmp_path, answer) as made:
        docker = Docker(made.host)
        made.asked.clear()
        yield docker, made, stalled
        over.set()


def notes_of(caught: pytest.ExceptionInfo[BaseException]) -> str:
    return "".join(caught.value.__notes__)


@pytest.mark.slow
def test_an_engine_that_did_not_answer_is_asked_once_more_and_no_oftener(stalling: Stalling) -> None:
    docker, made, stalled = stalling
    stalled.set()
    with pytest.raises(EngineError, match=" 1 s") as caught, cleaned(partial(remove_all, docker)):
        docker.labelled()
    assert "--sweep" in notes_of(caught)
    assert [path for _, path in made.asked if not path.startswith("/containers/json")] == ["/_ping"]
    assert len(made.asked) == 2
    with pytest.raises(EngineError):
        docker.networks()
    assert len(made.asked) == 2


@pytest.mark.slow
def test_an_engine_that_answers_again_is_asked_again(stalling: Stalling) -> None:
    docker, _, stalled = stalling
    stalled.set()
    with pytest.raises(EngineError):
        docker.labelled()
    stalled.clear()
    docker.wait(lambda: None)
    assert docker.labelled() == []


def test_one_who_asked_twice_to_stop_is_not_kept_waiting_by_the_engine(stalling: Stalling) -> None:
    docker, made, _ = stalling
    with pytest.raises(KeyboardInterrupt) as caught, cleaned(partial(remove_all, docker)):
        raise KeyboardInterrupt
    assert ("--sweep" in notes_of(caught), made.asked) == (True, [])


def test_a_stop_is_heard_while_a_silent_engine_is_asked_for_its_version(tmp_path: Path) -> None:
    with raw_engine(tmp_path, silence) as made, pytest.raises(Interrupted):
        Docker(made.host, stop)


# What is made is found again ------------------------------------------------------------------------------------------


def test_two_runs_have_two_names_and_both_labels_choose_what_is_removed(tmp_path: Path) -> None:
    with made_engine(tmp_path, EMPTY) as made:
        dockers = [Docker(made.host) for _ in range(20)]
        assert len({docker.run for docker in dockers}) == 20
        made.asked.clear()
        assert clear(dockers[0]) == 0
    assert len(made.asked) == 4
    for _, path in made.asked:
        assert f"collbench.run%3D{dockers[0].run}" in path
        assert f"collbench.driver%3D{driver_identity().replace('/', '%2F')}" in path


@pytest.mark.parametrize(
    "spoiled", ["/containers/create", "/containers/1/start", "/containers/1/json", "/containers/1/logs"]
)
def test_a_probe_that_could_not_be_removed_is_said(tmp_path: Path, spoiled: str) -> None:
    """It was made, an answer went wrong, and so did the one to its removal."""

    def listed() -> Reply:
        wanted = json.loads(parse_qs(urlsplit(made.asked[-1][1]).query)["filters"][0])["label"]
        labels = [f"{key}={value}" for body in made.bodies for key, value in body.get("Labels", {}).items()]
        return 200, [{"Id": "1", "Names": ["/x"]}] if set(wanted) <= set(labels) else []

    error: Reply = (500, {"message": "spoiled"})
    ended = {"Id": "1", "Config": {"Tty": False}, "State": {"Status": "exited", "ExitCode": 0}}
    answers: dict[str, Reply | Callable[[], Reply]] = {
        "DELETE": error, "/containers/json": listed, "/networks": (200, []), "/containers/create": (201, {"Id": "1"}),
        "/containers/1/start": (204, None), "/containers/1/json": (200, ended),
    }  # fmt: skip
    raises = pytest.raises(EngineError, match="spoiled")
    with (
        connected(tmp_path, answers | {spoiled: error}) as (docker, made),
        raises as caught,
        cleaned(partial(remove_all, docker)),
    ):
        ask(docker, IMAGE, ("true",))
    assert re.search(r"\b1 .*--sweep", notes_of(caught))


@pytest.mark.parametrize("left", ["/containers/json", "/networks", None])
def test_what_is_left_at_a_normal_end_is_an_error(tmp_path: Path, left: str | None) -> None:
    listed: dict[str, Reply] = {f"GET {left}": (200, [{"Id": "1", "Names": ["/x"], "Name": "x"}])}
    answers = EMPTY | listed | {"DELETE": (500, {"message": "in use"})}
    raises = pytest.raises(EngineError, match="--sweep") if left else contextlib.nullcontext()
    with connected(tmp_path, answers) as (docker, _), raises, cleaned(partial(remove_all, docker)):
        pass


def test_a_probe_that_hangs_is_left_when_we_are_to_stop(tmp_path: Path) -> None:
    """Its container is looked at again and again, and removed."""
    answers: dict[str, Reply] = {
        "/containers/create": (201, {"Id": "1"}), "POST": (204, None), "DELETE": (204, None),
        "/containers/1/json": (200, {"Id": "1", "State": {"Status": "running"}}),
    }  # fmt: skip
    checks = iter((lambda: None, lambda: None, stop))
    with connected(tmp_path, answers) as (docker, made):
        docker.check = lambda: next(checks)()
        with pytest.raises(Interrupted):
            ask(docker, IMAGE, ("sleep", "1000"))
    assert made.asked[-1][0] == "DELETE"


# What engines say of themselves, before any is asked for something ----------------------------------------------------


@pytest.mark.parametrize("name", engines.names())
def test_what_every_engine_says_of_itself(name: str) -> None:
    """A ladder begins with its most isolated step; one that only matters between boxes has one before that does not."""
    engine = engines.get(name)
    assert engine.name == name
    names = [step.name for step in engine.ladder]
    assert names[:1] in ([], ["strict"], ["files"])
    assert names == [step for step in reversed(STEPS) if step in names]
    assert not any(step.between for step in engine.ladder[:1])
    assert all(step.adds for step in engine.ladder)
    assert all(seconds >= 0 for seconds in engine.start_seconds)
    assert (engine.start_seconds[0] > 0, engine.starts_ranks) == (name != "fake", name in ("slurm", "k8s"))
    assert engine.makes_containers is (name in ("docker", "podman", "fake"))
    assert (engine.script is None, engine.commands is None) == (not engine.starts_ranks, engine.starts_ranks)
    if engine.starts_ranks:
        with pytest.raises(PlanError, match="site file"):
            engine.site(PLAN)
    else:
        site = engine.site(PLAN)
        assert site.machine.cores and (site.seconds, site.cautions) == (None, ())


def test_the_machine_of_the_fake_engine_has_two_nodes() -> None:
    cores = engines.get("fake").site(PLAN).machine.cores
    assert [(core.number, core.node) for core in cores] == [(n, 0) for n in range(8)] + [(n, 1) for n in range(8, 16)]
