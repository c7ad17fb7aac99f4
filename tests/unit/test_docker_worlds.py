"""Worlds as containers: made in order, volumes, and removed whatever ends them."""

from __future__ import annotations

import contextlib
import queue
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.processes import wait_for
from tests.runs import read_run
from tests.unit.conftest import Collbench
from tests.unit.made_engine import Reply, made_engine

from collbench.cli import launch
from collbench.errors import EngineError, Interrupted, LaunchFailed
from collbench.launch import engines, launchers
from collbench.launch.campaign import PreparedCampaign
from collbench.launch.cells import LaunchCell
from collbench.launch.engines import docker
from collbench.launch.engines.docker import DockerSession, is_young
from collbench.launch.engines.docker.client import DOCKER, Docker, Execution, ExitWatch, OnLine, lines
from collbench.launch.engines.docker.spec import DRIVER_LABEL, INSIDE, LAUNCH_LABEL, RUN_LABEL, SEALED
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.folders import YOUNG, folders_in
from collbench.launch.launchers import PROCESS
from collbench.launch.placement import place
from collbench.launch.stacks import Stacks
from collbench.launch.waiting import LONGEST_LINE, Lines, Log, StopCheck
from collbench.machine.facts import Core, Topology
from collbench.schema.plan import Plan

PLAN = Plan(collectives=("allreduce",), images=("mpich",))
LABELS = {RUN_LABEL: "cb1", LAUNCH_LABEL: "cb1-0", DRIVER_LABEL: "boot/1/2/3"}
FILTERS = tuple(f"{name}={value}" for name, value in LABELS.items())
REMOVED = ["stop", ("remove", [{"Id": "c", "by": FILTERS}], [{"Id": "n", "by": FILTERS}])]

# Worlds --------------------------------------------------------------------------------------------------------------


