"""Waiting for a world: requests for daemons are hostile until read, and what a world prints is no progress."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.made_worlds import PLAN, carried_out, made

from collbench.errors import EngineError, LaunchFailed
from collbench.launch import launchers
from collbench.launch.engines.docker.client import Docker, Execution, OnLine
from collbench.launch.engines.docker.containers import killed_for_memory
from collbench.launch.job import Daemons
from collbench.launch.waiting import GRACE, LONGEST_PASS, STARTING, Limits, Log, Timeouts, limits_of, written_to

ROOT = Path(__file__).parents[2]
SHORT = msgspec.structs.replace(PLAN, timeout="1s", budget="0.1s", launches=1)


@pytest.fixture
def relay(tmp_path: Path) -> Path:
    folder = tmp_path / "relay"
    folder.mkdir()
    return folder


def asked(relay: Path) -> list[str]:
    daemons = Daemons(("c0", "c1"), launchers.get("openmpi", "openmpi"), relay, Log())
    return [request.host for request in daemons.new()]


def test_a_request_is_taken_away(relay: Path) -> None:
    (relay / "1.request").write_text(json.dumps(["c1", "prted", "--daemonize"]))
    (relay / "2.draft").write_text("half")
    assert asked(relay) == ["c1"]
    assert [path.name for path in relay.iterdir()] == ["2.draft"]


def linked(relay: Path) -> None:
    (relay / os.fsdecode(b"\xff\xfe.request")).symlink_to("/etc/passwd")


def deep(relay: Path) -> None:
    (relay / "a.request").write_bytes(b"[" * 60_000)


def folder(relay: Path) -> None:
    (relay / "d.request").mkdir()


def large(relay: Path) -> None:
    with (relay / "a.request").open("wb") as file:
        file.truncate(900 << 20)


def removed(relay: Path) -> None:
    (relay / "a.request").write_text('["c1", "prted"]')
    relay.rename(relay.with_name("elsewhere"))


def no_letters(relay: Path) -> None:
    (relay / "a.request").write_bytes(b'["c1", "\\ud800"]')


def a_number(relay: Path) -> None:
    (relay / "a.request").write_bytes(b"7")


def one_word(relay: Path) -> None:
    (relay / "a.request").write_bytes(b'["c1"]')


def pipe(relay: Path) -> None:
    os.mkfifo(relay / "a.request")


@pytest.mark.parametrize("leave", [linked, deep, folder, large, removed, no_letters, a_number, one_word, pipe])
def test_a_request_that_is_none_fails_the_launch(relay: Path, leave: Callable[[Path], None]) -> None:
    leave(relay)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LaunchFailed, match="a request for a daemon") as failed:
        asked(relay)
    str(failed.value).encode()  # every record and terminal can hold it
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_request_that_goes_while_it_is_read(relay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (relay / "a.request").write_text('["c1", "prted"]')

    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "a.request")

    monkeypatch.setattr(os, "unlink", gone)
    with pytest.raises(LaunchFailed, match="a request for a daemon"):
        asked(relay)


CLOSED = """
import os, sys
from pathlib import Path
from collbench.errors import EngineError, LaunchFailed
from tests.unit.test_launch_job import asked
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
relay = Path(sys.argv[1]) / "relay"
relay.mkdir(mode=0)
try:
    asked(relay)
except LaunchFailed as error:
    print(error)
"""


def test_a_relay_folder_that_is_closed() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        command = [sys.executable, "-c", CLOSED, place]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert "a request for a daemon cannot be read (" in done.stdout, done.stderr
    assert "Permission denied" in done.stdout


class Clock:
    """Time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def waited(patience: Timeouts, clock: Clock, seconds: float, written: int = 0) -> str | None:
    """What is said after so long, in passes of half a second."""
    for _ in range(int(seconds * 2)):
        clock.now += 0.5
        if (said := patience.ended(written)) is not None:
            return said
    return None


def test_a_record_is_progress_and_a_start_takes_longer() -> None:
    clock = Clock()
    patience = Timeouts(Limits(start=10.0, case=20.0, cases=3), clock)
    assert waited(patience, clock, 29) is None
    assert waited(patience, clock, 19, written=100) is None
    assert waited(patience, clock, 19, written=150) is None
    assert "no record for 20 s" in (waited(patience, clock, 2, written=150) or "")


def test_a_world_has_the_plans_limits_and_time_to_start_and_to_end() -> None:
    """Ranks end themselves at the time-out; a case may take its budget too, and a world as long as all its cases."""
    plan = msgspec.structs.replace(PLAN, timeout="7s", budget="2s").of_world()
    found = limits_of(plan, 3)
    assert found == Limits(start=7.0 + STARTING, case=2.0 + 7.0 + GRACE, cases=3)
    assert found.all == found.start + 3 * found.case
    assert limits_of(plan, 0).all == limits_of(plan, 1).all == found.start + found.case


