"""How ranks leave: together with one error, or one that takes the others along; and who of them speaks."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from collbench.errors import CollbenchError, LibraryError, RunWriteError
from collbench.run import failures, one_message
from collbench.run.failures import AgreedError, abort_job, on_rank_0, raise_on_all
from collbench.run.one_message import FirstReporter


class World:
    """The control plane as one rank of two sees it; `heard` is what it hears of the other, or of rank 0."""

    size = 2

    def __init__(self, rank: int = 0, heard: Any = None) -> None:
        self.rank, self.heard = rank, heard

    def gather(self, value: Any) -> list[Any] | None:
        return [value, self.heard] if self.rank == 0 else None

    def bcast(self, value: Any) -> Any:
        return value if self.rank == 0 else self.heard


def session(rank: int = 0, heard: Any = None, lost: bool = False) -> Any:
    def abort(code: int) -> NoReturn:
        raise SystemExit(f"aborted with {code}")

    return SimpleNamespace(world=World(rank, heard), is_lost_rank=lambda error: lost, abort=abort)


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
    assert naps == [failures.TURN]
    assert said_of(capfd, ValueError("what"), claims=False) == "aborted with 1: ", "somebody has spoken"


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
    world = World()
    first = FirstReporter(world)
    assert list(tmp_path.iterdir()) == []
    path = f"/proc/self/fd/{first._file}"
    second = FirstReporter(World(1, path))
    assert [second.claim(), first.claim(), second.claim()] == [True, False, False]


def test_where_nothing_can_be_shared_everybody_speaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    ranks = [FirstReporter(World()), FirstReporter(World(1, str(tmp_path / "unknown")))]
    assert [rank.claim() for rank in ranks] == [True, True]


def test_the_shared_file_is_new_and_for_us_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What lies there already under that name, whoever put it there, is not taken."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("collbench.run.one_message.time", SimpleNamespace(monotonic_ns=lambda: 7))
    path = one_message._new_file()
    assert path is not None
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116
    assert one_message._new_file() is None
