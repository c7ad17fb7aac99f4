"""Ranks that have ended while their launcher runs: real processes, and time that a test lets pass."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tests.processes import wait_for
from tests.unit.made_worlds import PLAN, Heard, carried_out, made

from collbench.launch import job
from collbench.launch.job import ENDING, LOOK_SELDOM, DeadRanks, HostProcess, RankStates, children, ranks_below
from collbench.launch.waiting import Log

PROGRAM = ("/opt/program", "run", "all")

#: Its own command ends as the program does, as that of a real launcher. It never waits for a child.
LAUNCHER = """
import os, signal, sys, time

def rank(script):
    number = os.fork()
    if not number:
        os.execvp("sh", ["sh", "-c", script + "; exit", "run", "all"])
    return number

{body}
time.sleep(3600)
"""

#: A rank at work, in a command of its own.
WORKS = "rank('sleep 3600')"

#: Ended ranks are waited for, so that nothing is seen of how they ended.
REAPS = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
Launched = Callable[..., HostProcess]


@pytest.fixture
def launched() -> Iterator[Launched]:
    """`launched(*lines)`: a launcher that does this, then nothing."""
    begun: list[HostProcess] = []

    def begin(*lines: str) -> HostProcess:
        body = LAUNCHER.format(body="\n".join(lines))
        begun.append(job.execute((sys.executable, "-c", body, *PROGRAM[1:]), {}, Log()))
        return begun[-1]

    yield begin
    for process in begun:
        process.end()


class World:
    """A launcher that is looked at twice a second of a clock that a test lets pass."""

    def __init__(self, *started: Any, ranks: int = 2, launcher: tuple[str, ...] = ("bin/mpirun", *PROGRAM),
                 written: int = 0) -> None:  # fmt: skip
        self.started, self.now, self.written = started, 1000.0, written
        self.dead = DeadRanks(launcher, PROGRAM, ranks, lambda: self.now)

    def reason(self, seconds: float, each: Callable[[], None] = lambda: None) -> str | None:
        """What is said within so long."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            each()
            if (reason := self.dead.ended(self.started, self.written)) is not None:
                return reason
        return None


def seen(launcher: HostProcess, running: int, ended: int = 0) -> RankStates:
    """So many ranks, once they are there."""

    def there() -> bool:
        now = ranks_below([launcher.pid], PROGRAM)
        return (len(now.running), len(now.ended)) == (running, ended)

    wait_for(there)
    return ranks_below([launcher.pid], PROGRAM)


def assert_named(reason: str | None, *names: str) -> None:
    """What ended the wait, and who did not end for how long."""
    assert reason is not None and all(name in reason for name in (*names, f" {ENDING:g} s ")), reason


# What is seen --------------------------------------------------------------------------------------------------------


def test_ranks_are_seen_below_daemons_but_not_their_own_children(launched: Launched) -> None:
    """A child that was just forked is none: it has its launcher's command, and may become a daemon."""
    rank = "os.fork() or os.execvp('sh', ['sh', '-c', 'sleep 3600; exit', 'run', 'all'])"
    daemon = f"import os, time; {rank}; time.sleep(3600)"
    launcher = launched(
        WORKS, "os.fork() or time.sleep(3600)",
        f"os.fork() or os.execvp(sys.executable, [sys.executable, '-c', {daemon!r}, 'a daemon'])"
    )  # fmt: skip
    assert seen(launcher, running=2).ended == ()
    ranks = seen(launcher, running=2).running
    wait_for(lambda: all(list(children(number)) for number in ranks))
    assert ranks_below([launcher.pid], PROGRAM).running == ranks, "without what they sleep in"


def test_how_children_ended_that_nobody_waited_for(launched: Launched) -> None:
    launcher = launched("rank('exit 14')", "rank('kill -9 $$')", "rank('true')")
    assert sorted(seen(launcher, running=0, ended=3).ended) == [0, 9, 14 << 8]
    of_launcher = sorted((child.ended, child.status) for child in children(launcher.pid))
    assert of_launcher == [(True, 0), (True, 9), (True, 14 << 8)]
    done = job.execute(("true",), {}, Log())
    wait_for(lambda: done.code is not None)
    assert list(children(done.pid)) == [], "what is gone has none"
    assert ranks_below([done.pid], PROGRAM) == RankStates(frozenset(), ())