def test_a_limit_is_met_only_by_what_is_longer() -> None:
    clock = Clock()
    patience = Timeouts(Limits(start=0.0, case=2.0, cases=1), clock)
    for _ in range(2):
        clock.now += 1.0
        assert patience.ended(5) is None, "nothing was written before: it counts from here"
    clock.now += 1.0
    assert patience.ended(5) == "it took longer than 2 s, the limit for 1 case"
    clock = Clock()
    patience = Timeouts(Limits(start=3.0, case=2.0, cases=9), clock)
    assert waited(patience, clock, 5) is None, "until something is written, for as long as a start and a case"
    assert waited(patience, clock, 1) == "no record for 5 s"


def test_what_becomes_less_is_no_progress() -> None:
    """A file that is written anew was as long before."""
    clock = Clock()
    patience = Timeouts(Limits(start=0.0, case=2.0, cases=9), clock)
    assert waited(patience, clock, 1, written=100) is None
    assert waited(patience, clock, 1, written=50) is None
    assert waited(patience, clock, 1.5, written=99) == "no record for 2 s"


def test_records_without_end_are_no_progress() -> None:
    clock = Clock()
    patience = Timeouts(Limits(start=10.0, case=20.0, cases=3), clock)
    said = next(text for n in range(1, 1000) if (text := waited(patience, clock, 1, written=n)) is not None)
    assert "took longer than 70 s, the limit for 3 cases" in said
    assert 69 < clock.now - 1000 < 72


def test_a_driver_that_was_stopped_has_not_waited() -> None:
    clock = Clock()
    patience = Timeouts(Limits(start=0.0, case=20.0, cases=1), clock)
    for _ in range(15):
        clock.now += 3600.0
        assert patience.ended(0) is None
    assert "no record" in (waited(patience, clock, 20 - 15 * LONGEST_PASS + 1) or "")


def test_what_is_written(tmp_path: Path) -> None:
    ask = written_to(tmp_path)
    assert ask() == 0
    (tmp_path / "records.jsonl").write_text("1234")
    assert ask() == 4
    (tmp_path / "manifest.json").write_text("12")
    (tmp_path / "other").write_text("123")
    assert ask() == 6
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").symlink_to("/proc/self/exe")
    assert ask() == 4 + len("/proc/self/exe"), "a link is not followed"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.launch.waiting.GRACE", 0.5)
    monkeypatch.setattr("collbench.launch.waiting.STARTING", 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_world_that_keeps_printing_is_ended(tmp_path: Path) -> None:
    heard = carried_out(made(tmp_path, "while :; do echo line; sleep 0.1; done", SHORT))
    assert heard.found == [(0, 8, "failed")]
    assert "no record for " in (heard.records[0].reason or "")


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_the_ranks_own_words_stand_in_the_reason(tmp_path: Path) -> None:
    words = "rank 0: no progress for 1 s in bcast 8 B"
    heard = carried_out(made(tmp_path, f'echo "collbench: {words}" >&2; sleep 60', SHORT))
    assert (heard.records[0].reason or "").endswith(f": {words.removeprefix('rank 0: ')}")


STOPPED = """
import sys
from pathlib import Path
from tests.unit.made_worlds import carried_out, made
from tests.unit.test_launch_job import SHORT
import collbench.launch.waiting
collbench.launch.waiting.GRACE = collbench.launch.waiting.STARTING = 0.5
heard = carried_out(made(Path(sys.argv[1]), sys.argv[2], SHORT))
print(heard.found, [record.notes for record in heard.records])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        "(sleep 8; kill -CONT $PPID) & kill -STOP $PPID; good",  # it ends while the driver is stopped
        "kill -STOP $PPID; sleep 8; kill -CONT $PPID; sleep 0.5; good",
    ],
)
def test_a_driver_that_was_stopped_records_no_false_failure(tmp_path: Path, world: str) -> None:
    """For longer than every limit."""
    command = [sys.executable, "-c", STOPPED, str(tmp_path), world]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.stdout == "[(0, 8, 'ok'), (0, 16, 'ok')] [(), ()]\n", done.stderr


class Answers(Docker):
    """An engine whose containers have these counters; without, they do not answer."""

    def __init__(self, counters: dict[str, str]) -> None:
        self._counters = counters

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], hear: OnLine) -> Execution:
        if container not in self._counters:
            raise EngineError(f"container {container} is paused")
        for line in self._counters[container].splitlines():
            hear(False, line)
        found = Execution(container, 0)
        found.finished.set()
        return found


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        ({"c0": "low 0\noom 0\noom_kill 0", "c1": "oom 2\noom_kill 1"}, "the kernel ended processes in c1 for lack of"),
        ({"c0": "under_oom 0\noom_kill 3", "c1": "oom_kill 1"}, "in c0, c1 for lack of memory"),
        ({"c0": "oom_kill 1"}, "in c0 for lack of memory"),
        ({"c0": "oom_kill 0", "c1": "cat: no such file"}, ""),
        ({}, ""),
    ],
)
def test_what_the_kernel_ended_for_lack_of_memory_is_named(counters: dict[str, str], said: str) -> None:
    found = killed_for_memory(Answers(counters), ("c0", "c1"))
    assert said in found
    assert bool(said) == bool(found)
