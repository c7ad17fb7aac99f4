"""Bets on signs: their wealth where nothing differs, intervals that may be looked at always, and what is found when."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from collbench.analysis.bounds import (
    ALPHA,
    PARTS,
    STAKES,
    Launches,
    bounds_at_any_time,
    fewest_wins,
    of_controls_at_any_time,
    ratio_at_any_time,
)
from collbench.analysis.deciding import LEAST_CHANCE, chance_of_verdict
from collbench.analysis.estimate import FEWEST, Estimate, ratio_in_blocks


def test_the_mean_wealth_without_a_difference_is_1() -> None:
    """Over all ways in which seven coins can fall: what Ville's inequality needs, exactly."""
    assert sum(PARTS) == pytest.approx(1.0)
    stakes = np.array([[1.0 + STAKES * coin for coin in fell] for fell in product((-1, 1), repeat=7)])
    wealth = stakes.prod(axis=1) @ PARTS
    assert wealth.mean() == pytest.approx(1.0)
    assert wealth.max() > 40


def test_six_blocks_that_agree_have_an_interval_and_five_have_none() -> None:
    assert FEWEST == 6
    six = ratio_at_any_time([1.03, 1.04, 1.05, 1.06, 1.07, 1.08], [1.0] * 6)
    assert six.interval == pytest.approx((1.03, 1.08))
    assert ratio_at_any_time([1.03] * 5, [1.0] * 5).interval is None


def test_the_interval_is_wider_than_one_for_a_fixed_number_of_blocks_and_narrows() -> None:
    draw = np.random.default_rng(2)
    times = np.exp(draw.normal(0, 0.05, 40))
    ones = np.ones(40)

    def width(ratio: Estimate) -> float:
        assert ratio.interval is not None
        return math.log(ratio.interval[1] / ratio.interval[0])

    for n in (10, 20, 40):
        always, once = ratio_at_any_time(times[:n].tolist(), ones[:n].tolist()), ratio_in_blocks(times[:n], ones[:n])
        assert always.value == once.value
        assert width(once) < width(always) < 3 * width(once)
    eight, forty = (ratio_at_any_time(times[:n].tolist(), ones[:n].tolist()) for n in (8, 40))
    assert width(forty) < width(eight)


def test_an_interval_is_widened_by_the_step_of_the_clock() -> None:
    ratio = ratio_at_any_time([200e-9] * 8, [200e-9] * 8, half_steps=(5e-9, 5e-9))
    assert ratio.interval == pytest.approx(((195 / 200) ** 2, (200 / 195) ** 2))


def _by_chance(runs: int) -> float:
    """So many errors of 5 % occur in fewer than one of 200 repetitions of these runs."""
    return 0.05 * runs + 2.6 * math.sqrt(0.05 * 0.95 * runs)


def heavy(draw: np.random.Generator, cells: int) -> list[list[float]]:
    """Logarithms of ratios [cells, 24] around 0, of cells that share their blocks."""
    logs: list[list[float]] = (draw.standard_t(2, (cells, 24)) * 0.05 + draw.normal(0, 0.05, 24)).tolist()
    return logs


def test_whoever_looks_at_all_sizes_after_every_block_is_wrong_in_at_most_one_run_of_twenty() -> None:
    """Intervals of a question of 8 sizes, each with its part of 5 %, at any of 19 looks."""
    draw, outside, runs = np.random.default_rng(3), 0, 100
    for _ in range(runs):
        times = np.exp(heavy(draw, 8))
        outside += any(ratio_at_any_time(row[:n], np.ones(n), 1 - ALPHA / 8).excludes(1.0)
                       for row in times for n in range(6, 25))  # fmt: skip
    assert outside <= _by_chance(runs)


def test_bounds_hold_after_every_block() -> None:
    """The lower ones of 8 cells at once, and the upper one of the first by itself."""
    draw, lower, upper, runs = np.random.default_rng(4), 0, 0, 100
    for _ in range(runs):
        logs = heavy(draw, 8)
        looks = [bounds_at_any_time([dict(enumerate(row[:n])) for row in logs]) for n in range(6, 25)]
        lower += any(one.lower > 0 for found in looks for one in found)
        upper += any(found[0].upper < 0 for found in looks)
    assert lower <= _by_chance(runs) and upper <= _by_chance(runs)
    assert upper >= 1, "they are not wider than they need be"


