"""Worlds as containers: made in order, volumes, and removed whatever ends them."""

from __future__ import annotations

import contextlib
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.processes import wait_for
from tests.unit.conftest import Collbench
from tests.unit.made_engine import made_engine

from collbench.cli import launch
from collbench.errors import EngineError, Interrupted, LaunchFailed, PlanError
from collbench.launch import engines, launchers
from collbench.launch.campaign import PreparedCampaign
from collbench.launch.cells import LaunchCell
from collbench.launch.engines import host
from collbench.launch.engines.docker import containers
from collbench.launch.engines.docker.client import DOCKER, Docker, Execution, ExitWatch, OnLine, lines
from collbench.launch.engines.docker.containers import DockerSession, is_young
from collbench.launch.engines.docker.spec import DRIVER_LABEL, INSIDE, LAUNCH_LABEL, RUN_LABEL, SEALED
from collbench.launch.engines.fake import contents
from collbench.launch.engines.host import HostSession
from collbench.launch.engines.spec import Looks, Stack, WorldSpec
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.folders import YOUNG, folders_in
from collbench.launch.launchers import PROCESS
from collbench.launch.placement import place
from collbench.launch.stacks import Stacks
from collbench.launch.waiting import LONGEST_LINE, Lines, Log, StopCheck
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan
from collbench.schema.store import read_run

PLAN = Plan(collectives=("allreduce",), images=("mpich",))
LABELS = {RUN_LABEL: "cb1", LAUNCH_LABEL: "cb1-0", DRIVER_LABEL: "boot/1/2/3"}

# Worlds --------------------------------------------------------------------------------------------------------------


