"""Which changes are told together, and which changes of the environment with them."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.unit.made_runs import made_case

from collbench.analysis.change_points import Level
from collbench.analysis.environment import side_of
from collbench.analysis.estimate import Estimate
from collbench.analysis.history import (
    CellSeries,
    Change,
    Renewal,
    RunTime,
    TimedRun,
    events,
    renewals,
)
from collbench.schema.record import Work


def changed(
    size: int, run: int, between: tuple[int, int] | None = None, ratio: float = 1.1, machine: str = "a", lacks: int = 0
) -> Change:
    """A change of one cell of 30 runs; the `lacks` runs before it have no time."""
    kept = [number for number in range(30) if not run - lacks <= number < run]
    points = tuple(RunTime(number, Estimate(1e-5, None, 1)) for number in kept)
    series = CellSeries(made_case(size=size), machine, Work(amount=size), points, ())
    at = kept.index(run)
    levels = Level(0, at), Level(at, len(kept), 0.01)
    return Change(series, *levels, run, between or (run, run), Estimate(ratio, None, 3))


def timed(number: int, **facts: str) -> TimedRun:
    return TimedRun(str(number), datetime(2026, 1, 1 + number, tzinfo=UTC), "a", {}, {side_of(made_case()): facts})


def test_a_fact_that_changes_now_and_then_is_told_and_one_that_always_does_is_not() -> None:
    runs = [timed(number, kernel=str(number // 6), host=str(number % 2), allocation=str(number // 10))
            for number in range(30)]  # fmt: skip
    assert [(one.run, one.facts) for one in renewals(runs)] == [
        (run, {"kernel": f"{run // 6 - 1} -> {run // 6}"}) for run in (6, 12, 18, 24)
    ]


def sizes_by_run(found: list[Change]) -> list[tuple[int, list[int]]]:
    return [(event.run, [one.series.case["size"] for one in event.changes]) for event in events(found, ())]


def test_changes_that_may_have_begun_with_the_same_run_are_told_with_it() -> None:
    exact = [changed(size, 12) for size in (8, 16)]
    assert sizes_by_run([*exact, changed(32, 13, (11, 14)), changed(64, 10, (9, 12))]) == [(12, [8, 16, 32, 64])]
    assert sizes_by_run([*exact, changed(32, 13, (13, 14))]) == [(13, [32]), (12, [8, 16])]
    assert sizes_by_run([*exact, changed(32, 20, (5, 25))]) == [(20, [32]), (12, [8, 16])]  # too far for one cause


def test_directions_and_machines_are_not_mixed() -> None:
    found = events([changed(8, 12), changed(16, 12, ratio=0.9), changed(8, 12, machine="b")], ())
    assert [(event.slower, len(event.changes)) for event in found] == [(True, 1), (True, 1), (False, 1)]


def facts_of(change: Change, run: int) -> dict[int, dict[str, str]]:
    """Those of the one event, where a newer library came with a run."""
    (event,) = events([change], [Renewal(run, "a", side_of(made_case()), {"library": "1 -> 2"})])
    return event.facts


def test_what_changed_in_the_same_run_and_what_changed_nearby() -> None:
    change = changed(8, 12, (10, 14))
    newer = {"library": "1 -> 2"}
    assert facts_of(change, 12) == {12: newer}
    assert facts_of(change, 13) == {13: newer}
    assert facts_of(change, 15) == {}
    assert facts_of(changed(8, 12, machine="b"), 12) == {}


def test_what_changed_while_a_cell_was_not_measured_counts_as_of_the_same_run() -> None:
    change = changed(8, 12, lacks=3)
    assert facts_of(change, 10) == {12: {"library": "1 -> 2"}}
    (event,) = events([change], ())
    assert (event.before, event.run) == (8, 12)
