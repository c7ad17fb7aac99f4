"""Histories: change points, what is told together, the latest run, and the command."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit import made_runs
from tests.unit.conftest import Answer, Collbench
from tests.unit.made_history import FIRST, OfNight, night, steps, write_history
from tests.unit.made_program_runs import launches_of, program_case
from tests.unit.made_runs import Entry, host, library, made_case, made_failure, made_record, write_launches, write_run

from collbench.analysis import change_points
from collbench.analysis.change_points import FEWEST, LEAST, Correlation, Level, Trace, matter
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import side_of
from collbench.analysis.history import CellSeries, Change, Renewal, RunTime, TimedRun, events, renewals
from collbench.analysis.runs import Observed, observe
from collbench.cli.analyse import amount
from collbench.schema.case import Case
from collbench.schema.record import ResultCheck, Work

MARGIN = 0.02
Values = NDArray[np.float64]


def traces_of(values: Values) -> list[Trace]:
    """Of [runs, cells], each cell in every run."""
    return [Trace(column, np.arange(len(values))) for column in values.T]


def changes_of(values: Values, margin: float = MARGIN) -> list[tuple[int, ...]]:
    """Of each cell of [runs, cells] the runs with which its level changed."""
    levels_of, _ = change_points.find(traces_of(values), change_points.spread_of(margin))
    return [tuple(level.start for level in matter(values[:, cell], levels, margin)[1:])
            for cell, levels in enumerate(levels_of)]  # fmt: skip


def noise(seed: int, runs: int, cells: int, spread: float = 0.01) -> Values:
    return np.random.default_rng(seed).normal(0, spread, (runs, cells))


def test_a_page_without_a_change_names_one_in_at_most_a_few_per_cent() -> None:
    """Of 60 pages of 20 cells; 5 % are 3, and more than 8 would occur once in a hundred and fifty."""
    for runs, spread in ((12, 0.01), (30, 0.05)):
        assert sum(any(changes_of(noise(seed, runs, 20, spread))) for seed in range(60)) <= 8


#: Runs, what is planted in cells from a run on until another (a factor), and the changes by cell.
PLANTED: dict[str, tuple[int, list[tuple[int, int, int | slice, float]], dict[int, tuple[int, ...]]]] = {
    "a step in one cell": (40, [(28, 40, 3, 1.1)], {3: (28,)}),
    "a level that returns": (60, [(30, 36, 0, 1.1)], {0: (30, 36)}),  # one split would have both levels on one side
    "one run": (30, [(29, 30, 0, 1.5)], {}),
    "two runs": (30, [(28, 30, 0, 1.5)], {}),
    "three runs": (30, [(27, 30, 0, 1.5)], {0: (27,)}),
    "the first three runs": (30, [(0, 3, 0, 1.5)], {0: (3,)}),
    "a slow run of all cells hides no change": (40, [(12, 13, slice(None), 2), (25, 40, 5, 1.1)], {5: (25,)}),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_change_is_found_where_it_is_in_its_cell_alone(what: str) -> None:
    runs, planted, changes = PLANTED[what]
    values = noise(1, runs, 10)
    for start, stop, cells, factor in planted:
        values[start:stop, cells] += np.log(factor)
    assert {cell: starts for cell, starts in enumerate(changes_of(values)) if starts} == changes


def test_steps_within_the_margin_are_not_told_but_their_sum_is() -> None:
    """Of times with next to no spread, and of times of a clock with none; fewer runs are not tested."""
    values = noise(5, 60, 3, 0.001)
    values[30:, 0] += np.log(1.01)
    for start in (15, 30, 45):
        values[start:, 1] += np.log(1.015)
    within, creeping, _ = changes_of(values)
    assert within == () and len(creeping) in (1, 2) and changes_of(values, margin=0.005)[0] == (30,)
    values = np.zeros((20, 2))
    values[12:, 1] = np.log(1.05)
    assert changes_of(values) == [(), (12,)]
    few = np.repeat([[0.0], [1.0]], [4, FEWEST - 5], axis=0)
    assert changes_of(few) == changes_of(few[:0]) == [()]


def test_cells_with_other_runs_are_tested_together() -> None:
    draw = np.random.default_rng(6)
    every, some = np.arange(40), np.arange(1, 40, 2)
    stepped = draw.normal(0, 0.01, 20) + np.log(1.2) * (some > 20)
    traces = [Trace(draw.normal(0, 0.01, 40), every), Trace(stepped, some)]
    levels, _ = change_points.find(traces, change_points.spread_of(MARGIN))
    assert ([len(of_cell) for of_cell in levels], levels[1][1].start) == ([1, 2], 10)


def autoregressive(seed: int, runs: int, cells: int, r: float) -> Values:
    """Each run keeps the share `r` of how far the run before was off; standard deviation 1."""
    values = noise(seed, runs, cells, 1.0)
    for run in range(1, runs):
        values[run] = r * values[run - 1] + (1 - r * r) ** 0.5 * values[run]
    return values


def of_neighbours(values: Values) -> Correlation:
    return change_points.find(traces_of(values), 0.002)[1]


@pytest.mark.parametrize(
    ("runs", "cells", "r", "pages", "most"),
    [(33, 1, 0.6, 60, 7), (60, 1, 0.6, 60, 7), (33, 8, 0.6, 25, 4), (33, 8, 0.3, 25, 4)],
)
def test_waves_of_all_cells_are_no_changes(runs: int, cells: int, r: float, pages: int, most: int) -> None:
    """At most 5 % of pages; more would occur once in fifty."""
    waves = (0.03 * autoregressive(seed, runs, 1, r) + noise(1000 + seed, runs, cells) for seed in range(pages))
    assert sum(any(changes_of(values)) for values in waves) <= most


def test_a_correlation_is_as_uncertain_as_the_series_are_alike() -> None:
    """Of cells with a memory each the limit is close to the estimate; one state for all is one series."""
    each = [of_neighbours(autoregressive(seed, 40, 10, 0.6)) for seed in range(8)]
    assert {one.dependence for one in each} == {"alike"}
    assert 0.35 < np.median([one.estimate for one in each]) < 0.7
    assert np.median([one.limit - one.estimate for one in each]) < 0.04
    shared = [of_neighbours(np.repeat(autoregressive(seed, 40, 1, 0.6), 10, axis=1)) for seed in range(8)]
    assert np.median([one.limit - one.estimate for one in shared]) > 0.06


def test_independent_runs_are_not_alike_few_runs_do_not_tell_and_a_change_is_no_correlation() -> None:
    """In one page of twenty they are, by chance."""
    many = Counter(of_neighbours(noise(seed, 33, 10)).dependence for seed in range(20))
    assert many["none"] >= 16 and not many["unknown"]
    few = Counter(of_neighbours(noise(seed, 10, 1)).dependence for seed in range(40))
    assert few["unknown"] >= 10 and few["alike"] <= 6
    values = noise(3, 33, 4)
    values[16:] += np.log(1.2)
    assert of_neighbours(values).limit < 0.4


def test_splits_are_widened_as_the_variance_of_autoregression_is() -> None:
    """By its covariance matrix: r to the power of the distance in time."""
    n, r = 12, 0.5
    covariance = r ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    for widened, start, at, stop in zip(change_points.widening(n, r), *change_points.splits(n), strict=True):
        weights = np.zeros(n)
        weights[start:at], weights[at:stop] = 1 / (at - start), -1 / (stop - at)
        exact = np.sqrt(weights @ covariance @ weights / (weights @ weights) / (1 - r))
        assert widened == pytest.approx(exact, rel=1e-4)


def test_splits_leave_enough_values_on_both_sides_of_intervals_of_all_lengths() -> None:
    start, at, stop = change_points.splits(50)
    assert (at - start).min() == (stop - at).min() == LEAST and (start.min(), stop.max()) == (0, 50)
    assert {*at.tolist()} == {*range(LEAST, 50 - LEAST + 1)}
    lengths = {*(stop - start).tolist()}
    assert {50, 25} <= lengths and min(lengths) < 2 * 2 * LEAST


def test_a_change_in_the_middle_is_seen_although_nights_are_outliers_at_times() -> None:
    """7 % of values are half as long again; the change widens no spread that outliers are measured by."""
    seen = 0
    for seed in range(12):
        values = noise(seed, 33, 8)
        values += np.log(1.49) * (np.random.default_rng(100 + seed).random((33, 8)) < 0.07)
        values[16:, 0] += np.log(1.1)
        seen += any(abs(at - 16) <= 3 for at in changes_of(values)[0])
    assert seen >= 10


def test_a_change_may_have_begun_where_its_level_fits_nearly_as_well() -> None:
    values = noise(7, 40, 1, 0.02)[:, 0]
    values[20:] += np.log(1.1)
    before, after = matter(values, [Level(0, 18), Level(18, 40, 0.001)], MARGIN)
    assert after.p == 0.001 and before.stop == after.start
    first, last = change_points.may_begin(values, before, after, MARGIN)
    assert first <= after.start <= last and first <= 20 <= last


# Which changes are told together, and which changes of the environment with them --------------------------------------


def changed(
    size: int, run: int, between: tuple[int, int] | None = None, ratio: float = 1.1, machine: str = "a", lacks: int = 0
) -> Change:
    """A change of one cell of 30 runs; the `lacks` runs before it have no time."""
    kept = [number for number in range(30) if not run - lacks <= number < run]
    points = tuple(RunTime(number, Estimate(1e-5, None, 1)) for number in kept)
    series, at = CellSeries(made_case(size=size), machine, Work(amount=size), points, ()), kept.index(run)
    levels = Level(0, at), Level(at, len(kept), 0.01)
    return Change(series, *levels, run, between or (run, run), Estimate(ratio, None, 3))


def test_a_fact_that_changes_now_and_then_is_told_and_one_that_always_does_is_not() -> None:
    side = side_of(made_case())
    runs = [TimedRun(str(number), datetime(2026, 1, 1 + number, tzinfo=UTC), "a", {},
                     {side: {"kernel": str(number // 6), "host": str(number % 2), "allocation": str(number // 10)}})
            for number in range(30)]  # fmt: skip
    assert [(renewal.run, renewal.facts) for renewal in renewals(runs)] == [
        (run, {"kernel": f"{run // 6 - 1} -> {run // 6}"}) for run in (6, 12, 18, 24)]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "sizes"),
    [([changed(32, 13, (11, 14)), changed(64, 10, (9, 12))], [(12, [8, 16, 32, 64])]),
     ([changed(32, 13, (13, 14))], [(13, [32]), (12, [8, 16])]),
     ([changed(32, 20, (5, 25))], [(20, [32]), (12, [8, 16])]),  # too far for one cause
     ([changed(64, 12, ratio=0.9), changed(8, 12, machine="b")], [(12, [8, 16]), (12, [8]), (12, [64])])],
)  # fmt: skip
def test_changes_that_may_have_begun_at_once_are_one(more: list[Change], sizes: list[tuple[int, list[int]]]) -> None:
    """Those of one direction and one machine; slower ones are told first."""
    found = events([changed(8, 12), changed(16, 12), *more], ())
    assert [(event.run, [one.series.case["size"] for one in event.changes]) for event in found] == sizes


Facts = dict[str, str]
NEWER: Facts = {"library": "1 -> 2"}


@pytest.mark.parametrize(
    ("change", "run", "before", "facts"),
    [(changed(8, 12, (10, 14)), 12, 11, {12: NEWER}), (changed(8, 12, (10, 14)), 13, 11, {13: NEWER}),
     (changed(8, 12, (10, 14)), 15, 11, {}), (changed(8, 12, machine="b"), 12, 11, {}),
     (changed(8, 12, lacks=3), 10, 8, {12: NEWER})],  # while the cell was not measured
)  # fmt: skip
def test_what_changed_in_the_same_run(change: Change, run: int, before: int, facts: dict[int, Facts]) -> None:
    (event,) = events([change], [Renewal(run, "a", side_of(made_case()), NEWER)])
    assert (event.run, event.before, event.facts) == (12, before, facts)


# `collbench history` on made-up nights --------------------------------------------------------------------------------

SMALL, MIDDLE, LARGE = (made_case(size=size) for size in (1024, 4096, 16384))
QUIET = steps((1e-5, 20))
JUMP = steps((1e-5, 19), (1.01e-4, 1))
STEP = steps((1e-5, 12), (1.2e-5, 8))


def hosts(**fields: Any) -> dict[str, Any]:
    return {"hosts": (host(**fields),)}


class Nights(NamedTuple):
    """A folder of runs, and the command on it in this process."""

    path: Path
    here: Collbench

    def history(self, *arguments: object) -> Answer:
        return self.here("history", self.path, *arguments)

    def document(self, *arguments: object) -> Any:
        """What the command says for programs."""
        return json.loads(self.history(*arguments, "--style", "json").out)

    def outside(self, *arguments: object) -> list[list[tuple[str, float]]]:
        """Of each latest run the sizes outside of their level, with their time over it."""
        return [[(cell["name"].split()[-1], round(cell["ratio"], 1)) for cell in run["cells"]]
                for run in self.document(*arguments)["latest"]]  # fmt: skip


Times = Mapping[Case, Sequence[float | str | None]]
Nightly = Callable[..., Nights]


@pytest.fixture
def nightly(here: Collbench, tmp_path: Path) -> Nightly:
    """`nightly(times)`, or with what else `write_history` takes."""

    def written(times: Times, of_night: OfNight = lambda number: {}, **how: Any) -> Nights:
        return Nights(write_history(tmp_path / f"n{len([*tmp_path.iterdir()])}", times, of_night, **how), here)

    return written


def test_the_jump_of_the_latest_run_is_told_everywhere_and_the_farthest_first(nightly: Nightly, tmp_path: Path) -> None:
    nights = nightly({SMALL: [*QUIET[:19], 2e-5], MIDDLE: JUMP, LARGE: QUIET})
    shown, page = nights.document(), tmp_path / "page.html"
    out = nights.history("-o", page).out
    assert [line for line in out.splitlines() if line.startswith(night(19)) and "10.1x" in line and "4K" in line]
    assert shown["answer"] in out and shown["answer"] in page.read_text()
    assert (shown["events"], len(shown["cells"])) == ([], 3)
    assert [(latest["run"], latest["of"]) for latest in shown["latest"]] == [(19, 3)]
    (cells,) = nights.outside()
    assert [size for size, _ in cells] == ["4K", "1K"] and dict(cells) == pytest.approx({"4K": 10.1, "1K": 2}, rel=0.02)
    assert nightly({SMALL: [*QUIET, 1e-5], MIDDLE: JUMP, LARGE: [*QUIET, 1e-5]}).outside() == []
    assert nightly({SMALL: [*QUIET, 1e-5], MIDDLE: [*JUMP, "died"]}).outside() == []


EVERY_KIND = {"slower", "faster", "different", "outside"}


@pytest.mark.parametrize(
    ("times", "failing"),
    [(QUIET, set()), (STEP, {"slower", "different"}), (STEP[::-1], {"faster", "different"}),
     (steps((1e-5, 8), (1.2e-5, 8), (1e-5, 8)), {"faster", "different"}),  # mended
     (steps((1e-5, 8), (1.3e-5, 8), (1.2e-5, 8)), {"slower", "faster", "different"}),  # mended in part
     (steps((1e-5, 8), (8e-6, 8), (9e-6, 8)), {"slower", "faster", "different"}),  # a gain that was lost in part
     (JUMP, {"outside"}), (steps((1e-5, 29), (5e-6, 1)), {"outside"}),
     (steps((1e-5, 18), (1.5e-5, 2)), {"outside"}),  # a second night is told as the first
     (steps((1e-5, 17), (1.5e-5, 3)), {"slower", "different"}),  # a change
     ([*JUMP, 1e-5], set()), (steps((1e-5, 7), (1e-4, 1)), {"outside"}),
     (steps((1e-5, 6), (1e-4, 1)), EVERY_KIND),  # too few runs: nothing is told, and no check passes
     ([1e-5, 1e-5, 1e-4, *QUIET[:16], 1.05e-4], set()),  # as far as once before
     (steps((1e-5, 10), (2e-5, 9), (1e-5, 1)), {"slower", "different", "outside"})],  # its level is the one now
)  # fmt: skip
def test_exit_codes_by_the_level_and_the_latest_run(nightly: Nightly, times: list[float], failing: set[str]) -> None:
    nights = nightly({SMALL: times, LARGE: [1e-5] * len(times)})
    assert {kind for kind in EVERY_KIND if nights.history("--fail-on", kind).code} == failing
    assert nights.history().code == 0
    assert bool(nights.outside()) is ("outside" in failing and len(times) >= FEWEST)


def test_several_kinds_of_findings_to_fail_on_and_one_that_is_none(nightly: Nightly) -> None:
    nights = nightly({SMALL: JUMP})
    for kinds in ("slower,outside", "outside,faster"):
        failed = nights.history("--fail-on", kinds)
        assert failed.code == 1 and kinds in failed.err
    unknown = nights.history("--fail-on", "outside,wrong")
    assert (unknown.code, unknown.out) == (2, "") and "wrong" in unknown.err
    assert nights.history("--since", night(19), "--fail-on", "outside").code == 1
    assert nights.outside("--since", "2027-01-01") == []


@pytest.mark.parametrize("runs", [8, 12, 30])
def test_few_pages_of_alike_runs_tell_their_latest(runs: int) -> None:
    """At most 5 % of them, whether noise is normal or has far outliers; of 400, more than 34 would hardly be chance."""
    draw, shape = np.random.default_rng(1), (runs, 10)

    def told(values: Values) -> bool:
        return bool(change_points.outside(traces_of(values), [(Level(0, runs),)] * 10, MARGIN))

    assert sum(told(draw.normal(0, 0.05, shape)) for _ in range(400)) <= 34
    assert sum(told(0.02 * draw.standard_t(2, shape)) for _ in range(400)) <= 34


def test_runs_with_few_of_the_cells_are_no_statistic_of_all() -> None:
    """One cell has runs that no other has, and an outlier in one of them, which hides no jump of another cell."""
    draw = np.random.default_rng(2)
    alone, others = draw.normal(0, 0.01, 30), draw.normal(0, 0.01, (3, 10))
    alone[5], others[0, -1] = 5.0, 1.0
    traces = [Trace(alone, np.arange(30)), *(Trace(values, np.arange(20, 30)) for values in others)]
    assert set(change_points.outside(traces, [(Level(0, len(one.values)),) for one in traces], MARGIN)) == {1}


def test_what_changed_with_one_run_is_one_event_with_the_library_that_changed(nightly: Nightly) -> None:
    nights = nightly({SMALL: QUIET, MIDDLE: STEP, LARGE: STEP}, lambda number: {
        "libraries": (library(version="5.0.8" if number < 12 else "5.0.9"),)}, launches=7)  # fmt: skip
    shown = nights.document()
    (event,) = shown["events"]
    assert (event["run"], event["before"], event["verdict"]) == (12, 11, "slower")
    assert event["cells"] == ["allreduce sum float32, 4K", "allreduce sum float32, 16K"]
    assert event["facts"] == {"12": {"library": "Open MPI 5.0.8 -> 5.0.9"}}
    (change,) = shown["cells"][1]["changes"]
    assert change["ratio"]["value"] == pytest.approx(1.2, rel=0.01) and change["run"] == 12
    assert change["ratio"]["interval"][0] < 1.2 < change["ratio"]["interval"][1] and change["p_adjusted"] <= 0.05
    rows = [line for line in nights.history("--all").out.splitlines() if line.startswith(night(12))]
    assert sum("12 us" in row and {"12", "8"} <= {*row.split()} for row in rows) == 2


def test_no_change_waves_and_too_few_runs(nightly: Nightly, tmp_path: Path) -> None:
    quiet = nightly({SMALL: QUIET}).document()
    assert (quiet["events"], len(quiet["cells"]), len(quiet["runs"])) == ([], 1, 20)
    assert quiet["correlation"]["dependence"] in ("none", "unknown") and quiet["correlation"]["limit"] < 0.6
    waves = [1e-5 * (1 + 0.03 * math.sin(number / 1.5)) for number in range(40)]
    waving = nightly({made_case(size=1024 << number): waves for number in range(4)}).document()
    assert (waving["events"], waving["correlation"]["dependence"]) == ([], "alike")
    assert waving["correlation"]["estimate"] > 0.5
    few, page = nightly({SMALL: QUIET[:5]}), tmp_path / "page.html"
    young = few.document()
    assert not young["cells"][0]["tested"] and young["correlation"]["dependence"] == "unknown"
    assert few.history("-o", page).code == 0 and young["answer"] in page.read_text()
    mixed = nightly({SMALL: QUIET, LARGE: [*[None] * 15, *QUIET[:5]]}).document()
    assert [cell["tested"] for cell in mixed["cells"]] == [True, False]


def test_runs_are_taken_in_the_order_in_which_they_began_and_a_folder_of_launches_is_one(nightly: Nightly) -> None:
    nights = nightly({SMALL: STEP})
    for number in range(20):
        (nights.path / night(number)).rename(nights.path / f"run-{(number * 7) % 20:02d}")
    write_launches(nights.path / "0", {SMALL: [1.2e-5] * 7}, created=FIRST.replace(month=12).isoformat())
    shown = nights.document()
    assert [run["name"] for run in shown["runs"]] == [*(f"run-{number * 7 % 20:02d}" for number in range(20)), "0"]
    assert shown["runs"][0]["started"] == FIRST.isoformat() and [event["run"] for event in shown["events"]] == [12]
    last = shown["cells"][0]["points"][-1]["time"]
    assert last["n"] == 7 and last["interval"] is not None


def test_sizes_that_are_neighbours_are_a_range_and_two_changes_two_lines(nightly: Nightly) -> None:
    slower, faster = steps((1e-5, 10), (1.1e-5, 14)), steps((1e-5, 17), (8e-6, 7))
    levels = (steps((1e-5, 24)), slower, slower, slower, steps((1e-5, 24)), faster)
    nights = nightly({made_case(size=1024 << number): times for number, times in enumerate(levels)})
    assert [(event["run"], event["verdict"], len(event["cells"])) for event in nights.document()["events"]] == [
        (17, "faster", 1), (10, "slower", 3)]  # fmt: skip
    assert "2K..8K" in nights.history().out


def test_each_machine_has_series_and_a_latest_run(nightly: Nightly) -> None:
    """Its times are not joined with those before. In turns, the jump is in the last run of one, not in that of all."""
    moved = nightly({SMALL: STEP}, lambda number: hosts(cpu="EPYC 7003" if number < 12 else "Xeon")).document()
    assert (moved["events"], len(moved["runs"])) == ([], 20)
    assert [(cell["machine"], cell["missing"]) for cell in moved["cells"]] == [
        ("EPYC 7003, 4 cores", None), ("Xeon, 4 cores", None)]  # fmt: skip
    jump = [1e-4 if number == 38 else 1e-5 for number in range(40)]
    turns = nightly({SMALL: jump}, lambda number: hosts(cpu="Xeon" if number % 2 else "EPYC 7003")).document()
    assert [(of["run"], of["of"], len(of["cells"])) for of in turns["latest"]] == [(38, 1, 1)]


@pytest.mark.parametrize(
    ("of_night", "facts"),
    [(lambda number: hosts(kernel="6.1.0" if number < 12 else "6.6.2"), {"12": {"kernel": "6.1.0 -> 6.6.2"}}),
     # another build of a library is told by its hash, which says nothing more of another version
     (lambda number: {"libraries": (library(sha256="ab"[number >= 12] * 64),)},
      {"12": {"library-file": "sha256 aaaaaaaaaaaa -> bbbbbbbbbbbb"}}),
     (lambda number: {"libraries": (library(version="89"[number >= 12], sha256="ab"[number >= 12] * 64),)},
      {"12": {"library": "Open MPI 8 -> 9"}}),
     # what changes in many runs explains nothing
     (lambda number: hosts(name=f"node{number % 3}", boot_id=str(number)), {})],
)  # fmt: skip
def test_facts_that_changed_with_a_step(nightly: Nightly, of_night: OfNight, facts: dict[str, Facts]) -> None:
    shown = nightly({SMALL: STEP}, of_night).document()
    assert [event["facts"] for event in shown["events"]] == [facts]
    assert len(shown["environment"]) == len(facts)


def test_launches_that_tell_no_time_of_a_series(nightly: Nightly, here: Collbench, tmp_path: Path) -> None:
    """Wrong results, a median of 0, other work, another way, programs whose cores others used; the others count."""
    nights = nightly({SMALL: QUIET})
    odd: list[Sequence[Entry]] = [
        [made_record(SMALL, 0, 1e-5, check=ResultCheck(wrong=1)), 1e-5], [0.0, 1e-5, 1e-5], [0.0],
        [made_record(SMALL, 0, 1e-5, work=Work(amount=2048, count=512, bus_factor=1.0))],
        *([made_record(SMALL, 0, 2e-5, align="barrier")] for _ in range(3)),
    ]  # fmt: skip
    for number, entries in enumerate(odd):
        write_run(nights.path / f"odd-{number}", {SMALL: entries}, created=FIRST.replace(hour=3 + number).isoformat())
    shown = nights.document()
    (cell,) = shown["cells"]
    assert [(*gap["lacks"].values(),) for gap in cell["gaps"]] == [
        ("wrong results", "", 1), ("not resolved", "", 0), ("other work", "2048 bytes", 0),
        *[("another way", "align barrier", 0)] * 3]  # fmt: skip
    assert len(cell["points"]) == 21 and shown["events"] == []
    assert [point["time"]["n"] for point in cell["points"]][:2] == [1, 2]
    used = launches_of(program_case(), [1e-3, 2e-3, 1e-3], contended=[1])
    write_run(tmp_path / "p" / "a", {program_case(): used}, experiment=made_runs.experiment(["tools"]))
    (cell,) = Nights(tmp_path / "p", here).document()["cells"]
    assert (cell["points"][0]["time"]["value"], cell["points"][0]["time"]["n"]) == (1e-3, 2)


def test_failures_are_shown_and_do_not_end_a_series(nightly: Nightly) -> None:
    nights = nightly({SMALL: [*STEP[:6], "died: a", *STEP[7:19], "died: b"], LARGE: QUIET})
    shown = nights.document()
    assert [event["cells"] for event in shown["events"]] == [["allreduce sum float32, 1K"]]
    gaps = [(gap["run"], *gap["lacks"].values(), gap["measured"]) for gap in shown["cells"][0]["gaps"]]
    assert gaps == [(6, "failed", "died: a", 0, False), (19, "failed", "died: b", 0, False)]
    assert any("died: b" in note for note in shown["notes"])
    assert any(night(19) in line and "died: b" in line for line in nights.history("--all").out.splitlines())


def test_folders_that_are_no_runs_are_named_and_no_traceback(nightly: Nightly, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that cannot be read, nor one of several runs."""
    nights = nightly({SMALL: STEP})
    path = nights.path
    for name in ("logs", ".git", "closed"):
        (path / name).mkdir()
    (path / "README").write_text("x")
    (write_run(path / "damaged", {SMALL: [1e-5]}) / "records.jsonl").write_text("{}\n")
    write_run(path / "undated", {SMALL: [1e-5]}, created="yesterday")
    write_run(path / "empty", {})
    (path / "latest").symlink_to(path / night(19))
    write_history(path / "september", {SMALL: QUIET[:3]})
    for name in "ab":
        write_run(path / "both" / name, {made_case(image="a"): [1e-5] * 3})

    def refusing(folder: Path) -> Observed:
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied", str(folder / "inner"))
        return observe(folder)

    monkeypatch.setattr("collbench.analysis.history.observe", refusing)
    answer, shown = nights.history("--all"), nights.document()
    assert answer.code == 0 and "undated" not in answer.err
    for name in ("logs: ", "damaged/records.jsonl line 1", "empty: ", "undated", "closed/inner: "):
        assert name in answer.out
    left_out = shown["left_out"]
    assert len(left_out) == 8 and not any(".git" in why or "README" in why for why in left_out)
    assert any("september" in why and "3 runs" in why for why in left_out)
    assert any("both: " in why and "2 runs" in why for why in left_out)
    assert (len(shown["runs"]), len(shown["events"])) == (20, 1)