class Engine(Docker):
    """Notes what it is asked for; containers answer that the kernel ended nobody, or somebody."""

    def __init__(self, killed: int = 0, away: bool = False) -> None:
        self.did: list[Any] = []
        self.killed, self.away, self.gone = killed, away, list[str]()
        self.stopped = 0
        self.check = lambda: self.did.append("check")

    def watch_exits(self, *labels: str) -> Any:
        self.did.append(("watch", labels))
        found: Any = lambda: next(iter(self.gone), None)  # noqa: E731
        return type("Watch", (), {"__call__": lambda _: found(), "stop": lambda _: self.did.append("stop")})()

    def create_network(self, name: str, labels: dict[str, str], sealed: bool = True) -> None:
        self.did.append(("network", name, labels, sealed))

    def start(self, spec: Any) -> None:
        self.did.append(("start", spec.name))

    def start_together(self, specs: Any) -> None:
        self.did.append(("together", tuple(spec.name for spec in specs)))

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], hear: OnLine) -> Execution:
        self.did.append(("execute", container, argv, environment))
        hear(False, f"oom_kill {self.killed}")
        found = Execution(container, 0)
        found.finished.set()
        return found

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        if self.away:
            raise EngineError("away")
        return [{"Id": "c", "by": labels}]

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        return [{"Id": "n", "by": labels}]

    def remove(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        self.did.append(("remove", containers, networks))


def session(engine: Engine) -> DockerSession:
    found = DockerSession.__new__(DockerSession)
    found.engine, found.title, found.run = engine, "Docker Engine 1", "cb1"
    return found


def world(place_for_it: Path, step: str = "strict", sealed: bool = True) -> WorldSpec:
    cell = LaunchCell("mpich", "single", step, 2)
    stack = Stack(launchers.get("mpich", "mpich"), "sha256:1", grants=frozenset({SEALED} if sealed else ()))
    placement = place(Topology(tuple(map(Core, range(2)))), cell, PLAN)
    return WorldSpec("cb1", "cb1-0", "boot/1/2/3", cell, placement, stack, folders_in(place_for_it), (1, 2))


MINE = tuple(f"{name}={value}" for name, value in LABELS.items())
REMOVED = ["stop", ("remove", [{"Id": "c", "by": MINE}], [{"Id": "n", "by": MINE}])]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_world_is_made_in_order_and_removed_by_its_labels(tmp_path: Path, sealed: bool) -> None:
    engine = Engine()
    with session(engine).open(world(tmp_path, sealed=sealed)) as opened:
        assert engine.did == [
            ("watch", MINE), ("network", "cb1-0-net", LABELS, sealed), "check", "check",
            ("together", ("cb1-0-c0", "cb1-0-c1")),
        ]  # fmt: skip
        assert (opened.hosts, opened.program) == ((("cb1-0-c0", 1), ("cb1-0-c1", 1)), INSIDE)
        assert opened.died() is None
        engine.gone.append("container cb1-0-c1 died")
        assert opened.died() == "container cb1-0-c1 died"
        engine.did.clear()
        log = Log()
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


def test_a_world_in_the_namespaces_of_the_host_has_no_network_and_leaves_no_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ranks left is removed when all have ended, whatever ended the world; at other steps nothing can be left."""
    swept: list[Any] = []
    engine = Engine()
    monkeypatch.setattr(containers, "remove_left", lambda *asked: swept.append((*asked, engine.did[-1][0])))
    before = time.time()
    with contextlib.suppress(Interrupted), session(engine).open(world(tmp_path, "files")) as opened:
        assert engine.did == [("watch", MINE), "check", "check", ("together", ("cb1-0-c0", "cb1-0-c1"))]
        assert opened.hosts == (("localhost", 1), ("cb1-0-c1", 1))
        engine.did.clear()
        for host in ("localhost", "cb1-0-c1"):
            opened.execute(host, ("true",), {}, Log())
        assert [asked[1] for asked in engine.did] == ["cb1-0-c0", "cb1-0-c1"]
        raise Interrupted("interrupted.")
    ((owner, since, after),) = swept
    assert (owner, after) == (1, "remove")
    assert before <= since <= time.time()
    with session(engine).open(world(tmp_path, "visible")):
        pass
    assert len(swept) == 1


@pytest.mark.parametrize(
    ("killed", "more"), [(0, ""), (2, "; the kernel ended processes in cb1-0-c0, cb1-0-c1 for lack of memory")]
)
def test_a_failure_is_told_what_the_containers_know(tmp_path: Path, killed: int, more: str) -> None:
    engine = Engine(killed)
    with pytest.raises(LaunchFailed) as caught, session(engine).open(world(tmp_path)):
        raise LaunchFailed("ended with exit code 3", ("a line",))
    assert (str(caught.value), caught.value.log) == (f"ended with exit code 3{more}", ("a line",))
    assert engine.did[-2:] == REMOVED


def test_an_engine_that_is_away_is_left_to_the_cleaning_at_the_end(tmp_path: Path) -> None:
    engine = Engine(away=True)
    with pytest.raises(Interrupted), session(engine).open(world(tmp_path)):
        raise Interrupted("interrupted.")
    assert engine.did[-1] == "stop"


# Commands ------------------------------------------------------------------------------------------------------------


class Api:
    """As much of the SDK's client as commands take."""

    def __init__(self, code: int | None = 7, error: Exception | None = None) -> None:
        self.code, self.error, self.made = code, error, list[Any]()

    def exec_create(self, container: str, argv: list[str], environment: dict[str, str]) -> dict[str, str]:
        self.made.append((container, argv, environment))
        return {"Id": "e1"}

    def exec_start(self, number: str, stream: bool, demux: bool) -> Any:
        assert (number, stream, demux) == ("e1", True, True)
        yield b"out\n", None
        yield None, b"err\n"
        if self.error is not None:
            raise self.error

    def exec_inspect(self, number: str) -> dict[str, int | None]:
        return {"ExitCode": self.code}


def engine_with(api: Any) -> Docker:
    found = Docker.__new__(Docker)
    found.api, found.service, found.host = api, DOCKER, "unix:///x"
    return found


@pytest.mark.parametrize(
    ("code", "error", "ended"), [(7, None, 7), (0, None, 0), (None, None, -1), (0, OSError("the engine is gone"), -1)]
)
def test_a_command_in_a_container_is_followed_to_its_end(code: int | None, error: Exception | None, ended: int) -> None:
    heard: list[tuple[bool, str]] = []
    api = Api(code, error)
    found = engine_with(api).execute(
        "c0", ("cat", "file"), {"A": "b"}, lambda is_error, line: heard.append((is_error, line))
    )
    wait_for(found.finished.is_set)
    assert (found.container, found.code) == ("c0", ended)
    assert heard == [(False, "out"), (True, "err")]
    assert api.made == [("c0", ["cat", "file"], {"A": "b"})]


def test_a_command_that_cannot_be_started_is_named_with_its_container() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("paused")

    with pytest.raises(EngineError, match=r"^container c0: cannot execute cat: paused$"):
        engine_with(SimpleNamespace(exec_create=refuse)).execute("c0", ("cat",), {}, lambda *_: None)


def test_deaths_are_heard_of_containers_with_all_these_labels() -> None:
    asked: list[Any] = []
    more = threading.Event()

    class Events:
        closed = 0

        def __iter__(self) -> Iterator[Any]:
            yield {"Actor": {"ID": "1", "Attributes": {"name": "c1"}}}
            more.wait(60)

        def close(self) -> None:
            Events.closed += 1
            more.set()

    def events(decode: bool, filters: Any) -> Events:
        asked.append((decode, filters))
        return Events()

    exits = engine_with(SimpleNamespace(events=events)).watch_exits("a=1", "b=2")
    assert wait_for(exits) == "container c1 died"
    assert Events.closed == 0
    exits.stop()
    assert Events.closed == 1
    assert asked == [(True, {"label": ["a=1", "b=2"], "event": "die"})]


def test_a_container_is_removed_by_force_and_one_that_cannot_be_keeps_no_other() -> None:
    removed: list[Any] = []

    def remove(number: str, force: bool, v: bool) -> None:
        removed.append((number, force, v))
        raise OSError("busy")

    def remove_network(number: str) -> None:
        removed.append(number)

    api = SimpleNamespace(remove_container=remove, remove_network=remove_network)
    engine_with(api).remove([{"Id": "1"}, {"Id": "2"}], [{"Id": "n"}])
    assert (sorted(removed[:2]), removed[2:]) == ([("1", True, True), ("2", True, True)], ["n"])


# What killed drivers left --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "young"),
    [
        (1000.0, True), (1001.0, True), (1000.0 - YOUNG, False), (1000.0 - YOUNG + 1, True), (None, False), (0, False),
        ("1970-01-01T00:16:40+00:00", True), ("1970-01-01T00:00:00+00:00", False), ("soon", True), ([1], True),
        ({}, False),
    ],
)  # fmt: skip
def test_what_was_made_a_moment_ago_is_young(made: Any, young: bool) -> None:
    """And so is what says a time that cannot be read: it is left alone."""
    assert is_young({"Created": made}, 1000.0) is young


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ([], []),
        ([(b"one\ntwo\n", None)], [(False, "one"), (False, "two")]),
        ([(b"o", None), (b"ne\nt", None), (b"wo", b"")], [(False, "one"), (False, "two")]),
        ([(b"o", b"er"), (None, b"ror\n"), (b"ut\n", None)], [(True, "error"), (False, "out")]),
        ([(b"left", b"over")], [(False, "left"), (True, "over")]),
        ([(b"\n\n", None)], [(False, ""), (False, "")]),
        ([(b"\xc3", None), (b"\xa4\n\xff\n", None)], [(False, "ä"), (False, "\N{REPLACEMENT CHARACTER}")]),
    ],
)
def test_lines_of_both_streams_are_put_together(
    pieces: list[tuple[bytes | None, bytes | None]], found: list[tuple[bool, str]]
) -> None:
    assert list(lines(iter(pieces))) == found


