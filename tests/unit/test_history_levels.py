"""Change points: false alarms, what is found, and what is no change."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from collbench.analysis.history.change_points import (
    FEWEST,
    LEAST,
    Level,
    Trace,
    changes,
    find,
    matter,
    scores,
    splits,
    spread_of,
    statistics,
)

MARGIN = 0.02
Values = NDArray[np.float64]


def named(values: Values, margin: float = MARGIN) -> list[tuple[int, ...]]:
    """Of each cell of [runs, cells] the runs with which its level changed."""
    runs, cells = values.shape
    traces = [Trace(values[:, cell], np.arange(runs)) for cell in range(cells)]
    found = find(traces, spread_of(margin)).levels
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
    found = find([Trace(draw.normal(0, 0.01, 40), every), Trace(stepped, some)], spread_of(MARGIN)).levels
    assert [len(levels) for levels in found] == [1, 2]
    assert found[1][1].start == 10


def test_runs_that_resemble_their_neighbours_raise_the_bar() -> None:
    """Waves of AR(1) with r = 0.6 are no changes; that they are there is told."""
    alarms, correlations = 0, []
    for seed in range(20):
        values = noise(seed, 40, 10, 0.05)
        for run in range(1, 40):
            values[run] = 0.6 * values[run - 1] + 0.8 * values[run]
        alarms += any(named(values))
        correlations.append(find([Trace(column, np.arange(40)) for column in values.T], 0.002).correlation)
    assert alarms <= 5
    assert 0.35 < np.median(correlations) < 0.75
    assert find([Trace(column, np.arange(40)) for column in noise(1, 40, 10).T], 0.002).correlation < 0.2


def test_runs_that_do_not_depend_on_each_other_have_no_correlation() -> None:
    """What a single series shows by chance is not taken for one; in one of twenty it is."""
    found = [find([Trace(noise(seed, 30, 1)[:, 0], np.arange(30))], 0.002).correlation for seed in range(60)]
    assert sum(one > 0 for one in found) <= 9


def test_the_ratio_of_a_change_and_where_it_may_have_begun() -> None:
    values = noise(7, 40, 1, 0.02)[:, 0]
    values[20:] += np.log(1.1)
    kept = matter(values, [Level(0, 18), Level(18, 40, 0.001)], MARGIN)
    (change,) = changes(values, kept, MARGIN)
    assert change.ratio.value == pytest.approx(1.1, rel=0.02)
    assert change.ratio.interval is not None and change.ratio.excludes(1.0)
    assert change.between[0] <= change.at <= change.between[1]
    assert change.between[0] <= 20 <= change.between[1]
    assert change.p == 0.001


def test_splits_leave_enough_values_on_both_sides_of_intervals_of_all_lengths() -> None:
    found = splits(50)
    assert (found.at - found.start >= LEAST).all() and (found.stop - found.at >= LEAST).all()
    assert set(found.at.tolist()) == set(range(LEAST, 50 - LEAST + 1))
    assert found.start.min() == 0 and found.stop.max() == 50
    lengths = set((found.stop - found.start).tolist())
    assert {50, 25} <= lengths and min(lengths) < 2 * 2 * LEAST


def test_the_statistic_does_not_depend_on_unit_or_sign() -> None:
    values = np.random.default_rng(8).normal(0, 1, 20)
    orders = np.argsort(np.random.default_rng(9).random((5, 20)), axis=1)
    first, _ = statistics(scores(values, 0.0).astype(np.float32)[orders], 0.0)
    other, _ = statistics(scores(-3 * values + 5, 0.0).astype(np.float32)[orders], 0.0)
    np.testing.assert_allclose(first, other, rtol=1e-4)
