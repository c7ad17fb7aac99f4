"""What ranks find together and tell each other: the control plane, one outcome for all, causes."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.made_measurements import Change, case, in_world, method, on_ranks, preparing
from tests.unit.made_pairs import Pair

from collbench import collectives
from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.bindings.spec import Operation, World, first_rank, first_value, gathered_once
from collbench.errors import Interrupted, LibraryError
from collbench.run import program
from collbench.run.child import ProgramFailed, ProgramSkipped, execute
from collbench.run.failures import Failure, Unwatched, cause
from collbench.run.measure import measure
from collbench.run.program import AloneWorld, Peers, WrongResult, _End
from collbench.timing.loop import Stage

#: What int64 holds besides its smallest number, whose opposite it does not hold.
WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(WHOLE, min_size=n, max_size=n), min_size=1, max_size=4)))
def test_extremes_are_those_of_each_number_over_the_ranks(by_rank: list[list[int]]) -> None:
    def body(world: World) -> tuple[list[int], list[int]]:
        lowest, highest = world.minmax(by_rank[world.rank])
        assert lowest.dtype == highest.dtype == np.int64
        return lowest.tolist(), highest.tolist()

    columns = list(zip(*by_rank, strict=True))
    assert in_world(len(by_rank), body) == [([min(c) for c in columns], [max(c) for c in columns])] * len(by_rank)


def test_totals_are_sums_over_the_ranks_and_leave_what_was_given() -> None:
    given = np.array([1, -2, 10**15])

    found = in_world(3, lambda world: world.total(given * (world.rank + 1)))
    assert [total.tolist() for total in found] == [[6, -12, 6 * 10**15]] * 3
    alone = AloneWorld()
    own = alone.total(given)
    own += 1
    assert given.tolist() == [1, -2, 10**15]
    assert [found.tolist() for found in alone.minmax([3, -4])] == [[3, -4], [3, -4]]
    assert alone.bcast_from("what", 0) == "what"


def test_any_rank_may_tell() -> None:
    assert in_world(3, lambda world: world.bcast_from(f"of {world.rank}", 2)) == ["of 2"] * 3
    assert in_world(3, lambda world: world.bcast(f"of {world.rank}")) == ["of 0"] * 3


@pytest.mark.parametrize(
    ("values", "first"),
    [((None, None, None), None), ((None, "b", "c"), 1), (("a", None, None), 0), ((None, None, 0), 2)],
)
def test_the_first_rank_with_a_value_tells_it(values: tuple[Any, ...], first: int | None) -> None:
    assert in_world(3, lambda world: first_rank(world, values[world.rank] is not None)) == [first] * 3
    value = None if first is None else values[first]
    assert in_world(3, lambda world: first_value(world, values[world.rank])) == [value] * 3


def test_nobody_tells_where_nobody_has_anything_to_say() -> None:
    pair: Any = Pair(lambda mine: [2])
    pair.bcast_from = None
    assert first_value(pair, None) is None


def test_what_ranks_have_in_common_is_sent_once() -> None:
    sent: list[Any] = []

    class Watched(FakeWorld):
        def gather(self, value: Any) -> list[Any] | None:
            sent.append(value)
            return super().gather(value)

    values = ("a", "b", "a", "a", "b")

    def body(world: Any) -> list[str] | None:
        world.__class__ = Watched
        return gathered_once(world, f"text of {values[world.rank]}")

    found, *others = in_world(5, body)
    assert found == [f"text of {value}" for value in values]
    assert found[0] is found[2] and found[1] is found[4], "equal ones are one object"
    assert others == [None] * 4
    assert sorted(map(str, sent[5:])) == ["None"] * 3 + ["text of a", "text of b"]
    assert all(len(digest) == 8 for digest in sent[:5])


# Ranks that execute a program together --------------------------------------------------------------------------------

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
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    found = on_all(2, lambda rank, peers: peers.variables())
    assert [(one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) for one in found] == [("0", "2"), ("1", "2")]
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
    monkeypatch.setattr(program, "EVERY", 0.01)
    hub, failed, found = Hub(2, 20.0), set[int](), ["", ""]

    def body(rank: int) -> None:
        ours = Peers(FakeWorld(hub, rank), WATCH, Board(failed))
        assert ours.agreed(lambda: rank) == rank  # acts before are forgotten
        try:
            ours.agreed(
                lambda: failing(rank, {0: ProgramFailed("signal 9")}) and execute(WAITS, 60.0, ours.listening(""))
            )
        except ProgramFailed as error:
            found[rank] = str(error)

    began = time.monotonic()
    run_ranks(hub, body, 20.0)
    assert found == ["signal 9", "signal 9"]
    assert time.monotonic() - began < 10


# Why a case cannot be measured ----------------------------------------------------------------------------------------

OWN = Failure("failed", "no memory", 1, inside=True)
ECHO = Failure("failed", "a rank is gone", 0, inside=True, lost=True)
PLAIN = Failure("skipped", "has no such form")


class Told(Unwatched):
    """A watch that remembers of which failures it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[str | None, bool]] = []

    def failed(self, reason: str | None, lost: bool = False) -> None:
        self.said.append((reason, lost))