def test_a_line_without_an_end_is_cut_and_costs_no_more_than_its_length() -> None:
    """Else a program that prints for ever fills memory, and every piece is looked through again."""
    endless = [(b"x" * 1000, None)] * 5000
    assert list(lines(iter(endless))) == [(False, "x" * LONGEST_LINE)]
    assert list(lines(iter([*endless, (b"y\nnext\n", None)]))) == [(False, "x" * LONGEST_LINE), (False, "next")]
    short = Lines(10)
    assert [short.of(b"0123456789abc"), short.of(b"d\nab"), short.last(), short.last()] == [
        [],
        ["0123456789"],
        ["ab"],
        [],
    ]


# Deaths --------------------------------------------------------------------------------------------------------------


class Events:
    """What an engine tells, one by one as the test lets it; then an error, or the end."""

    def __init__(self, *told: Any) -> None:
        self.told, self.closed = queue.Queue[Any](), 0
        for one in told:
            self.told.put(one)

    def __iter__(self) -> Iterator[Any]:
        while (one := self.told.get(timeout=60)) is not None:
            if isinstance(one, Exception):
                raise one
            yield one

    def close(self) -> None:
        self.closed += 1
        raise OSError("it may fail")


def death(name: str | None, number: str = "0123456789abcdef") -> dict[str, Any]:
    return {"Actor": {"ID": number, "Attributes": {} if name is None else {"name": name}}}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((death("c1"), death("c0"), None), "container c1 died"),
        ((death(None), None), "container 0123456789ab died"),
        ((OSError("away"),), "the engine is gone (OSError)"),
        ((death("c1"), OSError("away")), "container c1 died"),
        ((None,), "the engine is gone"),
        (({},), "the engine is gone (KeyError)"),
    ],
)
def test_the_first_that_is_gone_is_named(told: tuple[Any, ...], said: str) -> None:
    watch = ExitWatch(Events(*told))
    assert wait_for(watch) == said


