"""The wait for an open world: what is started, what ends it, and with which words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import Interrupted, LaunchFailed
from collbench.launch import launchers
from collbench.launch.job import OFTEN, SELDOM, Daemons, Job
from collbench.launch.launchers import RankLauncher, started_by_engine
from collbench.launch.relay import LARGEST
from collbench.launch.waiting import Log

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
        return "no record came for 20 s" if len(self.given) > self.looks else None


@pytest.fixture(autouse=True)
def naps() -> list[float]:
    """How long it is waited between two looks."""
    NAPS.clear()
    return NAPS


def waited(
    world: Any, launcher: RankLauncher = OPENMPI, log: Log | None = None, check: Callable[[], None] = lambda: None,
    patience: Any = None, relay: Path = Path("/nowhere"),
) -> None:  # fmt: skip
    patience = patience or Timeouts()
    ranks = sum(number for _, number in world.hosts)
    job = Job(world, launcher, ranks, False, relay, log or Log(), patience, lambda: 7)
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


def test_in_one_box_torch_is_started_by_its_launcher_too() -> None:
    world = World()
    waited(world, TORCH)
    assert [argv[0] for _, argv, _ in world.started] == ["torchrun"]


def test_across_boxes_torch_needs_no_launcher(naps: list[float]) -> None:
    world = World(TWO)
    waited(world, TORCH)
    assert [(host, argv, env["RANK"]) for host, argv, env in world.started] == [
        ("c0", ("program",), "0"), ("c1", ("program",), "1"), ("c1", ("program",), "2")
    ]  # fmt: skip
    assert naps == [SELDOM], "nobody asks for a daemon"


def test_where_the_engine_starts_the_ranks_there_is_one_command() -> None:
    world = World(TWO)
    waited(world, started_by_engine(MPICH))
    assert world.started == [("c0", ("program",), {})]
    alone = World()
    waited(alone, started_by_engine(OPENMPI))
    assert alone.started == [("c0", ("program",), {})]


def test_daemons_are_started_where_lines_ask_for_them_once_each(naps: list[float]) -> None:
    """MPICH asks for one in every box; it is looked often until all have theirs."""
    world, log = World(TWO, codes=(None, None, None, 0)), Log()
    log.add(False, LINE.format(0))
    looks = iter((lambda: None, lambda: log.add(False, LINE.format(1)), lambda: log.add(False, LINE.format(0)),
                  lambda: None))  # fmt: skip
    waited(world, MPICH, log, check=lambda: next(looks)())
    assert [(host, argv) for host, argv, _ in world.started] == [
        ("c0", MPICH.across(TWO, ("program",))),
        ("c0", ("sh", "-c", "proxy --proxy-id 0 --x")), ("c1", ("sh", "-c", "proxy --proxy-id 1 --x")),
    ]  # fmt: skip
    assert [environment for *_, environment in world.started[1:]] == [{}, {}]
    assert naps == [OFTEN, SELDOM, SELDOM]
    assert OFTEN < SELDOM


def daemons(launcher: RankLauncher, relay: Path, log: Log | None = None, hosts: Any = TWO) -> Daemons:
    return Daemons(tuple(name for name, _ in hosts), launcher, relay, log or Log())


def test_a_line_is_read_once() -> None:
    log = Log()
    asked = daemons(MPICH, Path("/nowhere"), log)
    log.add(False, LINE.format(1))
    assert [request.host for request in asked.new()] == ["c1"]
    assert (asked.new(), asked.complete) == ([], False)
    log.add(True, LINE.format(0))
    assert [request.host for request in asked.new()] == ["c0"]
    assert asked.complete
    log.add(False, LINE.format(1))
    assert asked.new() == []


def test_open_mpi_needs_no_daemon_in_its_own_box(tmp_path: Path) -> None:
    """Requests come in the order of their names; of one word more than the box the whole is the command."""
    three = (*TWO, ("c2", 1))
    asked = daemons(OPENMPI, tmp_path, hosts=three)
    (tmp_path / "2.request").write_text('["c1", "prted", "-x", "two words"]')
    (tmp_path / "1.request").write_text('["c2", "prted"]')
    (tmp_path / "other").write_text("no request")
    assert [(request.host, request.shell) for request in asked.new()] == [("c2", "prted"), ("c1", "prted -x two words")]
    assert asked.complete
    (tmp_path / "3.request").write_text('["c1", "prted"]')
    assert asked.new() == [], "it is looked for no more"


def test_a_request_may_be_as_large_as_one_is_read(tmp_path: Path) -> None:
    request = '["c1", "' + "x" * (LARGEST - 10) + '"]'
    assert len(request) == LARGEST == 65536
    (tmp_path / "1.request").write_text(request)
    assert [one.host for one in daemons(OPENMPI, tmp_path).new()] == ["c1"]
    (tmp_path / "1.request").write_text(request + " ")
    with pytest.raises(LaunchFailed, match=f"65537 bytes; at most {LARGEST} are read"):
        daemons(OPENMPI, tmp_path).new()


@pytest.mark.parametrize("launcher", [OPENMPI, MPICH, TORCH])
def test_one_box_is_complete(launcher: RankLauncher) -> None:
    asked = daemons(launcher, Path("/nowhere"), hosts=(("c0", 3),))
    assert asked.complete and asked.new() == []


# What ends it --------------------------------------------------------------------------------------------------------


def failed(world: Any, **more: Any) -> LaunchFailed:
    log = Log()
    for line in ("noise OMP_NUM_THREADS", "the last"):
        log.add(True, line)
    with pytest.raises(LaunchFailed) as caught:
        waited(world, TORCH, log, **more)
    assert caught.value.log == ("the last",), "without what the library is known to say"
    return caught.value


def test_an_exit_code_is_a_failure() -> None:
    assert str(failed(World(codes=(None, 3)))) == "ended with exit code 3"
    assert str(failed(World(codes=(-1,)))) == "ended with exit code -1"


def test_a_death_ends_the_wait_at_once_or_is_seen_at_the_end(naps: list[float]) -> None:
    assert str(failed(World(codes=(None,) * 9, deaths=iter((None, "c1 died"))))) == "c1 died"
    assert len(naps) == 1
    assert str(failed(World(codes=(0,), deaths=iter(("c1 died",))))) == "c1 died"


def test_who_takes_too_long_is_left_but_not_who_has_just_ended() -> None:
    assert str(failed(World(codes=(None,) * 9), patience=Timeouts(2))) == "no record came for 20 s"
    waited(World(codes=(None, 0)), patience=Timeouts(0))
    assert str(failed(World(codes=(None, 5)), patience=Timeouts(0))) == "ended with exit code 5"


def test_told_to_stop_it_stops_before_anything_else_is_looked_at() -> None:
    def stop() -> None:
        raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        waited(World(codes=(None,), deaths=iter(("c1 died",))), check=stop)