def test_a_process_whose_first_thread_has_ended_still_runs(launched: Launched) -> None:
    """It is shown as one that has ended (proc(5))."""
    thread = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(3600,)).start(); "
        "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)"
    )
    launcher = launched(f"os.fork() or os.execvp(sys.executable, [sys.executable, '-c', {thread!r}])")

    def shown() -> list[str]:
        return [Path(f"/proc/{one.number}/stat").read_text() for one in children(launcher.pid)]

    wait_for(lambda: any(") Z " in line for line in shown()))
    assert [child.ended for child in children(launcher.pid)] == [False]


# What ends the wait --------------------------------------------------------------------------------------------------


#: What a launcher does, ranks that are seen then (running, ended), and what else is known of its world; for how long
#: nothing is said, and what is said within how many seconds more.
LAUNCHERS: list[tuple[tuple[str, ...], tuple[int, int], dict[str, Any], float, float, tuple[str, ...]]] = [
    # A rank that died ends the wait, but its launcher has time to end after it has been looked at.
    *(((WORKS, f"rank('{ends}')"), (1, 1), {"written": written}, (LOOK_SELDOM if written else 0.0) + ENDING, 0.5,
       ("a rank", how, "mpirun"))
      for ends, how in (("exit 14", "exit code 14"), ("kill -6 $$", "signal 6 (Aborted)")) for written in (0, 100)),
    # What ended the last one may be the launcher itself, so that is not named.
    (("rank('exit 14')", "rank('kill -15 $$')"), (0, 2), {}, 0, 11, ("all ranks", "mpirun")),
    # Hydra waits for its ranks when the last one has ended; until then those whose run is over are zombies.
    *(((WORKS, f"rank('sleep 0.2; exit {code}')"), (1, 1), {"written": 100}, 600, 0, ()) for code in (0, 1, 2)),
    # It has not started its ranks, or it is one itself, that nothing launches.
    (("os.fork() or os.execvp('sleep', ['sleep', '3600'])",), (0, 0), {}, 600, 0, ()),
    (("rank('exit 14')",), (0, 1), {"launcher": PROGRAM}, 600, 0, ()),
]  # fmt: skip


@pytest.mark.parametrize("row", LAUNCHERS)
def test_ranks_that_have_ended(launched: Launched, row: tuple[Any, ...]) -> None:
    lines, ranks, known, quiet, within, names = row
    launcher = launched(*lines)
    seen(launcher, *ranks)
    world = World(launcher, **known)
    assert world.reason(quiet) is None
    if names:
        assert_named(world.reason(within), *names)


@pytest.mark.parametrize("running", [1, 0])
def test_a_rank_that_is_gone_before_the_ranks_have_met(launched: Launched, running: int) -> None:
    launcher = launched(REAPS, *[WORKS] * (running + 1))
    world, ranks = World(launcher), sorted(seen(launcher, running + 1).running)
    assert world.reason(60) is None, "ranks that take long to start are there"
    os.kill(ranks[0], signal.SIGKILL)
    seen(launcher, running)
    assert_named(world.reason(11), *(("a rank", "had met") if running else ("all ranks",)), "mpirun")


def test_a_launcher_that_outlives_ranks_that_ended_well(launched: Launched) -> None:
    """But not where one of the ranks still writes, or some were never in sight: they may be at work."""
    launcher = launched(REAPS, WORKS, WORKS)
    world, more, ranks = World(launcher, written=100), World(launcher, ranks=3, written=100), seen(launcher, 2).running
    assert world.reason(20) is more.reason(20) is None
    for left, rank in enumerate(sorted(ranks)):
        os.kill(rank, signal.SIGKILL)
        seen(launcher, 1 - left)
        if not left:
            assert world.reason(600) is more.reason(600) is None
    assert_named(world.reason(16), "all ranks", "mpirun")
    assert more.reason(600) is None


