"""How ranks leave: together with one error, or one that takes the others along; and who of them speaks."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.processes import LIMIT, wait_for
from tests.unit.made_pairs import Pair

from collbench.errors import CollbenchError, LibraryError, RunWriteError
from collbench.run import failures
from collbench.run.failures import (
    AgreedError,
    FirstReporter,
    StartLimit,
    Unwatched,
    Watchdog,
    abort_job,
    on_rank_0,
    on_watchdog,
    raise_on_all,
)


def world_of(rank: int = 0, heard: Any = None) -> Pair:
    """The control plane as one rank of two sees it; `heard` is what it hears of the other, or of rank 0."""

    def other(mine: Any) -> Any:
        if isinstance(mine, list):  # which rank has something to say
            return [2 if heard is None else 1 - rank]
        return heard

    return Pair(other, rank)


def session(rank: int = 0, heard: Any = None, lost: bool = False) -> Any:
    def abort(code: int) -> NoReturn:
        raise SystemExit(f"aborted with {code}")

    return SimpleNamespace(world=world_of(rank, heard), is_lost_rank=lambda error: lost, abort=abort)


HELD: Any = SimpleNamespace(rescue=lambda: " Safe in DIR.")


def said_of(capfd: pytest.CaptureFixture[str], error: Exception, lost: bool = False, claims: bool = True) -> str:
    """What a rank says that ends the job, and the exit code with which it does."""
    voice: Any = SimpleNamespace(claim=lambda: claims)
    with pytest.raises(SystemExit) as left:
        abort_job(session(3, lost=lost), error, voice, HELD)
    return f"{left.value.code}: {capfd.readouterr().err}"


ERRORS = (
    LibraryError("error 5."), ValueError("what"), ValueError(), LibraryError("first:\n  middle\n  cause.\n"),
    LibraryError("the one line\n\n"),
)  # fmt: skip


def test_messages_in_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    """Of an error the first and the last line; of a lost rank, whatever the error was, that another is gone."""
    said = [said_of(capfd, error) for error in ERRORS]
    said.append(said_of(capfd, LibraryError("first\nlast."), lost=True))
    for kind, rank in (("timeout", 1), ("async_error", 2), ("failed", 1), ("interrupted", 0), ("terminated", 0)):
        _, did = last_words(monkeypatch, kind, rank)
        said += [f"{kind}: {what.removeprefix('said ')}\n" for what in did if what.startswith("said ")]
    loop = Loop()
    monkeypatch.setattr(failures, "native_loop", lambda: loop)
    with StartLimit(90.0, "mpi"):
        said.append(f"start: {loop.did[0][1]}")
    golden("failures.txt", "".join(said))


@pytest.mark.parametrize(("error", "lost", "code"), [
    *((error, False, LibraryError.exit_code if isinstance(error, LibraryError) else 1) for error in ERRORS),
    (LibraryError("first\nlast."), True, 3),
])  # fmt: skip
def test_the_job_ends_with_the_exit_code_of_the_error(
    capfd: pytest.CaptureFixture[str], error: Exception, lost: bool, code: int
) -> None:
    assert said_of(capfd, error, lost).startswith(f"aborted with {code}: collbench: rank 3: ")


def test_who_sees_another_rank_gone_waits_its_turn(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("collbench.run.failures.time", SimpleNamespace(sleep=naps.append))
    assert "(no answer)" in said_of(capfd, OSError("no answer"), lost=True)
    assert naps == [failures.TURN, failures.PRINTED]
    assert said_of(capfd, ValueError("what"), claims=False) == "aborted with 1: ", "somebody has spoken"


@pytest.mark.parametrize("asked", ["", "1"])
def test_a_traceback_is_printed_where_it_is_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("COLLBENCH_TRACEBACK", asked)
    assert ("ValueError: what\ncollbench: rank 3" in said_of(capfd, ValueError("what"))) == bool(asked)


@pytest.mark.parametrize("claims", [True, False])
def test_how_a_rank_ends_the_job(monkeypatch: pytest.MonkeyPatch, claims: bool) -> None:
    """What was held back comes first, from every rank; a launcher has time to read what any has printed.

    A library that does not end the job ends this rank.
    """
    did: list[str] = []

    def tell(what: str, answer: Any) -> Any:
        did.append(what)
        return answer

    monkeypatch.setattr(failures, "say", lambda text: did.append("said"))
    nap = SimpleNamespace(sleep=lambda seconds: did.append(f"waited {seconds >= 0.1}"))
    monkeypatch.setattr("collbench.run.failures.time", nap)
    aborting: Any = SimpleNamespace(
        world=world_of(), is_lost_rank=lambda error: False, abort=lambda code: did.append("aborted")
    )
    voice: Any = SimpleNamespace(claim=lambda: tell("asked", claims))
    held: Any = SimpleNamespace(rescue=lambda: tell("rescued", ""))
    with pytest.raises(SystemExit) as left:
        abort_job(aborting, LibraryError("error 5"), voice, held)
    assert did == ["rescued", "asked", *(["said"] if claims else []), "waited True", "aborted"]
    assert left.value.code == LibraryError.exit_code


def test_an_error_of_any_rank_is_raised_on_all() -> None:
    raise_on_all(session(0, None), None)
    with pytest.raises(AgreedError, match="theirs") as raised:
        raise_on_all(session(0, RunWriteError("theirs")), None)
    assert isinstance(raised.value.error, RunWriteError)
    with pytest.raises(AgreedError, match="mine"):
        raise_on_all(session(0, RunWriteError("theirs")), CollbenchError("mine"))


def test_what_rank_0_cannot_do_ends_all() -> None:
    def fail() -> None:
        raise RunWriteError("full")

    did: list[str] = []
    on_rank_0(session(0), lambda: did.append("done"))
    on_rank_0(session(1), lambda: did.append("not on rank 1"))
    assert did == ["done"]
    with pytest.raises(AgreedError, match="full"):
        on_rank_0(session(0), fail)
    with pytest.raises(AgreedError, match="full"):
        on_rank_0(session(1, RunWriteError("full")), fail)


def test_the_first_who_asks_speaks_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    world = world_of()
    first = FirstReporter(world)
    assert list(tmp_path.iterdir()) == []
    path = f"/proc/self/fd/{first._file}"
    second = FirstReporter(world_of(1, path))
    assert [second.claim(), first.claim(), second.claim()] == [True, False, False]


def test_where_nothing_can_be_shared_everybody_speaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    ranks = [FirstReporter(world_of()), FirstReporter(world_of(1, str(tmp_path / "unknown")))]
    assert [rank.claim() for rank in ranks] == [True, True]


def test_the_shared_file_is_new_and_for_us_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What lies there already under that name, whoever put it there, is not taken."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("collbench.run.failures.time", SimpleNamespace(monotonic_ns=lambda: 7))
    file = FirstReporter(world_of())._file
    assert file is not None and stat.S_IMODE(os.fstat(file).st_mode) == 0o600
    (tmp_path / f"collbench-{os.getpid()}-7").touch()
    assert FirstReporter(world_of())._file is None


# What a watchdog says ------------------------------------------------------------------------------------------------


def last_words(monkeypatch: pytest.MonkeyPatch, kind: str, rank: int = 0, claims: bool = True) -> tuple[Any, list[str]]:
    """With which code the process is left, and what happened before, in order; what it says begins with `said`."""
    did: list[str] = []

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    def tell(what: str, answer: Any) -> Any:
        did.append(what)
        return answer

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(failures, "say", lambda text: did.append(f"said {text}"))
    voice: Any = SimpleNamespace(claim=lambda: tell("asked", claims))
    held: Any = SimpleNamespace(rescue=lambda: tell("rescued", " Rescued."), saved=lambda: " Saved.")
    with pytest.raises(SystemExit) as left:
        on_watchdog(rank, voice, held, 90.0, lambda: did.append("let go"))(kind, "bcast 8 B")
    return left.value.code, did


#: What was held back comes first, so that nothing is lost; on a signal the message does, as a launcher kills its
#: ranks a moment after it was told to stop.
@pytest.mark.parametrize(
    ("kind", "rank", "claims", "code", "did"),
    [
        ("timeout", 1, True, 3, ["rescued", "asked", "said", "let go"]),
        ("timeout", 1, False, 3, ["rescued", "asked", "let go"]),
        ("async_error", 2, True, 3, ["rescued", "asked", "said", "let go"]),
        ("async_error", 2, False, 3, ["rescued", "asked", "let go"]),
        ("failed", 1, True, 1, ["rescued", "asked", "said", "let go"]),
        ("failed", 1, False, 1, ["rescued", "asked", "let go"]),
        ("interrupted", 0, True, 130, ["asked", "said", "rescued"]),
        ("interrupted", 0, False, 130, ["asked", "rescued"]),
        ("interrupted", 1, True, 130, ["rescued"]),
        ("terminated", 0, True, 130, ["asked", "said", "rescued"]),
    ],
)
def test_last_words(
    monkeypatch: pytest.MonkeyPatch, kind: str, rank: int, claims: bool, code: int, did: list[str]
) -> None:
    left, done = last_words(monkeypatch, kind, rank, claims)
    assert (left, [what.partition(" ")[0] if what.startswith("said") else what for what in done]) == (code, did)


def test_the_library_is_waited_for_until_it_has_let_go_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    daemons, waits = list[bool](), list[float | None]()
    join = threading.Thread.join

    def waiting(thread: threading.Thread, timeout: float | None = None) -> None:
        daemons.append(thread.daemon)
        waits.append(timeout)
        join(thread)

    monkeypatch.setattr(threading.Thread, "join", waiting)
    last_words(monkeypatch, "timeout")
    assert (daemons, waits) == ([True], [failures.LETTING_GO])


def test_a_message_is_one_whole_line_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    failures.say("rank 0: \u00e9")
    assert capfd.readouterr().err == "collbench: rank 0: \u00e9\n"


def test_where_the_interpreter_has_no_standard_error_the_process_may(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stderr__", None)
    failures.say("rank 0")
    assert tuple(capfd.readouterr()) == ("", "collbench: rank 0\n")


# Before there is a world ---------------------------------------------------------------------------------------------


class Loop:
    """The compiled loop's limit."""

    def __init__(self) -> None:
        self.did: list[Any] = []

    def set_limit(self, seconds: float, text: str, code: int) -> None:
        self.did.append((seconds, text, code))

    def lift_limit(self) -> None:
        self.did.append("lifted")


def test_ranks_that_do_not_meet_are_ended_by_the_compiled_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    monkeypatch.setattr(failures, "native_loop", lambda: loop)
    with StartLimit(90.0, "mpi") as start:
        ((seconds, _, code),) = loop.did
        assert (seconds, code) == (90.0, 3)
        start.reached()
        assert loop.did[1:] == ["lifted"]
    assert loop.did[1:] == ["lifted", "lifted"]


def test_without_it_by_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    monkeypatch.setattr(failures, "native_loop", lambda: None)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *given, **how: did.append((given, how["exit"])))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: did.append("cancelled"))
    with StartLimit(90.0, "mpi"):
        assert did == [((90.0,), True)]
    assert did[1:] == ["cancelled"]


# The watchdog: nothing hangs, though each program here would sleep for an hour or for ever ---------------------------


PROGRAM = Path(__file__).with_name("watched.py")
LONG = "600"


def watched(kind: str, timeout: str, number: int | None = None, *more: str) -> tuple[int, list[str]]:
    """Exit code and lines of `watched.py`, which is sent the signal once it is ready."""
    command = [sys.executable, str(PROGRAM), kind, timeout, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
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
        assert launcher.stdout is not None and launcher.stdout.readline() == "ready\n"
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
