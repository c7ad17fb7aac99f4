"""Histories: change points, what is told together, the latest run, and the command."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.conftest import Collbench
from tests.unit.made_history import FIRST, night, steps, write_history
from tests.unit.made_program_runs import launches_of, program_case
from tests.unit.made_runs import (
    Entry,
    experiment,
    host,
    library,
    made_case,
    made_failure,
    made_record,
    write_launches,
    write_run,
)

from collbench.analysis import history as history_module
from collbench.analysis.change_points import (
    FEWEST,
    LEAST,
    Correlation,
    Level,
    Trace,
    find,
    matter,
    may_begin,
    outside,
    splits,
    spread_of,
    statistics,
    widening,
)
from collbench.analysis.environment import side_of
from collbench.analysis.estimate import Estimate
from collbench.analysis.history import CellSeries, Change, Renewal, RunTime, TimedRun, events, renewals
from collbench.analysis.runs import Observed, observe
from collbench.cli.terminal import amount
from collbench.schema.record import ResultCheck, Work

MARGIN = 0.02
Values = NDArray[np.float64]


def named(values: Values, margin: float = MARGIN) -> list[tuple[int, ...]]:
    """Of each cell of [runs, cells] the runs with which its level changed."""
    runs, cells = values.shape
    traces = [Trace(values[:, cell], np.arange(runs)) for cell in range(cells)]
    found, _ = find(traces, spread_of(margin))
    return [tuple(level.start for level in matter(values[:, cell], levels, margin)[1:])
            for cell, levels in enumerate(found)]  # fmt: skip


def noise(seed: int, runs: int, cells: int, spread: float = 0.01) -> Values:
    return np.random.default_rng(seed).normal(0, spread, (runs, cells))


@pytest.mark.parametrize(("runs", "spread"), [(12, 0.01), (30, 0.05)])
def test_a_page_without_a_change_names_one_in_at_most_a_few_per_cent(runs: int, spread: float) -> None:
    """Of 60 pages of 20 cells; 5 % are 3, and more than 8 would occur once in a hundred and fifty."""
    alarms = sum(any(named(noise(seed, runs, 20, spread))) for seed in range(60))
    assert alarms <= 8


def test_a_step_is_found_where_it_is_in_its_cell_alone() -> None:
    values = noise(1, 40, 10)
    values[28:, 3] += np.log(1.1)
    assert [at for cell, at in enumerate(named(values)) if cell != 3] == [()] * 9
    assert named(values)[3] == (28,)


def test_a_level_that_returns_is_found_at_both_ends() -> None:
    """A single split over everything would leave both levels on one side."""
    values = noise(2, 60, 10)
    values[30:36, 0] += np.log(1.1)
    assert named(values)[0] == (30, 36)


def test_three_runs_are_a_change_and_one_or_two_are_none() -> None:
    for last, expected in ((1, ()), (2, ()), (3, (27,))):
        values = noise(3, 30, 10)
        values[30 - last :, 0] += np.log(1.5)
        assert named(values)[0] == expected


def test_one_slow_run_of_all_cells_is_no_change_and_hides_none() -> None:
    values = noise(4, 40, 10)
    values[12] += np.log(2)
    values[25:, 5] += np.log(1.1)
    assert named(values) == [()] * 5 + [(25,)] + [()] * 4


def test_steps_within_the_margin_are_not_told_but_their_sum_is() -> None:
    values = noise(5, 60, 3, 0.001)
    values[30:, 0] += np.log(1.01)
    for start in (15, 30, 45):
        values[start:, 1] += np.log(1.015)
    within, creeping, _ = named(values)
    assert within == ()
    assert len(creeping) in (1, 2)
    assert named(values, margin=0.005)[0] == (30,)


def test_times_without_any_spread() -> None:
    """Equal times, and the steps of a clock: a change is found, and nothing else."""
    values = np.zeros((20, 2))
    values[12:, 1] = np.log(1.05)
    assert named(values) == [(), (12,)]


def test_fewer_runs_than_an_order_can_be_rare_in_are_not_tested() -> None:
    values = np.zeros((FEWEST - 1, 1))
    values[4:] = 1
    assert named(values) == [()]
    assert named(np.zeros((0, 1))) == [()]


def test_cells_with_other_runs_are_tested_together() -> None:
    draw = np.random.default_rng(6)
    every, some = np.arange(40), np.arange(1, 40, 2)
    stepped = draw.normal(0, 0.01, 20) + np.log(1.2) * (some > 20)
    found = find([Trace(draw.normal(0, 0.01, 40), every), Trace(stepped, some)], spread_of(MARGIN))[0]
    assert [len(levels) for levels in found] == [1, 2]
    assert found[1][1].start == 10


def autoregressive(seed: int, runs: int, cells: int, r: float) -> Values:
    """Each run keeps the share `r` of how far the run before was off; standard deviation 1."""
    values = noise(seed, runs, cells, 1.0)
    for run in range(1, runs):
        values[run] = r * values[run - 1] + (1 - r * r) ** 0.5 * values[run]
    return values


def of_neighbours(values: Values) -> Correlation:
    return find([Trace(column, np.arange(len(values))) for column in values.T], 0.002)[1]


@pytest.mark.parametrize(("runs", "cells", "r", "pages"), [(33, 1, 0.6, 60), (60, 1, 0.6, 60), (33, 8, 0.6, 25),
                                                           (33, 8, 0.3, 25)])  # fmt: skip
def test_waves_of_a_state_that_all_cells_share_are_no_changes(runs: int, cells: int, r: float, pages: int) -> None:
    """At most 5 % of pages; more than 7 of 60, or 4 of 25, would occur once in fifty."""
    alarms = sum(any(named(0.03 * autoregressive(seed, runs, 1, r) + noise(1000 + seed, runs, cells)))
                 for seed in range(pages))  # fmt: skip
    assert alarms <= (7 if pages == 60 else 4)


def test_a_correlation_is_as_uncertain_as_the_series_are_alike() -> None:
    """Of cells with a memory of their own the limit is close to the estimate; one state for all is one series."""
    own = [of_neighbours(autoregressive(seed, 40, 10, 0.6)) for seed in range(8)]
    assert {one.dependence for one in own} == {"alike"}
    assert 0.35 < np.median([one.estimate for one in own]) < 0.7
    assert np.median([one.limit - one.estimate for one in own]) < 0.04
    state = [of_neighbours(np.repeat(autoregressive(seed, 40, 1, 0.6), 10, axis=1)) for seed in range(8)]
    assert np.median([one.limit - one.estimate for one in state]) > 0.06


def test_independent_runs_are_not_alike_and_few_runs_do_not_tell() -> None:
    """In one page of twenty they are, by chance."""
    many = Counter(of_neighbours(noise(seed, 33, 10)).dependence for seed in range(20))
    assert many["none"] >= 16 and not many["unknown"]
    few = Counter(of_neighbours(noise(seed, 10, 1)).dependence for seed in range(40))
    assert few["unknown"] >= 10 and few["alike"] <= 6


def test_a_change_is_no_correlation() -> None:
    values = noise(3, 33, 4, 0.01)
    values[16:] += np.log(1.2)
    assert of_neighbours(values).limit < 0.4


def test_splits_are_widened_as_the_variance_of_autoregression_is() -> None:
    """By its covariance matrix: r to the power of the distance in time."""
    n, r = 12, 0.5
    covariance = r ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    start, at, stop = splits(n)
    for one, a, b, c in zip(widening(n, r), start, at, stop, strict=True):
        weights = np.zeros(n)
        weights[a:b], weights[b:c] = 1 / (b - a), -1 / (c - b)
        assert one == pytest.approx(np.sqrt(weights @ covariance @ weights / (weights @ weights) / (1 - r)), rel=1e-4)
    assert widening(n, 0.0) == pytest.approx(1.0)


def test_a_change_in_the_middle_is_seen_although_nights_are_outliers_at_times() -> None:
    """7 % of values are half as long again; the change widens no spread that outliers are measured by."""
    seen = 0
    for seed in range(12):
        values = noise(seed, 33, 8)
        values += np.log(1.49) * (np.random.default_rng(100 + seed).random((33, 8)) < 0.07)
        values[16:, 0] += np.log(1.1)
        seen += any(abs(at - 16) <= 3 for at in named(values)[0])
    assert seen >= 10


def test_a_change_may_have_begun_where_its_level_fits_nearly_as_well() -> None:
    values = noise(7, 40, 1, 0.02)[:, 0]
    values[20:] += np.log(1.1)
    before, after = matter(values, [Level(0, 18), Level(18, 40, 0.001)], MARGIN)
    assert after.p == 0.001 and before.stop == after.start
    first, last = may_begin(values, before, after, MARGIN)
    assert first <= after.start <= last and first <= 20 <= last


def test_splits_leave_enough_values_on_both_sides_of_intervals_of_all_lengths() -> None:
    start, at, stop = splits(50)
    assert (at - start >= LEAST).all() and (stop - at >= LEAST).all()
    assert set(at.tolist()) == set(range(LEAST, 50 - LEAST + 1))
    assert start.min() == 0 and stop.max() == 50
    lengths = set((stop - start).tolist())
    assert {50, 25} <= lengths and min(lengths) < 2 * 2 * LEAST


def test_the_statistic_does_not_depend_on_unit_or_sign() -> None:
    values = np.random.default_rng(8).normal(0, 1, 21)
    values -= np.median(values)
    orders = np.argsort(np.random.default_rng(9).random((5, 21)), axis=1)
    first, _ = statistics(values.astype(np.float32)[orders], 0.0)
    other, _ = statistics((-3 * values).astype(np.float32)[orders], 0.0)
    np.testing.assert_allclose(first, other, rtol=1e-3)


# Which changes are told together, and which changes of the environment with them --------------------------------------


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


# What the latest run of a history shows and three runs have not confirmed ---------------------------------------------

SMALL, MIDDLE, LARGE = (made_case(size=size) for size in (1024, 4096, 16384))
QUIET = steps((1e-5, 20))
JUMP = steps((1e-5, 19), (1.01e-4, 1))


@pytest.fixture
def history(here: Collbench) -> Collbench:
    """`history(*arguments)`: the command in this process."""
    return lambda *arguments: here("history", *arguments)


def document(history: Collbench, *arguments: object) -> Any:
    """What the command says for programs."""
    return json.loads(history(*arguments, "--style", "json").out)


def test_the_jump_of_the_latest_run_is_told_everywhere(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET, MIDDLE: JUMP, LARGE: QUIET})
    page = tmp_path / "page.html"
    found = history(path, "-o", page)
    assert [line for line in found.out.splitlines() if line.startswith(night(19)) and "10.1x" in line and "4K" in line]
    shown = document(history, path)
    assert shown["answer"] in found.out and shown["answer"] in page.read_text()
    assert (shown["events"], len(shown["cells"])) == ([], 3)
    (latest,) = shown["latest"]
    assert (latest["run"], latest["of"]) == (19, 3)
    assert [cell["name"] for cell in latest["cells"]] == ["allreduce sum float32, 4K"]
    assert latest["cells"][0]["ratio"] == pytest.approx(10.1, rel=0.02)


def outside_cells(history: Collbench, *arguments: object) -> list[list[tuple[str, float]]]:
    """Of each latest run the cells outside of their level, with their time over it."""
    latest = document(history, *arguments)["latest"]
    return [[(cell["name"], round(cell["ratio"], 1)) for cell in run["cells"]] for run in latest]


def test_it_is_no_change_and_fails_the_check_that_looks_for_it(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: JUMP})
    assert history(path, "--fail-on", "different").code == 0
    for kinds in ("outside", "slower,outside", "outside,faster"):
        found = history(path, "--fail-on", kinds)
        assert found.code == 1 and kinds in found.err
    assert history(path, "--since", night(19), "--fail-on", "outside").code == 1
    assert outside_cells(history, path, "--since", "2027-01-01") == []
    unknown = history(path, "--fail-on", "outside,wrong")
    assert (unknown.code, unknown.out) == (2, "") and "wrong" in unknown.err


@pytest.mark.parametrize(
    ("times", "code"),
    [(QUIET, 0), (steps((1e-5, 28), (2e-5, 2)), 1), (steps((1e-5, 29), (5e-6, 1)), 1),
     (steps((1e-5, 17), (2e-5, 3)), 0)],  # a change, which `slower` fails on
)  # fmt: skip
def test_two_nights_of_twice_the_time_fail_on_outside(
    history: Collbench, tmp_path: Path, times: list[float], code: int
) -> None:
    path = write_history(tmp_path / "n", {SMALL: times, LARGE: [1e-5] * len(times)}, noise=0.01)
    assert history(path, "--fail-on", "outside").code == code


@pytest.mark.parametrize(
    ("times", "told"),
    [(QUIET, False), (JUMP, True), (steps((1e-5, 18), (1.5e-5, 2)), True),  # a second night is told as the first
     (steps((1e-5, 17), (1.5e-5, 3)), False),  # a change
     ([*JUMP, 1e-5], False), (steps((1e-5, 7), (1e-4, 1)), True), (steps((1e-5, 6), (1e-4, 1)), False),
     ([1e-5, 1e-5, 1e-4, *QUIET[:16], 1.05e-4], False),  # as far as once before
     (steps((1e-5, 10), (2e-5, 9), (1e-5, 1)), True)],  # its level is the one now
)  # fmt: skip
def test_what_is_told(history: Collbench, tmp_path: Path, times: list[float], told: bool) -> None:
    path = write_history(tmp_path / "n", {SMALL: times, LARGE: QUIET[: len(times)]})
    assert bool(outside_cells(history, path)) == told


def test_the_cell_farthest_from_its_level_is_the_first(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: [*QUIET[:19], 2e-5], MIDDLE: JUMP, LARGE: QUIET})
    (cells,) = outside_cells(history, path)
    assert [name for name, _ in cells] == ["allreduce sum float32, 4K", "allreduce sum float32, 1K"]


def test_a_cell_that_the_latest_run_lacks_or_failed_is_not_told(history: Collbench, tmp_path: Path) -> None:
    gone = write_history(tmp_path / "gone", {SMALL: [*QUIET, 1e-5], MIDDLE: JUMP, LARGE: [*QUIET, 1e-5]})
    assert outside_cells(history, gone) == []
    failed = write_history(tmp_path / "failed", {SMALL: [*QUIET, 1e-5], MIDDLE: [*JUMP, "died"]})
    assert outside_cells(history, failed) == []


def test_each_machine_has_its_latest_run(history: Collbench, tmp_path: Path) -> None:
    """Two of them in turns: the jump is in the last run of the first one, which is not the last of all."""
    times = [1e-4 if number == 38 else 1e-5 for number in range(40)]
    turns = write_history(tmp_path / "n", {SMALL: times}, lambda number: {
        "hosts": (host(cpu="Xeon" if number % 2 else "EPYC 7003"),)})  # fmt: skip
    (latest,) = document(history, turns)["latest"]
    assert (latest["run"], latest["of"], len(latest["cells"])) == (38, 1, 1)


def named_latest(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> bool:
    """Whether a page of these logarithms [runs, cells], without a change, tells its latest run."""
    runs, cells = values.shape
    traces = [Trace(values[:, cell], np.arange(runs)) for cell in range(cells)]
    return bool(outside(traces, [(Level(0, runs),)] * cells, 0.02))


@pytest.mark.parametrize("runs", [8, 12, 30])
def test_few_pages_of_alike_runs_tell_their_latest(runs: int) -> None:
    """At most 5 % of them, whether noise is normal or has far outliers; of 400, more than 34 would hardly be chance."""
    draw = np.random.default_rng(1)
    shape = (runs, 10)
    assert sum(named_latest(draw.normal(0, 0.05, shape)) for _ in range(400)) <= 34
    assert sum(named_latest(0.02 * draw.standard_t(2, shape)) for _ in range(400)) <= 34


def test_runs_with_few_of_the_cells_are_no_statistic_of_all() -> None:
    """One cell has runs of its own, and an outlier in one of them, which hides no jump of another cell."""
    draw = np.random.default_rng(2)
    alone, others = draw.normal(0, 0.01, 30), draw.normal(0, 0.01, (3, 10))
    alone[5], others[0, -1] = 5.0, 1.0
    traces = [Trace(alone, np.arange(30)), *(Trace(own, np.arange(20, 30)) for own in others)]
    assert set(outside(traces, [(Level(0, len(one.values)),) for one in traces], 0.02)) == {1}


def test_the_size_of_a_page_is_told_as_that_of_a_report(history: Collbench, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = history(write_history(tmp_path / "n", {SMALL: QUIET[:8]}), "-o", page)
    assert found.err == f"collbench: {page}: {amount(page.stat().st_size)}\n"
    assert (amount(26_500), amount(412_000)) == ("27 kB", "0.4 MB")


# `collbench history` on made-up nights --------------------------------------------------------------------------------

STEP = steps((1e-5, 12), (1.2e-5, 8))


def newer(first: int) -> Any:
    """From this night on a newer library."""
    return lambda number: {"libraries": (library(version="5.0.8" if number < first else "5.0.9"),)}


def test_what_changed_with_one_run_is_one_event_with_the_library_that_changed(
    history: Collbench, tmp_path: Path
) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET, MIDDLE: STEP, LARGE: STEP}, newer(12), launches=7)
    found = document(history, path)
    (event,) = found["events"]
    assert (event["run"], event["before"], event["verdict"]) == (12, 11, "slower")
    assert event["cells"] == ["allreduce sum float32, 4K", "allreduce sum float32, 16K"]
    assert event["facts"] == {"12": {"library": "Open MPI 5.0.8 -> 5.0.9"}}
    (change,) = found["cells"][1]["changes"]
    assert change["ratio"]["value"] == pytest.approx(1.2, rel=0.01) and change["run"] == 12
    assert change["ratio"]["interval"][0] < 1.2 < change["ratio"]["interval"][1] and change["p_adjusted"] <= 0.05
    rows = [line for line in history(path, "--all").out.splitlines() if line.startswith(night(12))]
    assert sum("12 and 8" in row and "12 us" in row for row in rows) == 2


def test_no_change_and_too_few_runs(history: Collbench, tmp_path: Path) -> None:
    quiet = document(history, write_history(tmp_path / "quiet", {SMALL: QUIET}))
    assert (quiet["events"], len(quiet["cells"]), len(quiet["runs"])) == ([], 1, 20)
    assert quiet["correlation"]["dependence"] in ("none", "unknown") and quiet["correlation"]["limit"] < 0.6
    young = document(history, write_history(tmp_path / "young", {SMALL: QUIET[:5]}))
    assert not young["cells"][0]["tested"] and young["correlation"]["dependence"] == "unknown"
    mixed = document(history, write_history(tmp_path / "mixed", {SMALL: QUIET, LARGE: [*[None] * 15, *QUIET[:5]]}))
    assert [cell["tested"] for cell in mixed["cells"]] == [True, False]


def test_runs_are_taken_in_the_order_in_which_they_began(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: STEP})
    for number in range(20):
        (path / night(number)).rename(path / f"run-{(number * 7) % 20:02d}")
    found = document(history, path)
    assert [run["started"] for run in found["runs"]] == sorted(run["started"] for run in found["runs"])
    assert found["runs"][0]["started"] == FIRST.isoformat()
    assert [event["run"] for event in found["events"]] == [12]
    assert found["runs"][12]["name"] == f"run-{12 * 7 % 20:02d}"


def test_sizes_that_are_neighbours_are_a_range_and_two_changes_two_lines(history: Collbench, tmp_path: Path) -> None:
    sizes = [made_case(size=1024 << number) for number in range(6)]
    slower = dict.fromkeys(sizes[1:4], steps((1e-5, 10), (1.1e-5, 14)))
    faster = {sizes[5]: steps((1e-5, 17), (8e-6, 7))}
    path = write_history(tmp_path / "n", {sizes[0]: steps((1e-5, 24)), **slower, sizes[4]: steps((1e-5, 24)), **faster})
    found = document(history, path)
    assert [(event["run"], event["verdict"], len(event["cells"])) for event in found["events"]] == [
        (17, "faster", 1), (10, "slower", 3)
    ]  # fmt: skip
    assert "2K..8K" in history(path).out


def test_another_machine_is_another_series(history: Collbench, tmp_path: Path) -> None:
    """Its times are not joined with those before; a newer kernel is marked, and joins them."""
    moved = write_history(tmp_path / "moved", {SMALL: STEP}, lambda number: {
        "hosts": (host(cpu="EPYC 7003" if number < 12 else "Xeon"),)})  # fmt: skip
    found = document(history, moved)
    assert (found["events"], len(found["runs"])) == ([], 20)
    assert [(cell["machine"], cell["missing"]) for cell in found["cells"]] == [
        ("EPYC 7003, 4 cores", None), ("Xeon, 4 cores", None)
    ]  # fmt: skip
    kernel = write_history(tmp_path / "kernel", {SMALL: STEP}, lambda number: {
        "hosts": (host(kernel="6.1.0" if number < 12 else "6.6.2"),)})  # fmt: skip
    assert document(history, kernel)["events"][0]["facts"] == {"12": {"kernel": "6.1.0 -> 6.6.2"}}


def test_another_way_of_measuring_and_other_work_do_not_belong_to_a_series(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    for number in (3, 4, 5):
        odd = made_record(SMALL, 0, 2e-5, gate="barrier")
        write_run(path / f"odd-{number}", {SMALL: [odd]}, created=FIRST.replace(day=number, hour=9).isoformat())
    found = document(history, path)
    (cell,) = found["cells"]
    assert len(cell["points"]) == 20 and found["events"] == []
    assert {(gap["lacks"]["kind"], gap["lacks"]["detail"]) for gap in cell["gaps"]} == {("another way", "gate barrier")}


def test_launches_that_tell_no_time_are_no_time(history: Collbench, tmp_path: Path) -> None:
    """Wrong results, a median of 0, other work, and programs whose cores others used; the rest of a run counts."""
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    odd: list[list[Entry]] = [
        [made_record(SMALL, 0, 1e-5, check=ResultCheck(wrong=1)), 1e-5], [0.0, 1e-5, 1e-5], [0.0],
        [made_record(SMALL, 0, 1e-5, work=Work(amount=2048, count=512, bus_factor=1.0))],
    ]  # fmt: skip
    for number, entries in enumerate(odd):
        write_run(path / f"odd-{number}", {SMALL: entries}, created=FIRST.replace(hour=3 + number).isoformat())
    (cell,) = document(history, path)["cells"]
    assert [gap["lacks"] for gap in cell["gaps"]] == [
        {"kind": "wrong results", "detail": "", "launches": 1}, {"kind": "not resolved", "detail": "", "launches": 0},
        {"kind": "other work", "detail": "2048 bytes", "launches": 0},
    ]  # fmt: skip
    assert [point["time"]["n"] for point in cell["points"]][:2] == [1, 2]
    used = launches_of(program_case(), [1e-3, 2e-3, 1e-3], contended=[1])
    write_run(tmp_path / "p" / "a", {program_case(): used}, experiment=experiment(["tools"]))
    (cell,) = document(history, tmp_path / "p")["cells"]
    assert (cell["points"][0]["time"]["value"], cell["points"][0]["time"]["n"]) == (1e-3, 2)


def test_another_build_of_a_library_is_told_by_its_hash(history: Collbench, tmp_path: Path) -> None:
    """Of another version the hash says nothing more."""

    def built(number: int) -> dict[str, Any]:
        return {"libraries": (library(version="5.0.8", sha256=("a" if number < 12 else "b") * 64),)}

    (event,) = document(history, write_history(tmp_path / "build", {SMALL: STEP}, built))["events"]
    assert event["facts"] == {"12": {"library-file": "sha256 aaaaaaaaaaaa -> bbbbbbbbbbbb"}}
    both = write_history(tmp_path / "both", {SMALL: STEP}, lambda number: {
        "libraries": (library(version=str(number >= 12), sha256=("a" if number < 12 else "b") * 64),)})  # fmt: skip
    assert "library-file" not in history(both).out


def test_waves_are_no_changes_and_said_to_be_there(history: Collbench, tmp_path: Path) -> None:
    cells = [made_case(size=1024 << number) for number in range(4)]
    waves = [1e-5 * (1 + 0.03 * math.sin(number / 1.5)) for number in range(40)]
    waving = document(history, write_history(tmp_path / "waves", dict.fromkeys(cells, waves)))
    assert (waving["events"], waving["correlation"]["dependence"]) == ([], "alike")
    assert waving["correlation"]["estimate"] > 0.5


def test_what_changes_in_many_runs_explains_nothing(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: STEP}, lambda number: {
        "hosts": (host(name=f"node{number % 3}", boot_id=str(number)),)})  # fmt: skip
    found = document(history, path)
    assert [event["facts"] for event in found["events"]] == [{}] and found["environment"] == []


def test_failures_are_shown_and_do_not_end_a_series(history: Collbench, tmp_path: Path) -> None:
    times: list[float | str | None] = [*STEP[:6], "died: a", *STEP[7:19], "died: b"]
    path = write_history(tmp_path / "n", {SMALL: times, LARGE: QUIET})
    found = document(history, path)
    assert [event["cells"] for event in found["events"]] == [["allreduce sum float32, 1K"]]
    gaps = [(gap["run"], *gap["lacks"].values(), gap["measured"]) for gap in found["cells"][0]["gaps"]]
    assert gaps == [(6, "failed", "died: a", 0, False), (19, "failed", "died: b", 0, False)]
    assert any("died: b" in note for note in found["notes"])
    assert any(night(19) in line and "died: b" in line for line in history(path, "--all").out.splitlines())


def test_a_cell_that_later_runs_lack_is_named(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET, LARGE: QUIET[:15], MIDDLE: QUIET})
    assert [cell["missing"] for cell in document(history, path)["cells"]] == [None, 15, None]
    turns = {SMALL: [time if number % 2 else None for number, time in enumerate(QUIET)],
             LARGE: [None if number % 2 else time for number, time in enumerate(QUIET)]}  # fmt: skip
    found = document(history, write_history(tmp_path / "turns", turns))
    assert [cell["missing"] for cell in found["cells"]] == [None, None]


def test_folders_that_are_no_runs_are_named_and_no_traceback(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: STEP})
    (path / "logs").mkdir()
    (path / ".git").mkdir()
    (path / "README").write_text("x")
    damaged = write_run(path / "damaged", {SMALL: [1e-5]}) / "records.jsonl"
    damaged.write_text("{}\n")
    undated = write_run(path / "undated", {SMALL: [1e-5]}, created="yesterday")
    write_run(path / "empty", {})
    (path / "latest").symlink_to(path / night(19))
    found = history(path, "--all")
    assert found.code == 0
    for name in ("logs: ", "damaged/records.jsonl line 1", "empty: ", f"{undated.name}"):
        assert name in found.out
    assert undated.name not in found.err
    shown = document(history, path)
    assert len(shown["left_out"]) == 5 and not any(".git" in why or "README" in why for why in shown["left_out"])
    assert (len(shown["runs"]), len(shown["events"])) == (20, 1)


def test_a_folder_of_launches_is_one_run(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    write_launches(path / "last", {SMALL: [1e-5] * 7}, created=FIRST.replace(month=12).isoformat())
    cell = document(history, path)["cells"][0]
    assert cell["points"][-1]["time"]["n"] == 7 and cell["points"][-1]["time"]["interval"] is not None
    assert len(cell["points"]) == 21


def test_a_folder_of_nights_is_not_taken_for_one_run(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    write_history(path / "months" / "9", {SMALL: QUIET[:3]})
    (path / "months" / "9").rename(path / "september")
    (why,) = [why for why in document(history, path)["left_out"] if "september" in why]
    assert "3 runs" in why
    many = made_case(image="a")
    write_run(path / "both" / "a", {many: [1e-5] * 3})
    write_run(path / "both" / "b", {many: [1e-5] * 3})
    assert any("both: " in why and "2 runs" in why for why in document(history, path)["left_out"])


def test_given_keeps_the_cells_with_that_value(history: Collbench, tmp_path: Path) -> None:
    cells = {made_case(image="a"): QUIET, made_case("multi", "strict", image="a"): STEP}
    path = write_history(tmp_path / "n", cells)
    assert len(document(history, path)["events"]) == 1
    found = document(history, path, "--given", "policy=host")
    assert (found["events"], len(found["cells"])) == ([], 1)


@pytest.mark.parametrize(
    ("times", "slower", "faster", "different"),
    [(QUIET, 0, 0, 0), (STEP, 1, 0, 1), (STEP[::-1], 0, 1, 1),
     (steps((1e-5, 8), (1.2e-5, 8), (1e-5, 8)), 0, 1, 1),  # mended
     (steps((1e-5, 8), (1.3e-5, 8), (1.2e-5, 8)), 1, 1, 1),  # mended in part
     (steps((1e-5, 8), (8e-6, 8), (9e-6, 8)), 1, 1, 1)],  # a gain that was lost in part
)  # fmt: skip
def test_exit_codes_by_the_level_now(
    history: Collbench, tmp_path: Path, times: list[float], slower: int, faster: int, different: int
) -> None:
    path = write_history(tmp_path / "n", {SMALL: times})
    codes = [history(path, "--fail-on", what).code for what in ("slower", "faster", "different")]
    assert codes == [slower, faster, different]
    assert history(path).code == 0


def test_since_leaves_out_what_changed_before(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: steps((1e-5, 10), (1.2e-5, 10), (1.1e-5, 10))})
    assert history(path, "--fail-on", "slower").code == 1
    for since in (night(10), f"{path}/{night(10)}", "2026-10-05T00:00:00"):
        assert history(path, "--fail-on", "slower", "--since", since).code == 1
    later = history(path, "--fail-on", "slower", "--since", night(11))
    assert later.code == 0 and len(document(history, path, "--since", night(11))["events"]) == 1
    found = document(history, path, "--since", night(21))
    assert (found["events"], len(found["cells"])) == ([], 1)
    assert document(history, path, "--since", "2027-01-01")["events"] == []


def test_a_check_never_passes_on_what_was_not_measured(history: Collbench, tmp_path: Path) -> None:
    failed = write_history(tmp_path / "failed", {SMALL: [*QUIET[:19], "died"], LARGE: QUIET})
    found = history(failed, "--fail-on", "slower")
    assert found.code == 1
    assert "--fail-on slower: 1 cell " in found.err
    gone = write_history(tmp_path / "gone", {SMALL: QUIET[:19], LARGE: QUIET, MIDDLE: QUIET})
    assert history(gone, "--fail-on", "slower").code == 1
    young = history(write_history(tmp_path / "young", {SMALL: QUIET[:5]}), "--fail-on", "slower")
    assert young.code == 1 and "--fail-on slower: " in young.err


def test_what_every_run_skipped_fails_no_check_and_what_one_skipped_does(history: Collbench, tmp_path: Path) -> None:
    nights = [night(number) for number in range(10)]
    for number, name in enumerate(nights):
        skipped = made_failure(LARGE, 0, "no room", status="skipped")
        last = made_failure(MIDDLE, 0, "no room", status="skipped") if number == 9 else 1e-5
        made = FIRST.replace(day=1 + number).isoformat()
        write_run(
            tmp_path / "n" / name,
            {SMALL: [1e-5], MIDDLE: [last], LARGE: [skipped]},
            created=made,
        )
    found = history(tmp_path / "n", "--fail-on", "slower")
    assert found.code == 1 and "--fail-on slower: 1 cell " in found.err
    gaps = [cell["gaps"][-1] for cell in document(history, tmp_path / "n")["cells"] if cell["gaps"]]
    assert [(gap["run"], gap["lacks"]["kind"]) for gap in gaps] == [(9, "skipped"), (9, "skipped")]
    later = history(tmp_path / "n", "--fail-on", "slower", "--since", "2027-01-01")
    assert later.code == 1 and "--fail-on slower: " in later.err


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "latex", "json"])
def test_every_style_with_hostile_names(history: Collbench, tmp_path: Path, style: str) -> None:
    path = write_history(tmp_path / "a|b<script>\x1b[31m", {made_case(image="x|<b>\x1b[31my"): STEP})
    found = history(path, "--style", style, "--all")
    assert found.code == 0 and "\x1b" not in found.out + found.err
    if style == "csv":
        head, *rows = csv.reader(io.StringIO(found.out))
        assert {len(row) for row in rows} == {len(head)} and "difference low" in head


def test_a_page_has_a_plot_for_each_cell_and_escapes_names(history: Collbench, tmp_path: Path) -> None:
    times = {made_case(image="<script>x</script>", size=size): of for size, of in ((1024, STEP), (4096, QUIET))}
    path, page = write_history(tmp_path / "n", times, launches=7), tmp_path / "page.html"
    found = history(path, "-o", page)
    assert found.code == 0 and "page.html" in found.err
    text = page.read_text()
    assert text.count('<svg class="plot"') == 2  # what changed, what did not
    assert f"<li>{document(history, path)['answer']}</li>" in text
    assert "<script>" not in text and text.count("var(--worse)") > 0
    assert re.findall(r"<h2>(\d+ cell)", text) == ["1 cell", "1 cell"]  # that changed, and that did not


def test_every_change_has_a_row_with_all_and_on_the_page(history: Collbench, tmp_path: Path) -> None:
    cells = [made_case(size=1024 * (1 + number)) for number in range(23)]
    path, page = write_history(tmp_path / "n", dict.fromkeys(cells, STEP)), tmp_path / "page.html"
    found = history(path, "-o", page)
    rows = [line for line in found.out.splitlines() if line.startswith(night(12))]
    assert len(rows) == 1 and "all sizes" in rows[0]
    assert len([line for line in history(path, "--all").out.splitlines() if line.startswith(night(12))]) == 23
    assert "<td>23K</td>" in page.read_text()


def test_a_page_without_a_change_and_with_too_few_runs(history: Collbench, tmp_path: Path) -> None:
    path, page = write_history(tmp_path / "n", {SMALL: QUIET[:4]}), tmp_path / "page.html"
    assert history(path, "-o", page).code == 0
    assert document(history, path)["answer"] in page.read_text()


def test_a_folder_that_cannot_be_read_is_left_out(
    history: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    (path / "closed").mkdir()

    def refusing(folder: Path) -> Observed:
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied", str(folder / "inner"))
        return observe(folder)

    monkeypatch.setattr(history_module, "observe", refusing)
    answer = history(path, "--all")
    assert answer.code == 0
    assert "closed/inner: " in answer.out