def test_given_leaves_out_other_cells_and_since_what_changed_before(nightly: Nightly) -> None:
    places = nightly({made_case(image="a"): QUIET, made_case("multi", "strict", image="a"): STEP})
    every, on_host = places.document(), places.document("--given", "policy=host")
    assert (len(every["events"]), on_host["events"], len(on_host["cells"])) == (1, [], 1)
    nights = nightly({SMALL: steps((1e-5, 10), (1.2e-5, 10), (1.1e-5, 10))})
    for since in (night(0), night(10), f"{nights.path}/{night(10)}", "2026-10-05T00:00:00"):
        assert nights.history("--fail-on", "slower", "--since", since).code == 1
    later = nights.history("--fail-on", "slower", "--since", night(11))
    assert later.code == 0 and len(nights.document("--since", night(11))["events"]) == 1
    after = nights.document("--since", night(21))
    assert (after["events"], len(after["cells"])) == ([], 1)
    assert nights.document("--since", "2027-01-01")["events"] == []


def test_a_check_never_passes_on_what_the_latest_runs_lack(nightly: Nightly) -> None:
    for times, missing in (
        ({SMALL: [*QUIET[:19], "died"], LARGE: QUIET}, [None, None]),
        ({SMALL: QUIET, LARGE: QUIET[:19], MIDDLE: QUIET}, [None, 19, None]),
    ):
        nights = nightly(times)
        failed = nights.history("--fail-on", "slower")
        assert failed.code == 1 and "--fail-on slower: 1 cell " in failed.err
        assert [cell["missing"] for cell in nights.document()["cells"]] == missing
    turns = nightly({SMALL: [None, 1e-5] * 10, LARGE: [1e-5, None] * 10}).document()
    assert [cell["missing"] for cell in turns["cells"]] == [None, None]


