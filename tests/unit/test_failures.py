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
from unittest.mock import Mock

import pytest
from tests.processes import LIMIT, wait_for
from tests.unit.made_pairs import Pair

from collbench.errors import CollbenchError, LibraryError, RunWriteError
from collbench.run import failures
from collbench.run.failures import AgreedError, FirstReporter, StartLimit, Watchdog, abort_job, on_rank_0, raise_on_all


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


def ended_by(capfd: pytest.CaptureFixture[str], error: Exception, lost: bool = False, claims: bool = True) -> str:
    """The exit code with which a rank ends the job, and its message."""
    reporter: Any = SimpleNamespace(claim=lambda: claims)
    with pytest.raises(SystemExit) as left:
        abort_job(session(3, lost=lost), error, reporter, HELD)
    return f"{left.value.code}: {capfd.readouterr().err}"


ERRORS = (LibraryError("error 5."), ValueError("what"), ValueError(), LibraryError("first:\n  middle\n  cause.\n"),
          LibraryError("the one line\n\n"))  # fmt: skip


def test_messages_in_words(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
                           golden: Callable[[str, str], None]) -> None:  # fmt: skip
    """Of an error the first and the last line; of a lost rank, whatever the error was, that another is gone."""
    texts = [ended_by(capfd, error) for error in ERRORS]
    texts.append(ended_by(capfd, LibraryError("first\nlast."), lost=True))
    for kind, rank in (("timeout", 1), ("async_error", 2), ("failed", 1), ("interrupted", 0), ("terminated", 0)):
        _, steps = last_words(monkeypatch, kind, rank)
        texts += [f"{kind}: {step.removeprefix('said ')}\n" for step in steps if step.startswith("said ")]
    loop = Loop()
    monkeypatch.setattr(failures, "native_loop", lambda: loop)
    with StartLimit(90.0, "mpi"):
        texts.append(f"start: {loop.did[0][1]}")
    golden("failures.txt", "".join(texts))


