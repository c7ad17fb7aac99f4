"""The wait for an open world: what is started, whose requests for daemons are served, and what ends it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import Interrupted, LaunchFailed
from collbench.launch import launchers
from collbench.launch.job import OFTEN, SELDOM, Daemons, Job
from collbench.launch.launchers import LARGEST, RankLauncher, started_by_engine
from collbench.launch.waiting import Log

ROOT = Path(__file__).parents[2]
OPENMPI, MPICH, TORCH = (launchers.get(name, name) for name in ("openmpi", "mpich", "torch"))
TWO = (("c0", 1), ("c1", 2))
NAPS: list[float] = []
LINE = "HYDRA_LAUNCH: proxy --proxy-id {} --x"


@dataclass
class Command:
    """A command whose exit code is None for so many looks."""

    codes: Iterator[int | None]
    last: int | None = None
    pid: int | None = None

    @property
    def code(self) -> int | None:
        self.last = next(self.codes, self.last)
        return self.last

    @property
    def how(self) -> str:
        return f"ended with exit code {self.last}"


@dataclass
class World:
    """Boxes in which nothing happens but what a test says."""

    hosts: tuple[tuple[str, int], ...] = (("c0", 2),)
    codes: tuple[int | None, ...] = (None, 0)
    deaths: Iterator[str | None] = field(default_factory=lambda: iter(()))
    program: tuple[str, ...] = ("program",)
    started: list[tuple[str, tuple[str, ...], dict[str, str]]] = field(default_factory=list)

    def execute(self, host: str, argv: tuple[str, ...], environment: dict[str, str], log: Log) -> Command:
        self.started.append((host, argv, environment))
        return Command(iter(self.codes))

    def died(self) -> str | None:
        return next(self.deaths, None)


@dataclass
class Timeouts:
    """Ends after so many looks."""

    looks: int = 1000
    given: list[int] = field(default_factory=list)

    def ended(self, written: int) -> str | None:
        self.given.append(written)
        return "too long" if len(self.given) > self.looks else None


@pytest.fixture(autouse=True)
def naps() -> list[float]:
    """How long it is waited between two looks."""
    NAPS.clear()
    return NAPS


def waited(
    world: Any, launcher: RankLauncher = OPENMPI, log: Log | None = None, check: Callable[[], None] = lambda: None,
    patience: Any = None,
) -> None:  # fmt: skip
    patience = patience or Timeouts()
    ranks = sum(number for _, number in world.hosts)
    job = Job(world, launcher, ranks, False, Path("/nowhere"), log or Log(), patience, lambda: 7)
    check()
    while job.look():
        NAPS.append(job.pause)
        check()


# What is started -----------------------------------------------------------------------------------------------------


def test_in_one_box_the_launcher_runs_once_with_the_worlds_variables(naps: list[float]) -> None:
    world, patience = World(codes=(None, None, 0)), Timeouts()
    waited(world, patience=patience)
    assert world.started == [("c0", OPENMPI.local(2, False, ("program",)), {})]
    assert (naps, patience.given) == ([SELDOM] * 2, [7] * 2)
    for launcher, program in ((TORCH, "torchrun"), (MPICH, MPICH.local(2, False, ("program",))[0])):
        waited(other := World(), launcher)
        assert [argv[0] for _, argv, _ in other.started] == [program]
    assert set(naps) == {SELDOM}, "nobody asks for a daemon"


def test_across_boxes_torch_needs_no_launcher(naps: list[float]) -> None:
    world = World(TWO)
    waited(world, TORCH)
    assert [(host, argv, env["RANK"]) for host, argv, env in world.started] == [
        ("c0", ("program",), "0"), ("c1", ("program",), "1"), ("c1", ("program",), "2")
    ]  # fmt: skip
    assert naps == [SELDOM], "nobody asks for a daemon"


@pytest.mark.parametrize(("launcher", "hosts"), [(MPICH, TWO), (OPENMPI, World().hosts)])
def test_an_engine_that_starts_ranks_has_one_command(
    launcher: RankLauncher, hosts: tuple[tuple[str, int], ...]
) -> None:
    world = World(hosts)
    waited(world, started_by_engine(launcher))
    assert world.started == [("c0", ("program",), {})]


def test_daemons_are_started_where_lines_ask_for_them_once_each(naps: list[float]) -> None:
    """MPICH asks for one in every box; it is looked often until all have theirs."""
    world, log = World(TWO, codes=(None, None, None, None, 0)), Log()
    log.add(False, LINE.format(0))
    boxes = iter((None, 0, 1, 1, None))  # for which one a line asks before each look

    def check() -> None:
        if (box := next(boxes)) is not None:
            log.add(True, LINE.format(box))

    waited(world, MPICH, log, check)
    assert world.started == [
        ("c0", MPICH.across(TWO, ("program",)), {}),
        ("c0", ("sh", "-c", "proxy --proxy-id 0 --x"), {}), ("c1", ("sh", "-c", "proxy --proxy-id 1 --x"), {}),
    ]  # fmt: skip
    assert naps == [OFTEN, OFTEN, SELDOM, SELDOM]
    assert OFTEN < SELDOM


# Requests for daemons, which are hostile until read ------------------------------------------------------------------


@pytest.fixture
def relay(tmp_path: Path) -> Path:
    folder = tmp_path / "relay"
    folder.mkdir()
    return folder


def daemons(launcher: RankLauncher, relay: Path, log: Log | None = None, hosts: Any = TWO) -> Daemons:
    return Daemons(tuple(name for name, _ in hosts), launcher, relay, log or Log())


def requested(relay: Path) -> list[tuple[str, str]]:
    """Hosts and commands of the requests in this folder."""
    return [(request.host, request.shell) for request in daemons(OPENMPI, relay).new()]


def test_open_mpi_needs_no_daemon_in_its_own_box(relay: Path) -> None:
    """Requests come in the order of their names; of one word more than the box the whole is the command."""
    wanted = daemons(OPENMPI, relay, hosts=(*TWO, ("c2", 1)))
    (relay / "2.request").write_text('["c1", "prted", "-x", "two words"]')
    (relay / "1.request").write_text('["c2", "prted"]')
    (relay / "3.draft").write_text("half")
    commands = [(request.host, request.shell) for request in wanted.new()]
    assert commands == [("c2", "prted"), ("c1", "prted -x two words")]
    assert wanted.complete
    assert [path.name for path in relay.iterdir()] == ["3.draft"], "a request is taken away"
    (relay / "3.request").write_text('["c1", "prted"]')
    assert wanted.new() == [], "it is looked for no more"


def test_a_request_may_be_as_large_as_one_is_read(relay: Path) -> None:
    request = '["c1", "' + "x" * (LARGEST - 10) + '"]'
    assert len(request) == LARGEST == 65536
    (relay / "1.request").write_text(request)
    assert [host for host, _ in requested(relay)] == ["c1"]
    (relay / "1.request").write_text(request + " ")
    with pytest.raises(LaunchFailed, match=f"65537 bytes; .* {LARGEST} "):
        requested(relay)


def moved(relay: Path) -> None:
    (relay / "a.request").write_text('["c1", "prted"]')
    relay.rename(relay.with_name("elsewhere"))


def sparse(relay: Path) -> None:
    with (relay / "a.request").open("wb") as file:
        file.truncate(900 << 20)


NO_REQUESTS: dict[str, Callable[[Path], object]] = {
    "a link": lambda relay: (relay / os.fsdecode(b"\xff\xfe.request")).symlink_to("/etc/passwd"),
    "deep": lambda relay: (relay / "a.request").write_bytes(b"[" * 60_000),
    "a folder": lambda relay: (relay / "d.request").mkdir(),
    "large": sparse,
    "moved": moved,
    "no letters": lambda relay: (relay / "a.request").write_bytes(b'["c1", "\\ud800"]'),
    "a number": lambda relay: (relay / "a.request").write_bytes(b"7"),
    "one word": lambda relay: (relay / "a.request").write_bytes(b'["c1"]'),
    "a pipe": lambda relay: os.mkfifo(relay / "a.request"),
}


@pytest.mark.parametrize("what", NO_REQUESTS)
def test_a_request_that_is_none_fails_the_launch(relay: Path, what: str) -> None:
    NO_REQUESTS[what](relay)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LaunchFailed, match="daemon") as failed:
        requested(relay)
    str(failed.value).encode()  # every record and terminal can hold it
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_request_that_goes_while_it_is_read(relay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (relay / "a.request").write_text('["c1", "prted"]')

    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "a.request")

    monkeypatch.setattr(os, "unlink", gone)
    with pytest.raises(LaunchFailed, match="daemon"):
        requested(relay)


CLOSED = """
import os, sys
from pathlib import Path
from collbench.errors import EngineError, LaunchFailed
from tests.unit.test_job import requested
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
relay = Path(sys.argv[1]) / "relay"
relay.mkdir(mode=0)
try:
    requested(relay)
