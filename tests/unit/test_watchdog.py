"""Nothing hangs: each program here would sleep for an hour or for ever."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.processes import LIMIT, wait_for

from collbench.run import failures
from collbench.run.failures import FirstReporter, Unwatched, Watchdog, on_watchdog

PROGRAM = Path(__file__).with_name("watched.py")
LONG = "600"


def watched(kind: str, timeout: str, number: int | None = None, *more: str) -> tuple[int, list[str]]:
    """Exit code and lines of `watched.py`, which is sent the signal once it is ready."""
    command = [sys.executable, str(PROGRAM), kind, timeout, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if number is not None:
                process.send_signal(number)
            said, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    return process.returncode, said.splitlines()


@pytest.mark.parametrize("kind", ["c", "sleeping"])
def test_a_time_out(kind: str) -> None:
    assert watched(kind, "0.3") == (3, ["timeout in the test"])


@pytest.mark.parametrize(
    ("number", "word"),
    [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted"), (signal.SIGHUP, "interrupted"),
     (signal.SIGQUIT, "interrupted")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["c", "sleeping"])
def test_told_to_stop_while_the_main_thread_cannot(kind: str, number: int, word: str) -> None:
    assert watched(kind, LONG, number) == (130, [f"{word} in the test"])


def test_a_closed_terminal_does_not_end_what_nohup_started() -> None:
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Watchdog(60.0, lambda kind, doing: None) as watched_by:
            signal.raise_signal(signal.SIGHUP)
            assert watched_by.stopped is None
    finally:
        signal.signal(signal.SIGHUP, ignored)


def test_the_launcher_is_killed_while_the_main_thread_is_in_a_call() -> None:
    script = f'"{sys.executable}" "{PROGRAM}" c {LONG} & wait'
    with subprocess.Popen(("sh", "-c", script), stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.kill()
        assert launcher.stdout.read() == "orphaned in the test\n"


@pytest.mark.parametrize(
    ("number", "alive", "ended", "word"),
    [(signal.SIGTERM, "0.05", "0.35", "terminated"), (signal.SIGINT, "0.5", "2", "interrupted")],
)
def test_who_does_not_stop_has_a_moment_left(number: int, alive: str, ended: str, word: str) -> None:
    """Open MPI's mpirun kills 0.4 s after SIGTERM: by then the last words are said. Ctrl-C may take a batch longer."""
    assert watched("deaf", LONG, number, alive, ended) == (130, [f"alive after {alive} s", f"{word} in the test"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_it_can(number: int) -> None:
    assert watched("polite", LONG, number) == (0, [f"stopped by {number}"])


@pytest.mark.slow
def test_async_error_that_the_library_met_behind_its_back() -> None:
    """None at the first look; the second cannot be had; at the third there is some. The call itself never returns."""
    assert watched("async_error", LONG) == (3, ["async_error in the test: the library lost a rank"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "code", "word"), [("failed", 1, "failed"), ("lost", 3, "async_error")])
def test_a_call_that_failed_while_others_wait_in_theirs(kind: str, code: int, word: str) -> None:
    """It is said after half of the time-out: those that wait would say no more than that they do."""
    assert watched(kind, "2") == (code, [f"{word} in the test: no memory"])


def test_others_have_some_time_to_come_out_of_a_call_and_no_end_follows_when_they_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, looks, ended = [0.0], list[float](), list[str]()

    def looking(read: Any, write: Any, odd: Any, wait: float) -> Any:
        looks.append(clock[0])
        return select.select(read, write, odd, 0.01)

    def look() -> None:
        looked = len(looks)
        wait_for(lambda: len(looks) > looked + 2)

    monkeypatch.setattr(failures, "select", SimpleNamespace(select=looking))
    monkeypatch.setattr(failures, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with Watchdog(600.0, lambda kind, doing: ended.append(f"{kind} in {doing}")) as watched_by:
        for came_out in (True, False):
            watched_by.beat("the test")
            watched_by.failed("no memory.")
            clock[0] += failures.PATIENCE - 1
            look()
            assert not ended
            if came_out:
                watched_by.failed(None)
            clock[0] += 2
            look()
    assert ended and set(ended) == {"failed in the test: no memory"}


def test_async_error_ends_the_process_once_the_library_let_go(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Last words of every rank: what was held back is rescued, one rank speaks, and the library lets go."""
    did: list[str] = []

    class Held:
        def rescue(self) -> str:
            did.append("rescued")
            return self.saved()

        def saved(self) -> str:
            return " Safe in DIR."

    class First(FirstReporter):
        def __init__(self) -> None:
            self.asked = 0

        def claim(self) -> bool:
            self.asked += 1
            return self.asked == 1

    def leave(code: int) -> NoReturn:
        did.append(f"left with {code}")
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", leave)
    voice = First()
    speak = on_watchdog(2, voice, Held(), 300.0, lambda: did.append("broken off"))
    for _ in range(2):
        with pytest.raises(SystemExit):
            speak("async_error", "allreduce 8 B on nccl: timing: NCCL: remote error")
    assert did == ["rescued", "broken off", "left with 3"] * 2
    said = capfd.readouterr().err
    assert said.count("collbench: ") == 1
    assert said.startswith("collbench: rank 2: allreduce 8 B on nccl: timing: NCCL: remote error. ")
    assert said.endswith(" Safe in DIR.\n")


def test_on_a_signal_the_message_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher kills its ranks a moment after it was told to stop; what was held back may be long to print."""
    did: list[str] = []

    class Held:
        def rescue(self) -> str:
            did.append("rescued")
            return ""

        def saved(self) -> str:
            return " Safe in DIR."

    class First(FirstReporter):
        def __init__(self) -> None:
            pass

        def claim(self) -> bool:
            return True

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr("collbench.run.failures.say", did.append)
    with pytest.raises(SystemExit, match="130"):
        on_watchdog(0, First(), Held(), 300.0)("terminated", "allreduce")
    assert did == ["ended by SIGTERM (a rank was lost, or the job was stopped) in allreduce. Safe in DIR.", "rescued"]


def test_after_a_signal_it_is_looked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI's mpirun kills 0.4 s after SIGTERM: a look in half a second would be too late."""
    naps, ended = list[float](), list[str]()

    def looking(read: Any, write: Any, odd: Any, wait: float) -> Any:
        naps.append(wait)
        return select.select(read, write, odd, 0.01)

    monkeypatch.setattr("collbench.run.failures.select", SimpleNamespace(select=looking))
    with Watchdog(600.0, lambda kind, doing: ended.append(f"{kind} in {doing}")) as watched_by:
        watched_by.beat("the test")
        wait_for(lambda: len(naps) > 2)
        assert set(naps) == {0.5}
        signal.raise_signal(signal.SIGTERM)
        wait_for(lambda: ended)
    assert (set(naps), naps[-1]) == ({0.5, 0.02}, 0.02)
    assert (watched_by.stopped, ended[0]) == (signal.SIGTERM, "terminated in the test")


@pytest.mark.slow
def test_who_moves_is_left_alone() -> None:
    assert watched("beating", LONG) == (0, [])


def test_signals_and_files_are_given_back() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    before = sorted(Path("/proc/self/fd").iterdir())
    with Watchdog(60.0, lambda kind, doing: None):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != handlers
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_unwatched_is_a_watch_that_sees_nothing() -> None:
    watch = Unwatched()
    watch.beat("anything")
    watch.failed("whatever")
    assert watch.stopped is None