def test_what_every_run_skipped_fails_no_check_and_what_one_skipped_does(here: Collbench, tmp_path: Path) -> None:
    def skipped(case: Case) -> list[Entry]:
        return [made_failure(case, 0, "no room", status="skipped")]

    for number in range(10):
        entries = {SMALL: [1e-5], MIDDLE: skipped(MIDDLE) if number == 9 else [1e-5], LARGE: skipped(LARGE)}
        write_run(tmp_path / "n" / night(number), entries, created=FIRST.replace(day=1 + number).isoformat())
    nights = Nights(tmp_path / "n", here)
    failed = nights.history("--fail-on", "slower")
    assert failed.code == 1 and "--fail-on slower: 1 cell " in failed.err
    gaps = [cell["gaps"][-1] for cell in nights.document()["cells"] if cell["gaps"]]
    assert [(gap["run"], gap["lacks"]["kind"]) for gap in gaps] == [(9, "skipped"), (9, "skipped")]
    later = nights.history("--fail-on", "slower", "--since", "2027-01-01")
    assert later.code == 1 and "--fail-on slower: " in later.err


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "latex", "json"])
def test_every_style_with_hostile_names(here: Collbench, tmp_path: Path, style: str) -> None:
    path = write_history(tmp_path / "a|b<script>\x1b[31m", {made_case(image="x|<b>\x1b[31my"): STEP})
    shown = Nights(path, here).history("--style", style, "--all")
    assert shown.code == 0 and "\x1b" not in shown.out + shown.err
    if style == "csv":
        head, *rows = csv.reader(io.StringIO(shown.out))
        assert {len(row) for row in rows} == {len(head)} and "difference low" in head


