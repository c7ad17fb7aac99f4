"""Change points: false alarms, what is found, and what is no change."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from collbench.analysis.change_points import (
    FEWEST,
    LEAST,
    Correlation,
    Level,
    Trace,
    find,
    matter,
    may_begin,
    splits,
    spread_of,
    statistics,
    widening,
)

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
