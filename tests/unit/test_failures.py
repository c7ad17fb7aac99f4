"""How ranks leave: together with one error, or one that takes the others along; and who of them speaks."""

from __future__ import annotations

import faulthandler
import os
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.unit.made_pairs import Pair

from collbench.errors import CollbenchError, LibraryError, RunWriteError
from collbench.run import failures
from collbench.run.failures import (
    AgreedError,
    FirstReporter,
    StartLimit,
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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LibraryError("error 5."), f"aborted with {LibraryError.exit_code}: collbench: rank 3: error 5."),
        (ValueError("what"), "aborted with 1: collbench: rank 3: ValueError: what."),
        (ValueError(), "aborted with 1: collbench: rank 3: ValueError: ValueError."),
        (LibraryError("first:\n  middle\n  cause.\n"), "rank 3: first: ... cause."),
        (LibraryError("the one line\n\n"), "rank 3: the one line."),
    ],
)
def test_the_one_that_meets_an_error_says_its_first_and_its_last_line(
    capfd: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    assert f"{said} The job ends here. Safe in DIR.\n" in said_of(capfd, error)


def test_who_sees_another_rank_gone_waits_its_turn(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("collbench.run.failures.time", SimpleNamespace(sleep=naps.append))
    assert "3: collbench: rank 3: another rank is gone (no answer). " in said_of(capfd, OSError("no answer"), lost=True)
    assert naps == [failures.TURN, failures.PRINTED]
    assert said_of(capfd, ValueError("what"), claims=False) == "aborted with 1: ", "somebody has spoken"


def test_what_mpi_says_of_a_lost_rank_ends_the_job_as_lost(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever error it was: the exit code is that of a lost rank, and the reason stands in brackets."""
    said = said_of(capfd, LibraryError("first\nlast."), lost=True)
    assert (
        said
        == "aborted with 3: collbench: rank 3: another rank is gone (first ... last). The job ends here. Safe in DIR.\n"
    )


@pytest.mark.parametrize("asked", ["", "1"])
def test_a_traceback_is_printed_where_it_is_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("COLLBENCH_TRACEBACK", asked)
    assert ("ValueError: what\ncollbench: rank 3" in said_of(capfd, ValueError("what"))) == bool(asked)


def test_what_was_held_back_is_printed_before_the_message(capfd: pytest.CaptureFixture[str]) -> None:
    """And by every rank, whoever speaks."""
    did: list[str] = []

    def tell(what: str, answer: Any) -> Any:
        did.append(what)
        return answer

    held: Any = SimpleNamespace(rescue=lambda: tell("rescued", ""))
    voice: Any = SimpleNamespace(claim=lambda: tell("asked", False))
    with pytest.raises(SystemExit):
        abort_job(session(), ValueError("what"), voice, held)
    assert (did, capfd.readouterr().err) == (["rescued", "asked"], "")


@pytest.mark.parametrize("claims", [True, False])
def test_a_launcher_has_time_to_read_what_any_rank_has_printed(monkeypatch: pytest.MonkeyPatch, claims: bool) -> None:
    did: list[str] = []
    monkeypatch.setattr(failures, "say", lambda text: did.append("said"))
    nap = SimpleNamespace(sleep=lambda seconds: did.append(f"waited {seconds >= 0.1}"))
    monkeypatch.setattr("collbench.run.failures.time", nap)
    aborting: Any = SimpleNamespace(
        world=world_of(), is_lost_rank=lambda error: False, abort=lambda code: did.append("aborted")
    )
    voice: Any = SimpleNamespace(claim=lambda: claims)
    with pytest.raises(SystemExit):
        abort_job(aborting, LibraryError("error 5"), voice, HELD)
    assert did == [*(["said"] if claims else []), "waited True", "aborted"]


def test_a_library_that_does_not_end_the_job_ends_this_rank() -> None:
    quiet: Any = SimpleNamespace(world=world_of(), is_lost_rank=lambda error: False, abort=lambda code: None)
    voice: Any = SimpleNamespace(claim=lambda: False)
    with pytest.raises(SystemExit) as left:
        abort_job(quiet, LibraryError("error 5"), voice, HELD)
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
    assert file is not None
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
    (tmp_path / f"collbench-{os.getpid()}-7").touch()
    assert FirstReporter(world_of())._file is None


# What a watchdog says ------------------------------------------------------------------------------------------------


def last_words(
    monkeypatch: pytest.MonkeyPatch, kind: str, rank: int = 0, claims: bool = True, abort_call: Any = lambda: None
) -> tuple[Any, list[str]]:
    """With which code the process is left, and what happened before, in order."""
    did: list[str] = []

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    def tell(what: str, answer: Any) -> Any:
        did.append(what)
        return answer

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(failures, "say", did.append)
    voice: Any = SimpleNamespace(claim=lambda: tell("asked", claims))
    held: Any = SimpleNamespace(rescue=lambda: tell("rescued", " Rescued."), saved=lambda: " Saved.")
    with pytest.raises(SystemExit) as left:
        on_watchdog(rank, voice, held, 90.0, abort_call)(kind, "bcast 8 B")
    return left.value.code, did


STUCK = (
    "rank 1: no progress for 90 s in bcast 8 B: a rank hangs, or one batch takes longer (the limit is -T, or timeout "
    "in a plan). Rescued."
)


@pytest.mark.parametrize(
    ("kind", "rank", "claims", "code", "did"),
    [
        ("timeout", 1, True, 3, ["rescued", "asked", STUCK]),
        ("timeout", 1, False, 3, ["rescued", "asked"]),
        ("async_error", 2, True, 3, ["rescued", "asked",
         "rank 2: bcast 8 B. Another rank may be gone; the job ends here. Rescued."]),
        ("async_error", 2, False, 3, ["rescued", "asked"]),
        ("failed", 1, True, 1, ["rescued", "asked",
         "rank 1: bcast 8 B. The other ranks wait in this call; the job ends here. Rescued."]),
        ("failed", 1, False, 1, ["rescued", "asked"]),
        ("interrupted", 0, True, 130, ["asked", "interrupted in bcast 8 B. Saved.", "rescued"]),
        ("interrupted", 0, False, 130, ["asked", "rescued"]),
        ("interrupted", 1, True, 130, ["rescued"]),
        ("terminated", 0, True, 130,
         ["asked", "ended by SIGTERM (a rank was lost, or the job was stopped) in bcast 8 B. Saved.", "rescued"]),
    ],
)  # fmt: skip
def test_last_words(
    monkeypatch: pytest.MonkeyPatch, kind: str, rank: int, claims: bool, code: int, did: list[str]
) -> None:
    assert last_words(monkeypatch, kind, rank, claims) == (code, did)


@pytest.mark.parametrize(
    ("kind", "lets_go"), [("timeout", True), ("async_error", True), ("failed", True), ("terminated", False)]
)
def test_the_library_is_told_to_let_go_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, kind: str, lets_go: bool
) -> None:
    """Until it has, but no longer than it is allowed; a signal leaves no time for that."""
    told, waits = [], list[float | None]()
    join = threading.Thread.join

    def waiting(thread: threading.Thread, timeout: float | None = None) -> None:
        waits.append(timeout)
        join(thread)

    monkeypatch.setattr(threading.Thread, "join", waiting)
    last_words(monkeypatch, kind, abort_call=lambda: told.append(threading.current_thread().daemon))
    assert (told, waits) == (([True], [failures.LETTING_GO]) if lets_go else ([], []))


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
    text = (
        "collbench: backend mpi: the ranks did not meet within 90 s (the limit is -T, or timeout in a plan): "
        "one never started, or left early.\n"
    )
    with StartLimit(90.0, "mpi") as start:
        assert loop.did == [(90.0, text, 3)]
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