@pytest.mark.parametrize("last", [death("c1"), OSError("away"), None])
def test_once_it_is_stopped_an_end_is_no_news(last: Any) -> None:
    """Containers die because they are removed; whatever comes then ends the thread that listens."""
    before = set(threading.enumerate())
    events = Events()
    watch = ExitWatch(events)
    (listening,) = set(threading.enumerate()) - before
    assert listening.daemon
    watch.stop()
    watch.stop()
    assert (watch(), events.closed) == (None, 1)
    events.told.put(last)
    listening.join(60)
    assert (listening.is_alive(), watch()) == (False, None)
    assert (Execution("c0", 3).how, Execution("c0").code) == ("ended with exit code 3", None)


def test_the_process_of_a_command_is_asked_for_until_it_is_known() -> None:
    answers = iter((0, 0, 7))
    known, elsewhere = Execution("c0", locate=lambda: next(answers)), Execution("c0", locate=iter((None,)).__next__)
    assert [known.pid for _ in range(4)] == [None, None, 7, 7]
    assert [elsewhere.pid for _ in range(2)] == [None, None]
    assert Execution("c0").pid is None


# A volume that the engine cannot make ---------------------------------------------------------------------------------

ON_A_VOLUME = """
images = ["tools"]
policies = ["multi"]
storage = ["volume"]
benchmarks = ["dd"]
launches = 1
"""

REFUSAL = "error while creating volume: mkdir /var/lib/docker/volumes/1: no space left on device"


def test_a_volume_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collbench) -> None:
    pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
    networks: set[str] = set()

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/containers/create"):
            return 500, {"message": REFUSAL}
        if path.startswith("/networks/create"):
            networks.add("n1")
            return 201, {"Id": "n1"}
        if method == "DELETE":
            networks.remove(path.rpartition("/")[2])
            return 204, None
        if path.startswith("/containers/json"):
            return 200, []
        return (200, [{"Id": name} for name in networks]) if path.startswith("/networks") else None

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "plan.toml").write_text(ON_A_VOLUME, encoding="utf-8")
    with made_engine(tmp_path, answer) as made:

        def expanded_on_one_core(plan: Plan) -> ExpandedPlan:
            return expand(plan, lambda engine: Topology((Core(0),)))

        def prepared(expanded: ExpandedPlan, check: StopCheck, held: object) -> PreparedCampaign:
            session = engines.get("docker").connect(
                msgspec.structs.replace(expanded.plan, docker_host=made.host), check
            )
            stack = Stack(PROCESS, "sha256:1", grants=frozenset())
            return PreparedCampaign(
                expanded, {"docker": session}, Stacks({("docker", "tools", None): stack}, (), (), ())
            )

        monkeypatch.setattr(launch, "expand_and_check", expanded_on_one_core)
        monkeypatch.setattr(launch, "prepare", prepared)
        done = here("launch", tmp_path / "plan.toml", "--out", tmp_path / "run")
    asked = [body["HostConfig"]["Mounts"][-1] for body in made.bodies if "HostConfig" in body]
    assert [(mount["Type"], mount["Target"]) for mount in asked] == [("volume", "/tmp")]  # noqa: S108 - in the container
    assert done.code == 1
    said = [line for line in done.err.splitlines() if not line.startswith("#")]
    (line,) = said
    assert line.startswith("collbench: launch 0 (tools multi strict on volume, 1 rank) failed: container cb")
    assert line.endswith(f"-0-c0: {REFUSAL}")
    (record,) = read_run(tmp_path / "run").records
    assert record.status == "failed" and record.reason is not None and record.reason.endswith(REFUSAL)
    assert networks == set(), "nothing is left on the engine"
    assert list((tmp_path / "tmp").iterdir()) == [], "nor in temporary folders"