def test_bounds_are_the_blocks_beyond_which_a_bet_would_have_won() -> None:
    """Five wins of five are a wealth of 20, and so a bound; of two cells a lower bound needs 40, so six of six."""
    five, six = ({block: float(block) for block in range(n)} for n in (5, 6))
    assert [fewest_wins(n, wealth) for n, wealth in ((5, 20), (6, 20), (6, 40))] == [5, 6, 6]
    assert bounds_at_any_time([five]) == [(2.0, 0.0, 4.0)]
    assert bounds_at_any_time([five, six]) == [(2.0, -math.inf, 4.0), (2.5, 0.0, 5.0)]
    assert bounds_at_any_time([{0: 1.0}]) == [(1.0, -math.inf, math.inf)]


def test_exchanged_sides_have_mirrored_bounds_by_themselves() -> None:
    logs = dict(enumerate(heavy(np.random.default_rng(5), 1)[0]))
    ((value, lower, upper),) = bounds_at_any_time([logs])
    assert bounds_at_any_time([{block: -log for block, log in logs.items()}]) == [(-value, -upper, -lower)]


def test_of_every_option_as_the_control_a_bound_is_that_of_its_pair_with_a_part_of_five_per_cent() -> None:
    draw = np.random.default_rng(6)
    times = {name: np.exp(draw.normal(0, 0.05, 12)).tolist() for name in "abc"}
    pairs = {(other, control): Launches(times[control], times[other], range(12), range(12))
             for other, control in (("a", "b"), ("a", "c"), ("b", "c"))}  # fmt: skip
    found = of_controls_at_any_time(pairs)
    assert found.keys() == {(other, control) for other in "abc" for control in "abc" if other != control}
    for (other, control), low in found.items():
        logs = dict(enumerate(np.log(np.array(times[other]) / times[control]).tolist()))
        assert low == pytest.approx(bounds_at_any_time([logs, logs])[0].lower)


def test_an_interval_that_is_looked_at_after_every_block_holds_the_median() -> None:
    draw, outside, runs = np.random.default_rng(3), 0, 150
    for _ in range(runs):
        times = np.exp(0.05 * draw.standard_t(2, 24)).tolist()
        outside += any(ratio_at_any_time(times[:n], [1.0] * n).excludes(1.0) for n in range(6, 25))
    assert outside <= _by_chance(runs)


def test_wins_that_are_needed() -> None:
    assert [fewest_wins(n, 40.0) for n in (5, 6, 9, 20)] == [6, 6, 9, 17]


def test_comparisons_that_cannot_be_decided_any_more_are_given_up() -> None:
    draw = np.random.default_rng(7)
    quiet, loud = draw.normal(0, 0.002, 8).tolist(), draw.normal(0, 0.3, 8).tolist()
    assert chance_of_verdict(quiet, 4, 0.02) > 0.9
    assert chance_of_verdict(loud, 12, 0.02) < LEAST_CHANCE
    assert chance_of_verdict((draw.normal(0.1, 0.02, 7)).tolist(), 13, 0.02) > 0.8
    assert chance_of_verdict(quiet, 0, 0.02) == pytest.approx(1.0)


def test_a_difference_around_the_margin_is_a_verdict_to_hope_for() -> None:
    """Every log ratio is positive, and one in three lies beyond the margin: it may be `slower`, hardly `same`."""
    logs = [0.015, 0.016, 0.017, 0.018, 0.015, 0.016, 0.017, 0.025, 0.026, 0.027]
    assert chance_of_verdict(logs, 10, 0.02) > 0.9
    without_sign = [log * (-1) ** number for number, log in enumerate(logs)]
    assert chance_of_verdict(without_sign, 10, 0.02) < 0.4


def test_among_more_sizes_a_verdict_is_less_likely() -> None:
    logs = [0.1, 0.11, 0.09, 0.1, -0.1, 0.12, 0.1, 0.11]
    chances = [chance_of_verdict(logs, 12, 0.02, sizes) for sizes in (1, 12, 80)]
    assert chances[0] > chances[1] > chances[2]
    assert chance_of_verdict(logs, 12, 0.02) == chances[0]
