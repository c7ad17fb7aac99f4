"""Why a case cannot be measured: the rank that failed for a reason of its own, not the one that only saw it gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.made_measurements import Change, case, method, on_ranks, preparing

from collbench import collectives
from collbench.bindings.spec import Operation
from collbench.errors import LibraryError
from collbench.run.failures import Failure, Unwatched, cause
from collbench.run.measure import measure
from collbench.timing.call import Stage

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
    assert (OWN.reason, PLAIN.reason) == ("rank 1: no memory", "has no such form")


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


def failing(where: str) -> Change:
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
        failing(where)(session)
        session.explained = lambda error: f"{error}; out of memory"
        return measure(case(), collectives.get("bcast"), session, method(), watches[session.world.rank])[0]

    assert {record.reason for record in on_ranks(2, body)} == {"rank 1: error 1; out of memory"}
    assert set(watches[0].said) == {(None, False)}
    assert watches[1].said[-2:] == [("error 1; out of memory", False), (None, False)]