def test_the_job_ends_with_the_exit_code_of_the_error(capfd: pytest.CaptureFixture[str],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Who sees another rank gone waits its turn; a traceback comes before the message where it is asked for."""
    naps: list[float] = []
    monkeypatch.setattr("collbench.run.failures.time", SimpleNamespace(sleep=naps.append))
    for error in ERRORS:
        code = LibraryError.exit_code if isinstance(error, LibraryError) else 1
        assert ended_by(capfd, error).startswith(f"aborted with {code}: collbench: rank 3: ")
    assert ended_by(capfd, ValueError("what"), claims=False) == "aborted with 1: ", "another rank has reported it"
    naps.clear()
    message = ended_by(capfd, OSError("no answer"), lost=True)
    assert message.startswith("aborted with 3: collbench: rank 3: ") and "(no answer)" in message
    assert naps == [failures.TURN, failures.PRINTED]
    for wanted in ("", "1"):
        monkeypatch.setenv("COLLBENCH_TRACEBACK", wanted)
        assert ("ValueError: what\ncollbench: rank 3" in ended_by(capfd, ValueError("what"))) == bool(wanted)


def noting(steps: list[str], claims: bool) -> tuple[Any, Any]:
    """What a rank reports with, and what it holds back: both note what is asked of them."""

    def note(step: str, answer: Any) -> Any:
        steps.append(step)
        return answer

    held = SimpleNamespace(rescue=lambda: note("rescued", " Rescued."), saved=lambda: " Saved.")
    return SimpleNamespace(claim=lambda: note("asked", claims)), held


@pytest.mark.parametrize("claims", [True, False])
def test_how_a_rank_ends_the_job(monkeypatch: pytest.MonkeyPatch, claims: bool) -> None:
    """What was held back comes first, from every rank; a launcher has time to read what any has printed.

    A library that does not end the job ends this rank.
    """
    steps: list[str] = []
    monkeypatch.setattr(failures, "say", lambda text: steps.append("said"))
    nap = SimpleNamespace(sleep=lambda seconds: steps.append(f"waited {seconds >= 0.1}"))
    monkeypatch.setattr("collbench.run.failures.time", nap)
    aborting = session()
    aborting.abort = lambda code: steps.append("aborted")
    with pytest.raises(SystemExit) as left:
        abort_job(aborting, LibraryError("error 5"), *noting(steps, claims))
    assert steps == ["rescued", "asked", *(["said"] if claims else []), "waited True", "aborted"]
    assert left.value.code == LibraryError.exit_code


def test_an_error_of_any_rank_and_of_rank_0s_work_is_raised_on_all() -> None:
    raise_on_all(session(0, None), None)
    with pytest.raises(AgreedError, match="theirs") as raised:
        raise_on_all(session(0, RunWriteError("theirs")), None)
    assert isinstance(raised.value.error, RunWriteError)
    with pytest.raises(AgreedError, match="mine"):
        raise_on_all(session(0, RunWriteError("theirs")), CollbenchError("mine"))
    for rank in (0, 1):
        on_rank_0(session(rank), work := Mock())
        assert work.call_count == 1 - rank
    for of_rank in (session(0), session(1, RunWriteError("full"))):
        with pytest.raises(AgreedError, match="full"):
            on_rank_0(of_rank, Mock(side_effect=RunWriteError("full")))


def test_the_first_rank_that_claims_reports_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch,
                                                                tmp_path: Path) -> None:  # fmt: skip
    """Where nothing can be shared every rank reports."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    first = FirstReporter(world_of())
    assert list(tmp_path.iterdir()) == []
    second = FirstReporter(world_of(1, f"/proc/self/fd/{first._file}"))
    assert [second.claim(), first.claim(), second.claim()] == [True, False, False]
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
    steps: list[str] = []
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(failures, "say", lambda text: steps.append(f"said {text}"))
    with pytest.raises(SystemExit) as left:
        failures.on_watchdog(rank, *noting(steps, claims), 90.0, lambda: steps.append("let go"))(kind, "bcast 8 B")
    return left.value.code, steps


#: What was held back comes first, so that nothing is lost; on a signal the message does, as a launcher kills its
#: ranks a moment after it was told to stop. Kind and rank: the exit code, and the steps of the rank that reports.
LAST_WORDS = {
    ("timeout", 1): (3, ["rescued", "asked", "said", "let go"]),
    ("async_error", 2): (3, ["rescued", "asked", "said", "let go"]),
    ("failed", 1): (1, ["rescued", "asked", "said", "let go"]), ("interrupted", 0): (130, ["asked", "said", "rescued"]),
    ("interrupted", 1): (130, ["rescued"]), ("terminated", 0): (130, ["asked", "said", "rescued"])
}  # fmt: skip


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize(("kind", "rank"), LAST_WORDS)
def test_last_words(monkeypatch: pytest.MonkeyPatch, kind: str, rank: int, claims: bool) -> None:
    left, steps = last_words(monkeypatch, kind, rank, claims)
    code, expected = LAST_WORDS[kind, rank]
    assert left == code
    assert [step.partition(" ")[0] if step.startswith("said") else step for step in steps] == [
        step for step in expected if claims or step != "said"
    ]  # fmt: skip


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


def test_a_message_is_one_whole_line_on_standard_error_even_where_the_interpreter_has_none(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures.say("rank 0: \u00e9")
    monkeypatch.setattr(sys, "__stderr__", None)
    failures.say("rank 0")
    assert tuple(capfd.readouterr()) == ("", "collbench: rank 0: \u00e9\ncollbench: rank 0\n")


# Before there is a world ---------------------------------------------------------------------------------------------


class Loop:
    """The compiled loop's limit."""

    def __init__(self) -> None:
        self.did: list[Any] = []

    def set_limit(self, seconds: float, text: str, code: int) -> None:
        self.did.append((seconds, text, code))

    def lift_limit(self) -> None:
        self.did.append("lifted")


def test_ranks_that_do_not_meet_are_ended_by_the_compiled_loop_or_else_by_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, did = Loop(), list[Any]()
    monkeypatch.setattr(failures, "native_loop", lambda: loop)
    with StartLimit(90.0, "mpi") as start:
        ((seconds, _, code),) = loop.did
        assert (seconds, code) == (90.0, 3)
        start.reached()
        assert loop.did[1:] == ["lifted"]
    assert loop.did[1:] == ["lifted", "lifted"]
    monkeypatch.setattr(failures, "native_loop", lambda: None)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *given, **how: did.append((given, how["exit"])))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: did.append("cancelled"))
    with StartLimit(90.0, "mpi"):
        assert did == [((90.0,), True)]
    assert did[1:] == ["cancelled"]


# The watchdog: nothing hangs, though each program here would sleep for an hour or for ever ---------------------------


PROGRAM = Path(__file__).with_name("watched.py")
LONG = "600"