# What single engines do of their own ----------------------------------------------------------------------------------

MACHINE = Topology(tuple(Core(number) for number in range(4)))
HOST_PLAN = Plan(collectives=("allreduce",), images=("mpich",), policies=("host",))

# The host ------------------------------------------------------------------------------------------------------------


def looked(plan: Plan, vendors: dict[str, str]) -> Looks:
    """What the host's side of a plan's images is, beside images that hold these libraries."""
    cells = [LaunchCell(image, "host", None, 2, engine="host") for image in plan.images]
    return HostSession(lambda: None).look(plan, {cell: place(MACHINE, cell, plan) for cell in cells}, vendors)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with MPICH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setattr(host, "probe", lambda environment, vendor="", benchmarks=(), overrides=None: contents("mpich"))
    return tmp_path


def test_the_environment_beside_an_image_holds_the_same_library(environment: Path) -> None:
    plan = msgspec.structs.replace(HOST_PLAN, images=("site/mpi:5",), environments={"site/mpi:5": str(environment)})
    look = looked(plan, {"site/mpi:5": "mpich"}).by_image["site/mpi:5"]
    assert (look.reference, look.id, look.contents.vendor) == (str(environment), None, "mpich")
    with pytest.raises(PlanError, match=r"image site/mpi:5 stands for openmpi, and the environment .* holds mpich"):
        looked(plan, {"site/mpi:5": "openmpi"})


def test_programs_take_an_environment_whatever_library_it_holds(environment: Path) -> None:
    plan = msgspec.structs.replace(HOST_PLAN, collectives=(), benchmarks=("stream",), images=("bare",),
                                   environments={"bare": str(environment)})  # fmt: skip
    assert looked(plan, {"bare": ""}).by_image["bare"].reference == str(environment)
    assert looked(plan, {}).by_image["bare"].reference == str(environment)


def test_without_containers_the_name_of_an_image_says_its_library(environment: Path) -> None:
    plan = msgspec.structs.replace(HOST_PLAN, environments={"mpich": str(environment)})
    assert looked(plan, {}).by_image["mpich"].contents.vendor == "mpich"
    with pytest.raises(PlanError, match="the image's name must say which library the host is to use: mpich, openmpi"):
        looked(msgspec.structs.replace(HOST_PLAN, images=("site/mpi:5",)), {})


def test_an_environment_that_is_none_is_refused(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(HOST_PLAN, environments={"mpich": str(tmp_path / "nowhere")})
    with pytest.raises(PlanError, match="nowhere has no bin/python"):
        looked(plan, {})


# Docker --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("spoiled", ["/networks/create", "/containers/create", "/containers/1/start"])
def test_what_was_made_of_a_world_is_removed_where_the_rest_cannot_be_made(
    tmp_path: Path, spoiled: str, sealed: bool
) -> None:
    pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
    there = {"network": False, "container": False}

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith(spoiled):
            return 500, {"message": "no space left"}
        if method == "POST" and path.startswith(("/networks/create", "/containers/create")):
            there["network" if "networks" in path else "container"] = True
            return 201, {"Id": "1"}
        if method == "DELETE":
            there["network" if "networks" in path else "container"] = False
            return 204, None
        if path.startswith("/containers/json"):
            return 200, [{"Id": "1"}] if there["container"] else []
        return (200, [{"Id": "1"}] if there["network"] else []) if path.startswith("/networks") else None

    cell = LaunchCell("mpich", "multi", "strict", 2)
    grants = frozenset({SEALED}) if sealed else frozenset()
    stack = Stack(launchers.get("mpich", "mpich"), "sha256:1", grants=grants)
    with made_engine(tmp_path, answer) as made:
        session = engines.get("docker").connect(msgspec.structs.replace(HOST_PLAN, docker_host=made.host), lambda: None)
        world = WorldSpec(session.run, "cb1-0", "boot/1/2", cell, place(MACHINE, cell, HOST_PLAN), stack,
                          folders_in(tmp_path), (1000, 1000))  # fmt: skip
        with pytest.raises(EngineError, match="no space left"), session.open(world):
            pytest.fail("it was opened")
        network = next(body for body in made.bodies if body.get("Name") == "cb1-0-net")
    assert bool(network.get("Options")) is sealed
    assert there == {"network": False, "container": False}
    assert ("DELETE", "/networks/1") in made.asked or spoiled == "/networks/create"