except LaunchFailed as error:
    print(error)
"""


def test_a_relay_folder_that_is_closed() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        command = [sys.executable, "-c", CLOSED, place]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert "daemon" in done.stdout and os.strerror(13) in done.stdout, done.stderr


# What ends it --------------------------------------------------------------------------------------------------------


def failed(world: Any, **more: Any) -> str:
    """Why; the lines that are kept are without what the library is known to say."""
    log = Log()
    for line in ("noise OMP_NUM_THREADS", "the last"):
        log.add(True, line)
    with pytest.raises(LaunchFailed) as caught:
        waited(world, TORCH, log, **more)
    assert caught.value.log == ("the last",)
    return str(caught.value)


def test_an_exit_code_is_a_failure() -> None:
    for code in (3, -1):
        assert failed(World(codes=(None, code))) == Command(iter(()), code).how


def test_a_death_ends_the_wait_at_once_or_is_seen_at_the_end(naps: list[float]) -> None:
    assert failed(World(codes=(None,) * 9, deaths=iter((None, "c1 died")))) == "c1 died"
    assert len(naps) == 1
    assert failed(World(codes=(0,), deaths=iter(("c1 died",)))) == "c1 died"


def test_who_takes_too_long_is_left_but_not_who_has_just_ended() -> None:
    assert failed(World(codes=(None,) * 9), patience=Timeouts(2)) == "too long"
    waited(World(codes=(None, 0)), patience=Timeouts(0))
    assert failed(World(codes=(None, 5)), patience=Timeouts(0)) == Command(iter(()), 5).how


def test_told_to_stop_it_stops_before_anything_else_is_looked_at() -> None:
    def stop() -> None:
        raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        waited(World(codes=(None,), deaths=iter(("c1 died",))), check=stop)