@pytest.mark.parametrize(
    ("failures", "found"),
    [((None, None), None), ((ECHO, OWN), OWN), ((OWN, ECHO), OWN), ((ECHO, None), ECHO), ((None, OWN), OWN),
     ((PLAIN, OWN), PLAIN)],
)  # fmt: skip
def test_all_ranks_agree_on_a_cause(failures: tuple[Failure | None, ...], found: Failure | None) -> None:
    def agree(session: Any) -> Failure | None:
        return cause(session, failures[session.world.rank], Unwatched())

    assert on_ranks(2, agree) == [found, found]


def test_a_rank_is_named_where_another_would_not_have_failed() -> None:
    assert (OWN.reason.split(":")[0], PLAIN.reason) == ("rank 1", PLAIN.text)


@pytest.mark.parametrize("failure", [OWN, ECHO, PLAIN, None])
def test_while_the_others_are_waited_for_the_watch_knows_why(failure: Failure | None) -> None:
    watch, inside = Told(), [] if failure in (PLAIN, None) else [failure]
    on_ranks(1, lambda session: cause(session, failure, watch))
    assert watch.said == [*((one.text, one.lost) for one in inside if one), (None, False)]


@pytest.mark.parametrize(("failure", "over"), [(OWN, [0, 1]), (PLAIN, []), (None, [])])
def test_all_ranks_start_over_when_they_have_come_out_of_the_call(failure: Failure | None, over: list[int]) -> None:
    again: list[int] = []

    def agree(session: Any) -> None:
        rank = session.world.rank
        session.reset = lambda: again.append(rank)
        cause(session, failure if rank == 1 else None, Unwatched())

    on_ranks(2, agree)
    assert sorted(again) == over


def failing_cause(where: str) -> Change:
    """The library of rank 1 fails while a case is prepared, or in its first call."""

    def change(rank: int, operation: Operation) -> Operation:
        def fail() -> None:
            if rank == 1:
                raise LibraryError("error 1")

        if where == "prepared":
            fail()
        stages = (Stage(fail),) if where == "called" else operation.call.stages
        return replace(operation, call=replace(operation.call, stages=stages, completion=Stage(lambda: None)))

    return preparing(change)


@pytest.mark.parametrize("where", ["prepared", "called"])
def test_a_call_that_fails_on_one_rank_is_watched(where: str) -> None:
    watches = (Told(), Told())

    def body(session: Any) -> Any:
        failing_cause(where)(session)
        session.explained = lambda error: f"{error}; out of memory"
        return measure(case(), collectives.get("bcast"), session, method(), watches[session.world.rank])[0]

    assert {record.reason for record in on_ranks(2, body)} == {"rank 1: error 1; out of memory"}
    assert set(watches[0].said) == {(None, False)}
    assert watches[1].said[-2:] == [("error 1; out of memory", False), (None, False)]
