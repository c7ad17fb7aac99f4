"""Ranks that execute a program together: one outcome for all of them, and what their processes are told."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.errors import Interrupted
from collbench.run import worlds_of_programs
from collbench.run.child import ProgramFailed, ProgramSkipped, execute
from collbench.run.worlds_of_programs import Peers, WrongResult, _End

#: A process that ends by itself only much later.
WAITS = ("sleep", "60")

WATCH: Any = SimpleNamespace(stopped=None, beat=lambda doing: None)


def on_all(ranks: int, act: Callable[[int, Peers], Any]) -> list[Any]:
    """What `act` returned or raised on each rank."""
    hub, found = Hub(ranks, 5.0), [None] * ranks

    def body(rank: int) -> None:
        try:
            found[rank] = act(rank, Peers(FakeWorld(hub, rank), WATCH))
        except (ProgramFailed, ProgramSkipped, WrongResult, Interrupted) as error:
            found[rank] = error  # type: ignore[call-overload]

    run_ranks(hub, body, 5.0)
    return found


def failing(rank: int, errors: dict[int, Exception]) -> int:
    if rank in errors:
        raise errors[rank]
    return rank


def test_each_rank_has_its_own_result_where_all_succeed() -> None:
    assert on_all(3, lambda rank, peers: peers.agreed(lambda: 10 * rank)) == [0, 10, 20]


@pytest.mark.parametrize("error", [ProgramFailed("killed"), ProgramSkipped("no GPU"), WrongResult("ddp", 3)])
def test_what_one_rank_ends_with_all_end_with(error: Exception) -> None:
    found = on_all(3, lambda rank, peers: peers.agreed(lambda: failing(rank, {1: error})))
    assert [(type(one), str(one)) for one in found] == [(type(error), str(error))] * 3
    assert [getattr(one, "wrong", 0) for one in found] == [getattr(error, "wrong", 0)] * 3


def test_the_first_failure_is_the_reason_and_not_what_follows_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {"closed by peer": 2.0, "signal 9": 1.0}

    def act(rank: int, peers: Peers) -> Any:
        return peers.agreed(lambda: failing(rank, {0: ProgramFailed("closed by peer"), 2: ProgramFailed("signal 9")}))

    made = _End.__init__

    def at(self: _End, clock: float, error: Exception) -> None:
        made(self, clocks[str(error)], error)

    monkeypatch.setattr(_End, "__init__", at)
    assert [str(one) for one in on_all(3, act)] == ["signal 9"] * 3


def test_an_interruption_comes_before_what_it_brought_about() -> None:
    errors: dict[int, Exception] = {0: ProgramFailed("closed by peer"), 1: Interrupted("interrupted.")}
    found = on_all(2, lambda rank, peers: peers.agreed(lambda: failing(rank, errors)))
    assert [type(one) for one in found] == [Interrupted, Interrupted]


def test_outcomes_travel_between_processes() -> None:
    found = pickle.loads(pickle.dumps(_End(1.5, WrongResult("ddp", 3))))  # noqa: S301 - just made
    assert (found.clock, str(found.error), found.error.wrong) == (1.5, str(WrongResult("ddp", 3)), 3)
    assert str(pickle.loads(pickle.dumps(_End(1.5, ProgramFailed("x")))).error) == "x"  # noqa: S301


def test_processes_are_told_their_world_and_one_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    found = on_all(2, lambda rank, peers: peers.variables())
    assert [one["RANK"] for one in found] == ["0", "1"]
    assert {one["WORLD_SIZE"] for one in found} == {"2"}
    assert {one["MASTER_ADDR"] for one in found} == {"127.0.0.1"}
    (port,) = {one["MASTER_PORT"] for one in found}
    assert 1024 <= int(port) < 65536
    monkeypatch.setenv("MASTER_ADDR", "c0")
    assert {one["OMP_NUM_THREADS"] for one in found} == {"1"}
    assert {one["MASTER_ADDR"] for one in on_all(2, lambda rank, peers: peers.variables())} == {"c0"}


def test_rank_0_decides() -> None:
    assert on_all(2, lambda rank, peers: peers.decided(rank == 0)) == [True, True]


class Board:
    """Failures that ranks of one process tell each other."""

    def __init__(self, failed: set[int]) -> None:
        self._failed, self._acts = failed, 0

    def begin(self) -> None:
        self._acts += 1

    def announce(self) -> None:
        self._failed.add(self._acts)

    def announced(self) -> bool:
        return self._acts in self._failed


def test_what_waits_for_a_rank_that_has_failed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_of_programs, "EVERY", 0.01)
    hub, failed, found = Hub(2, 20.0), set[int](), ["", ""]

    def body(rank: int) -> None:
        ours = Peers(FakeWorld(hub, rank), WATCH, Board(failed))
        assert ours.agreed(lambda: rank) == rank  # acts before are forgotten
        try:
            ours.agreed(
                lambda: failing(rank, {0: ProgramFailed("signal 9")}) and execute(WAITS, 60.0, ours.listening(), "")
            )
        except ProgramFailed as error:
            found[rank] = str(error)

    began = time.monotonic()
    run_ranks(hub, body, 20.0)
    assert found == ["signal 9", "signal 9"]
    assert time.monotonic() - began < 10