#: What `watched.py` does, its time-out, more arguments, and the signal that it is sent once it is ready: its exit code,
#: and its lines.
WATCHED: list[tuple[str, int | None, int, list[str]]] = [
    *((f"{kind} 0.3", None, 3, ["timeout in the test"]) for kind in ("c", "sleeping")),
    *((f"{kind} {LONG}", signal.SIGTERM, 130, ["terminated in the test"]) for kind in ("c", "sleeping")),
    *((f"{kind} {LONG}", number, 130, ["interrupted in the test"])
      for kind in ("c", "sleeping") for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)),
    *((f"polite {LONG}", number, 0, [f"stopped by {number}"]) for number in (signal.SIGTERM, signal.SIGINT)),
    # Open MPI's mpirun kills 0.4 s after SIGTERM: by then the last words are said. Ctrl-C may take a batch longer.
    (f"deaf {LONG} 0.05 0.35", signal.SIGTERM, 130, ["alive after 0.05 s", "terminated in the test"]),
    (f"deaf {LONG} 0.5 2", signal.SIGINT, 130, ["alive after 0.5 s", "interrupted in the test"]),
]  # fmt: skip

#: An error that the library met behind its back: none at the first look; the second cannot be had; at the third there
#: is some, and the call itself never returns. A call that failed while others wait in theirs is said after half of the
#: time-out: those that wait would say no more than that they do. Who moves is left alone.
WATCHED_FOR_LONG: list[tuple[str, int | None, int, list[str]]] = [
    (f"async_error {LONG}", None, 3, ["async_error in the test: the library lost a rank"]),
    ("failed 2", None, 1, ["failed in the test: no memory"]),
    ("lost 2", None, 3, ["async_error in the test: no memory"]), (f"beating {LONG}", None, 0, []),
]  # fmt: skip


@pytest.mark.parametrize(("words", "number", "code", "lines"), [
    *WATCHED, *(pytest.param(*row, marks=pytest.mark.slow) for row in WATCHED_FOR_LONG),
])  # fmt: skip
def test_what_a_watched_program_ends_with(words: str, number: int | None, code: int, lines: list[str]) -> None:
    with subprocess.Popen([sys.executable, str(PROGRAM), *words.split()], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            if number is not None:
                process.send_signal(number)
            printed, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert (process.returncode, printed.splitlines()) == (code, lines)


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


Looks = tuple[list[float], list[str], Watchdog]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """A watchdog that looks all the time: how long it would have waited before each look, and the ends it found."""
    waits, ended = list[float](), list[str]()

    def looking(read: Any, write: Any, odd: Any, wait: float) -> Any:
        waits.append(wait)
        return select.select(read, write, odd, 0.01)

    monkeypatch.setattr("collbench.run.failures.select", SimpleNamespace(select=looking))
    return waits, ended, Watchdog(600.0, lambda kind, doing: ended.append(f"{kind} in {doing}"))


def test_others_have_some_time_to_come_out_of_a_call_and_no_end_follows_when_they_did(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, (waits, ended, watchdog) = [0.0], looks

    def look() -> None:
        looked = len(waits)
        wait_for(lambda: len(waits) > looked + 2)

    monkeypatch.setattr(failures, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with watchdog:
        for came_out in (True, False):
            watchdog.beat("the test")
            watchdog.failed("no memory.")
            clock[0] += failures.PATIENCE - 1
            look()
            assert not ended
            if came_out:
                watchdog.failed(None)
            clock[0] += 2
            look()
    assert ended and set(ended) == {"failed in the test: no memory"}


def test_after_a_signal_it_is_looked_often(looks: Looks) -> None:
    """Open MPI's mpirun kills 0.4 s after SIGTERM: a look in half a second would be too late."""
    waits, ended, watchdog = looks
    with watchdog:
        watchdog.beat("the test")
        wait_for(lambda: len(waits) > 2)
        assert set(waits) == {0.5}
        signal.raise_signal(signal.SIGTERM)
        wait_for(lambda: ended)
    assert (set(waits), waits[-1]) == ({0.5, 0.02}, 0.02)
    assert (watchdog.stopped, ended[0]) == (signal.SIGTERM, "terminated in the test")


def test_signals_and_files_are_given_back() -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    before, files = handlers(), sorted(Path("/proc/self/fd").iterdir())
    with Watchdog(60.0, lambda kind, doing: None):
        assert handlers() != before
    assert (handlers(), sorted(Path("/proc/self/fd").iterdir())) == (before, files)
    assert signal.set_wakeup_fd(-1) == -1