class Engine(Docker):
    """Notes what it is asked for; containers answer that the kernel ended so many processes."""

    def __init__(self, killed: int = 0, away: bool = False) -> None:
        self.did: list[Any] = []
        self.killed, self.away, self.gone = killed, away, list[str]()
        self.check = lambda: self.did.append("check")

    def watch_exits(self, *labels: str) -> Any:
        self.did.append(("watch", labels))
        first: Any = lambda: next(iter(self.gone), None)  # noqa: E731
        return type("Watch", (), {"__call__": lambda _: first(), "stop": lambda _: self.did.append("stop")})()

    def create_network(self, name: str, labels: dict[str, str], sealed: bool = True) -> None:
        self.did.append(("network", name, labels, sealed))

    def start(self, spec: Any) -> None:
        self.did.append(("start", spec.name))

    def start_together(self, specs: Any) -> None:
        self.did.append(("together", tuple(spec.name for spec in specs)))

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], hear: OnLine) -> Execution:
        self.did.append(("execute", container, argv, environment))
        hear(False, f"oom_kill {self.killed}")
        execution = Execution(container, 0)
        execution.finished.set()
        return execution

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        if self.away:
            raise EngineError("away")
        return [{"Id": "c", "by": labels}]

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        return [{"Id": "n", "by": labels}]

    def remove(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        self.did.append(("remove", containers, networks))


def session(engine: Engine) -> DockerSession:
    made = DockerSession.__new__(DockerSession)
    made.engine, made.title, made.run = engine, "Docker Engine 1", "cb1"
    return made


def world(folder: Path, step: str = "strict", sealed: bool = True, policy: str = "single") -> WorldSpec:
    cell = LaunchCell("mpich", policy, step, 2)
    stack = Stack(launchers.get("mpich", "mpich"), "sha256:1", grants=frozenset({SEALED} if sealed else ()))
    placement = place(Topology(tuple(map(Core, range(2)))), cell, PLAN)
    return WorldSpec("cb1", "cb1-0", "boot/1/2/3", cell, placement, stack, folders_in(folder), (1, 2))


@pytest.mark.parametrize("sealed", [True, False])
def test_a_world_is_made_in_order_and_removed_by_its_labels(tmp_path: Path, sealed: bool) -> None:
    engine, log = Engine(), Log()
    with session(engine).open(world(tmp_path, sealed=sealed)) as opened:
        assert engine.did == [
            ("watch", FILTERS), ("network", "cb1-0-net", LABELS, sealed), "check", "check",
            ("together", ("cb1-0-c0", "cb1-0-c1")),
        ]  # fmt: skip
        assert (opened.hosts, opened.program) == ((("cb1-0-c0", 1), ("cb1-0-c1", 1)), INSIDE)
        assert opened.died() is None
        engine.gone.append("c1")
        assert opened.died() == "c1"
        engine.did.clear()
        opened.execute("cb1-0-c0", ("mpirun",), {"A": "b"}, log)
        assert (engine.did, log.lines) == ([("execute", "cb1-0-c0", ("mpirun",), {"A": "b"})], ("oom_kill 0",))
        engine.did.clear()
    assert engine.did == REMOVED


def test_what_is_shared_is_started_before_those_that_share_it(tmp_path: Path) -> None:
    engine = Engine()
    with session(engine).open(world(tmp_path, "ipc")) as opened:
        assert engine.did[2:] == [
            "check", ("start", "cb1-0-anchor"), "check", ("together", ("cb1-0-c0", "cb1-0-c1"))
        ]  # fmt: skip
        assert [name for name, _ in opened.hosts] == ["cb1-0-c0", "cb1-0-c1"]


def test_a_world_in_the_hosts_namespaces_leaves_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ranks left is removed when all have ended, whatever ended the world; at other steps nothing can be left."""
    swept: list[Any] = []
    engine, before = Engine(), time.time()
    monkeypatch.setattr(docker, "remove_left", lambda *given: swept.append((*given, engine.did[-1][0])))
    with contextlib.suppress(Interrupted), session(engine).open(world(tmp_path, "files")) as opened:
        assert engine.did == [("watch", FILTERS), "check", "check", ("together", ("cb1-0-c0", "cb1-0-c1"))]
        assert opened.hosts == (("localhost", 1), ("cb1-0-c1", 1))
        engine.did.clear()
        for host in ("localhost", "cb1-0-c1"):
            opened.execute(host, ("true",), {}, Log())
        assert [container for _, container, *_ in engine.did] == ["cb1-0-c0", "cb1-0-c1"]
        raise Interrupted("interrupted.")
    ((owner, since, after),) = swept
    assert (owner, after) == (1, "remove")
    assert before <= since <= time.time()
    with session(engine).open(world(tmp_path, "visible")):
        pass
    assert len(swept) == 1


def test_a_failure_tells_where_the_kernel_ended_processes(tmp_path: Path) -> None:
    engine = Engine(killed=2)
    raises = pytest.raises(LaunchFailed, match=r"^failed; .* cb1-0-c0, cb1-0-c1 ")
    with raises as caught, session(engine).open(world(tmp_path)):
        raise LaunchFailed("failed", ("a line",))
    assert caught.value.log == ("a line",)
    assert engine.did[-2:] == REMOVED


def test_an_engine_that_is_away_is_left_to_the_cleaning_at_the_end(tmp_path: Path) -> None:
    engine = Engine(away=True)
    with pytest.raises(Interrupted), session(engine).open(world(tmp_path)):
        raise Interrupted("interrupted.")
    assert engine.did[-1] == "stop"


# Commands ------------------------------------------------------------------------------------------------------------


def docker_with(**api: Any) -> Docker:
    """A client with as much of the SDK's as a test takes."""
    docker = Docker.__new__(Docker)
    docker.api, docker.service, docker.host = SimpleNamespace(**api), DOCKER, "unix:///x"
    return docker


@pytest.mark.parametrize(
    ("code", "error", "ended"), [(7, None, 7), (0, None, 0), (None, None, -1), (0, OSError("the engine is gone"), -1)]
)
def test_a_command_in_a_container_is_followed_to_its_end(code: int | None, error: Exception | None, ended: int) -> None:
    created: list[Any] = []
    heard: list[tuple[bool, str]] = []

    def create(container: str, argv: list[str], environment: dict[str, str]) -> dict[str, str]:
        created.append((container, argv, environment))
        return {"Id": "e1"}

    def start(number: str, stream: bool, demux: bool) -> Iterator[Any]:
        assert (number, stream, demux) == ("e1", True, True)
        yield b"out\n", None
        yield None, b"err\n"
        if error is not None:
            raise error

    docker = docker_with(exec_create=create, exec_start=start, exec_inspect=lambda number: {"ExitCode": code})
    execution = docker.execute("c0", ("cat", "file"), {"A": "b"}, lambda *line: heard.append(line))
    wait_for(execution.finished.is_set)
    assert (execution.container, execution.code) == ("c0", ended)
    assert heard == [(False, "out"), (True, "err")]
    assert created == [("c0", ["cat", "file"], {"A": "b"})]


def test_a_command_that_cannot_be_started_is_named_with_its_container() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("paused")

    with pytest.raises(EngineError, match=r"^container c0: .* cat: paused$"):
        docker_with(exec_create=refuse).execute("c0", ("cat",), {}, lambda *_: None)


def test_containers_are_removed_by_force_and_what_cannot_be_keeps_no_other() -> None:
    removed: list[Any] = []

    def refuse(number: str, **how: bool) -> None:
        removed.append((number, how))
        raise OSError("busy")

    docker = docker_with(remove_container=refuse, remove_network=refuse)
    docker.remove([{"Id": "1"}, {"Id": "2"}], [{"Id": "3"}, {"Id": "4"}])
    by_force = {"force": True, "v": True}
    assert sorted(removed[:2], key=str) == [("1", by_force), ("2", by_force)]
    assert removed[2:] == [("3", {}), ("4", {})]


@pytest.mark.parametrize(("created", "young"), [
    (1000.0, True), (1001.0, True), (1000.0 - YOUNG, False), (1000.0 - YOUNG + 1, True), (None, False), (0, False),
    ("1970-01-01T00:16:40+00:00", True), ("1970-01-01T00:00:00+00:00", False), ("soon", True), ([1], True), ({}, False),
])  # fmt: skip
def test_what_was_made_a_moment_ago_is_young(created: Any, young: bool) -> None:
    """And so is what says a time that cannot be read: it is left alone."""
    assert is_young({"Created": created}, 1000.0) is young


@pytest.mark.parametrize(("pieces", "expected"), [
    ([], []), ([(b"one\ntwo\n", None)], [(False, "one"), (False, "two")]),
    ([(b"o", None), (b"ne\nt", None), (b"wo", b"")], [(False, "one"), (False, "two")]),
    ([(b"o", b"er"), (None, b"ror\n"), (b"ut\n", None)], [(True, "error"), (False, "out")]),
    ([(b"left", b"over")], [(False, "left"), (True, "over")]), ([(b"\n\n", None)], [(False, ""), (False, "")]),
    ([(b"\xc3", None), (b"\xa4\n\xff\n", None)], [(False, "ä"), (False, "\N{REPLACEMENT CHARACTER}")]),
])  # fmt: skip
def test_lines_of_streams(pieces: list[tuple[bytes | None, bytes | None]], expected: list[tuple[bool, str]]) -> None:
    assert list(lines(iter(pieces))) == expected


def test_a_line_without_an_end_is_cut_and_costs_no_more_than_its_length() -> None:
    """Else a program that prints for ever fills memory, and every piece is looked through again."""
    endless = [(b"x" * 1000, None)] * 5000
    assert list(lines(iter(endless))) == [(False, "x" * LONGEST_LINE)]
    assert list(lines(iter([*endless, (b"y\nnext\n", None)]))) == [(False, "x" * LONGEST_LINE), (False, "next")]
    short = Lines(10)
    assert (short.of(b"0123456789abc"), short.of(b"d\nab"), short.last(), short.last()) == (
        [], ["0123456789"], ["ab"], []
    )  # fmt: skip


class Events:
    """What an engine tells, event by event as the test lets it; then an error, or the end (None)."""

    def __init__(self, *events: Any) -> None:
        self.queue, self.closed = queue.Queue[Any](), 0
        for event in events:
            self.queue.put(event)

    def __iter__(self) -> Iterator[Any]:
        while (event := self.queue.get(timeout=60)) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    def close(self) -> None:
        self.closed += 1
        raise OSError("it may fail")


def death(name: str | None) -> dict[str, Any]:
    return {"Actor": {"ID": "0123456789abcdef", "Attributes": {} if name is None else {"name": name}}}


@pytest.mark.parametrize(("told", "words"), [
    ((death("c1"), death("c0"), None), {"container", "c1"}), ((death(None), None), {"container", "0123456789ab"}),
    ((OSError("away"),), {"engine", "OSError"}), ((death("c1"), OSError("away")), {"container", "c1"}),
    ((None,), {"engine"}), (({},), {"engine", "KeyError"}),
])  # fmt: skip
def test_the_first_that_is_gone_is_named(told: tuple[Any, ...], words: set[str]) -> None:
    assert words <= set(re.findall(r"\w+", wait_for(ExitWatch(Events(*told))) or ""))


@pytest.mark.parametrize("last", [death("c1"), OSError("away"), None])
def test_once_it_is_stopped_an_end_is_no_news(last: Any) -> None:
    """Containers die because they are removed; whatever comes then ends the thread that listens."""
    asked: list[Any] = []
    before, events = set(threading.enumerate()), Events()

    def listen(decode: bool, filters: Any) -> Events:
        asked.append((decode, filters))
        return events

    watch = docker_with(events=listen).watch_exits("a=1", "b=2")
    assert asked == [(True, {"label": ["a=1", "b=2"], "event": "die"})]
    (listening,) = set(threading.enumerate()) - before
    assert listening.daemon
    watch.stop()
    watch.stop()
    assert (watch(), events.closed) == (None, 1)
    events.queue.put(last)
    listening.join(60)
    assert (listening.is_alive(), watch()) == (False, None)


def test_the_process_of_a_command_is_asked_for_until_it_is_known() -> None:
    answers = iter((0, 0, 7))
    known, elsewhere = Execution("c0", locate=lambda: next(answers)), Execution("c0", locate=iter((None,)).__next__)
    assert [known.pid for _ in range(4)] == [None, None, 7, 7]
    assert [elsewhere.pid for _ in range(2)] == [None, None]
    assert (Execution("c0").pid, Execution("c0").code) == (None, None)
    assert "3" in Execution("c0", 3).how


# Worlds that cannot be made ------------------------------------------------------------------------------------------


def keeping(there: set[str], refused: str) -> Callable[[str, str], Reply]:
    """An engine that has what it made until it is told to delete that, and that refuses one kind of request."""

    def answer(method: str, path: str) -> Reply:
        kind = "container" if path.startswith("/containers") else "network"
        if path.startswith(refused):
            return 500, {"message": "ENOSPC"}
        if method == "POST" and path.startswith(("/networks/create", "/containers/create")):
            there.add(kind)
            return 201, {"Id": "1"}
        if method == "DELETE":
            there.discard(kind)
            return 204, None
        is_list = path.startswith(("/containers/json", "/networks"))
        return (200, [{"Id": "1"}] if kind in there else []) if is_list else None

    return answer


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("refused", ["/networks/create", "/containers/create", "/containers/1/start"])
def test_what_was_made_is_removed_where_the_rest_cannot_be_made(tmp_path: Path, refused: str, sealed: bool) -> None:
    pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
    there: set[str] = set()
    with made_engine(tmp_path, keeping(there, refused)) as made:
        session = engines.get("docker").connect(msgspec.structs.replace(PLAN, docker_host=made.host), lambda: None)
        with pytest.raises(EngineError, match="ENOSPC"), session.open(world(tmp_path, sealed=sealed, policy="multi")):
            pytest.fail("it was opened")
    network = next(body for body in made.bodies if body.get("Name") == "cb1-0-net")
    assert (bool(network.get("Options")), there) == (sealed, set())
    assert ("DELETE", "/networks/1") in made.asked or refused == "/networks/create"


ON_A_VOLUME = """
images = ["tools"]
policies = ["multi"]
storage = ["volume"]
benchmarks = ["dd"]
launches = 1
"""


def test_a_volume_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collbench) -> None:
    pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
    there: set[str] = set()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "plan.toml").write_text(ON_A_VOLUME, encoding="utf-8")

    def expanded_on_one_core(plan: Plan) -> ExpandedPlan:
        return expand(plan, lambda engine: Topology((Core(0),)))

    def prepared(expanded: ExpandedPlan, check: StopCheck, held: object) -> PreparedCampaign:
        session = engines.get("docker").connect(msgspec.structs.replace(expanded.plan, docker_host=made.host), check)
        stacks = Stacks({("docker", "tools", None): Stack(PROCESS, "sha256:1", grants=frozenset())}, (), (), ())
        return PreparedCampaign(expanded, {"docker": session}, stacks)

    monkeypatch.setattr(launch, "expand_and_check", expanded_on_one_core)
    monkeypatch.setattr(launch, "prepare", prepared)
    with made_engine(tmp_path, keeping(there, "/containers/create")) as made:
        done = here("launch", tmp_path / "plan.toml", "--out", tmp_path / "run")
    mounts = [body["HostConfig"]["Mounts"][-1] for body in made.bodies if "HostConfig" in body]
    assert [(mount["Type"], mount["Target"]) for mount in mounts] == [("volume", "/tmp")]  # noqa: S108 - in the container
    (line,) = (line for line in done.err.splitlines() if not line.startswith("#"))
    assert done.code == 1
    assert re.search(r" 0 \(tools multi strict on volume, 1 rank\) .*: container cb\w+-0-c0: ENOSPC$", line)
    (record,) = read_run(tmp_path / "run").records
    assert (record.status, (record.reason or "").rpartition(" ")[2]) == ("failed", "ENOSPC")
    assert there == set(), "nothing is left on the engine"
    assert list((tmp_path / "tmp").iterdir()) == [], "nor in temporary folders"