@dataclass
class Command:
    """A command beside the first one."""

    code: int | None
    pid: int | None = None

    @property
    def how(self) -> str:
        return f"ended with exit code {self.code}"


def test_a_command_beside_the_first_one_that_failed() -> None:
    """A daemon, or a rank of its own where no launcher starts them: then nothing else is looked at."""
    beside = World(Command(None), Command(None), Command(3), launcher=PROGRAM)
    assert_named(beside.reason(11), "rank 0", "exit code 3", "the others")
    assert World(Command(None), Command(1), written=100).reason(60) is None, "a case has failed"
    assert World(Command(None), Command(0), Command(-1)).reason(60) is None, "ended, and lost by the engine"
    assert World(Command(None)).reason(600) is None, "on another machine"
    assert_named(World(Command(None), Command(1)).reason(11), "exit code 1", "mpirun")


# What does not -------------------------------------------------------------------------------------------------------


def test_while_a_rank_writes_it_is_at_work_and_a_driver_that_was_stopped_has_not_waited(launched: Launched) -> None:
    launcher = launched(WORKS, "rank('exit 14')")
    seen(launcher, running=1, ended=1)
    world = World(launcher)

    def write() -> None:
        world.written += world.now % 5 == 0

    assert world.reason(120, write) is None
    assert world.reason(11) is not None
    launcher = launched(WORKS, "rank('exit 14')")
    seen(launcher, running=1, ended=1)
    world = World(launcher)
    for _ in range(10):
        world.now += 3600
        assert world.dead.ended(world.started, 0) is None
    assert world.reason(2) is not None


def test_while_records_come_no_process_is_looked_at(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    world, look = World(launched(WORKS)), Mock(return_value=RankStates(frozenset(), ()))

    def write() -> None:
        world.written += 1

    monkeypatch.setattr(job, "ranks_below", look)
    assert world.reason(60, write) is None and not look.called
    assert world.reason(60) is None
    assert look.call_count == 60 / LOOK_SELDOM


def test_a_launcher_that_notices_in_time(launched: Launched) -> None:
    launcher = launched("signal.signal(signal.SIGUSR1, lambda *_: os.wait())", WORKS, "rank('exit 14')")
    seen(launcher, running=1, ended=1)
    world = World(launcher, written=100)
    assert world.reason(LOOK_SELDOM + ENDING - 1) is None
    os.kill(launcher.pid, signal.SIGUSR1)
    seen(launcher, running=1)
    assert world.reason(600) is None


# In a launch ---------------------------------------------------------------------------------------------------------


def in_a_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Heard:
    """Of a launcher that does this and would then wait for an hour."""
    for name in ("ENDING", "SELDOM"):
        monkeypatch.setattr(job, name, 0.2)
    return carried_out(made(tmp_path, f"{body} & exec sleep 3600",
                            msgspec.structs.replace(PLAN, timeout="1h", launches=1)))  # fmt: skip


def test_a_launch_whose_ranks_have_died_is_a_failed_record_with_the_librarys_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = '(echo "[c0:1] mca: chatter"; echo "*** An error occurred in MPI_Init"; exit 14) >&2'
    heard = in_a_launch(tmp_path, monkeypatch, dies)
    (record,) = heard.records
    assert record.status == "failed" and heard.said == [f"failed: {record.reason}"]
    reason, _, library = (record.reason or "").partition(": ")
    assert all(name in reason for name in ("all ranks", "mpirun", "0.2 s"))
    assert library == "An error occurred in MPI_Init"


def test_a_launcher_that_stays_when_all_is_measured_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = in_a_launch(tmp_path, monkeypatch, "good; sh -c 'kill -9 $$'")
    assert [record.status for record in heard.records] == ["ok", "ok"]
    (note,) = heard.said
    assert all(name in str(note) for name in ("every case", "all ranks", "mpirun", "0.2 s"))