def test_a_page_has_a_plot_for_each_cell_and_escapes_names(nightly: Nightly, tmp_path: Path) -> None:
    times = {made_case(image="<script>x</script>", size=size): of for size, of in ((1024, STEP), (4096, QUIET))}
    nights, page = nightly(times, launches=7), tmp_path / "page.html"
    written = nights.history("-o", page)
    assert written.code == 0 and written.err == f"collbench: {page}: {amount(page.stat().st_size)}\n"
    text = page.read_text()
    assert text.count('<svg class="plot"') == 2  # what changed, what did not
    assert f"<li>{nights.document()['answer']}</li>" in text
    assert "<script>" not in text and text.count("var(--worse)") > 0
    assert re.findall(r"<h2>(\d+ cell)", text) == ["1 cell", "1 cell"]  # that changed, and that did not
    assert (amount(26_500), amount(412_000)) == ("27 kB", "0.4 MB")


def test_two_sides_of_a_plan_have_two_names(nightly: Nightly) -> None:
    sizes = (1 << 10, 1 << 12)
    sides = ("old", "new")
    nights = nightly({made_case(image="openmpi", side=side, size=size): STEP for side in sides for size in sizes})
    assert len({cell["name"] for cell in nights.document()["cells"]}) == 4


def test_every_change_has_a_row_with_all_and_on_the_page(nightly: Nightly, tmp_path: Path) -> None:
    nights, page = nightly({made_case(size=1024 * (1 + number)): STEP for number in range(23)}), tmp_path / "page.html"
    first, every = ([line for line in nights.history(*words).out.splitlines() if line.startswith(night(12))]
                    for words in (("-o", page), ("--all",)))  # fmt: skip
    assert (len(first), len(every)) == (1, 23) and "all sizes" in first[0] and "<td>23K</td>" in page.read_text()
