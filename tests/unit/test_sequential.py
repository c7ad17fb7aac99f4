"""Bets on signs: their wealth where nothing differs, intervals that may be looked at always, and what is found when."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from collbench.analysis.deciding import LEAST_CHANCE, chance_of_verdict
from collbench.analysis.estimate import FEWEST, Estimate, ratio_in_blocks
from collbench.analysis.sequential import (
    CAPITAL,
    PARTS,
    STAKES,
    Evidence,
    _middle,
    _Table,
    _weighed,
    evidence,
    fewest_wins,
    ratio_at_any_time,
)  # fmt: skip


def of(logs: list[list[float]]) -> list[Evidence]:
    """The evidence of pairs, each with its log ratios."""
    return evidence([dict(enumerate(one)) for one in logs])


def test_the_capital_is_one() -> None:
    assert sum(PARTS) == pytest.approx(1.0)
    assert sum(CAPITAL.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(("pairs", "blocks"), [(1, 7), (2, 4)])
def test_the_mean_wealth_of_a_set_without_a_difference_is_at_most_1(pairs: int, blocks: int) -> None:
    """Over all ways in which coins can fall: what Ville's inequality needs, exactly."""
    sizes = np.random.default_rng(0).exponential(0.02, (blocks, pairs))
    total, fell = np.zeros((2, pairs)), list(product((-1, 1), repeat=blocks * pairs))
    for coins in fell:
        logs = sizes * np.reshape(coins, sizes.shape)
        table, least = _Table(pairs), np.zeros((2, pairs))
        for block in range(blocks):
            table.bet(_weighed(logs[:block], logs[block]))
            table.choose(block + 1, logs[: block + 1])
        table.settle(least)
        total += least
    assert (total / len(fell) <= 1 + 1e-9).all()
    assert (total / len(fell) > 0.1).all()


def test_small_log_ratios_weigh_less_and_missing_ones_nothing() -> None:
    past = np.array([[0.1, math.nan, math.nan], [-0.1, 0.2, math.nan]])
    assert _weighed(past, np.array([0.025, -0.3, 0.001])).tolist() == pytest.approx([0.5, -1.0, 1.0])
    assert _weighed(past, np.array([math.nan, 0.0, 0.0])).tolist() == [0.0, 0.0, 0.0]


def test_medians_of_what_is_there() -> None:
    nan = math.nan
    assert _middle(np.array([[3.0, nan, nan], [1.0, 2.0, nan], [8.0, 4.0, nan]])).tolist() == [3.0, 3.0, 0.0]
    assert _middle(np.empty((0, 2))).tolist() == [0.0, 0.0]


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


@pytest.mark.parametrize("differing", [0, 3])
def test_whoever_looks_after_every_block_is_wrong_in_at_most_one_run_of_twenty(differing: int) -> None:
    """False alarms of 8 pairs that share their blocks, of which some differ, at any of 24 looks."""
    draw, alarms, runs = np.random.default_rng(3), 0, 100
    for _ in range(runs):
        logs = draw.standard_t(2, (8, 24)) * 0.05 + draw.normal(0, 0.05, 24)
        logs[:differing] += np.array([0.1, 0.3, 0.5])[:differing, None]
        alarms += min(one.p_adjusted for one in of(logs.tolist())[differing:]) <= 0.05
    assert alarms <= _by_chance(runs)


def test_an_interval_that_is_looked_at_after_every_block_holds_the_median() -> None:
    draw, outside, runs = np.random.default_rng(3), 0, 150
    for _ in range(runs):
        times = np.exp(0.05 * draw.standard_t(2, 24)).tolist()
        outside += any(ratio_at_any_time(times[:n], [1.0] * n).excludes(1.0) for n in range(6, 25))
    assert outside <= _by_chance(runs)


@pytest.mark.parametrize("pairs", [1, 14, 300])
def test_one_pair_that_differs_is_found_after_nine_blocks_among_however_many(pairs: int) -> None:
    draw = np.random.default_rng(4)
    logs = draw.normal(0, 0.01, (pairs, 9))
    logs[0] += 0.1
    found = of(logs.tolist())
    assert found[0].p_adjusted <= 0.05
    assert min((one.p_adjusted for one in found[1:]), default=1.0) > 0.05


def test_pairs_that_all_differ_are_all_found() -> None:
    draw = np.random.default_rng(5)
    assert max(one.p_adjusted for one in of((draw.normal(0.1, 0.01, (40, 10))).tolist())) <= 0.05


def test_a_pair_that_was_found_stays_found_and_one_more_look_changes_nothing_before() -> None:
    """A cell that is measured no longer keeps what it has won; the others go on."""
    draw = np.random.default_rng(6)
    sure, unsure = (draw.normal(0.1, 0.01, 10)).tolist(), draw.normal(0, 0.05, 20).tolist()
    both = evidence([dict(enumerate(sure)), dict(enumerate(unsure))])
    assert both[0].p_adjusted <= 0.05 < both[1].p_adjusted


def test_equal_times_are_evidence_of_nothing() -> None:
    assert of([[0.0] * 20, [0.0] * 20]) == [Evidence(1.0, 1.0)] * 2
    assert evidence([]) == []
    assert evidence([{}, {}]) == [Evidence(1.0, 1.0)] * 2


def test_wins_that_are_needed() -> None:
    assert [fewest_wins(n, 40.0) for n in (5, 6, 9, 20)] == [6, 6, 9, 17]


def test_comparisons_that_cannot_be_decided_any_more_are_given_up() -> None:
    draw = np.random.default_rng(7)
    quiet, loud = draw.normal(0, 0.002, 8).tolist(), draw.normal(0, 0.3, 8).tolist()
    assert chance_of_verdict(quiet, 4, 0.02) > 0.9
    assert chance_of_verdict(loud, 12, 0.02) < LEAST_CHANCE
    assert chance_of_verdict((draw.normal(0.1, 0.02, 7)).tolist(), 13, 0.02) > 0.8
    assert chance_of_verdict(quiet, 0, 0.02) == pytest.approx(1.0)


def test_parts_of_the_capital_add_up_to_at_most_1_whoever_stands_out() -> None:
    """A set's wealth is linear in that of bets on its hypotheses, and each hypothesis has at most its share of it."""
    pairs, shares = 6, 0.0
    for winner in range(pairs):
        table, least = _Table(pairs), np.zeros((2, pairs))
        for blocks in CAPITAL.keys() - {0}:
            table.choose(blocks, np.tile(np.linspace(0.01, 0.06, pairs), (blocks, 1)))
        others = np.arange(pairs) != winner
        for part in table._chosen.values():
            part.wealth[:, others] = 0.0
        table._of_all[:, :, others] = 0.0
        table.settle(least)
        shares += least[0, winner]
    assert 0.5 < shares <= 1.0


def test_who_was_found_stands_no_longer_in_the_way_of_others() -> None:
    """The first pair is measured until it is found, the second on, which is not limited by it."""
    first, second = [0.1] * 8, [-0.01, -0.01, *[0.05] * 12]
    limited = [evidence([dict(enumerate(first)), dict(enumerate(second[:n]))])[1].p_adjusted for n in range(8, 15)]
    assert min(limited) <= 0.05
    alone = [evidence([dict(enumerate(second[:n]))])[0].p_adjusted for n in range(8, 15)]
    soonest, later = (next(n for n, p in enumerate(found) if p <= 0.05) for found in (alone, limited))
    assert later - soonest <= 2


def test_what_comes_later_changes_no_bet_and_takes_nothing_back() -> None:
    draw = np.random.default_rng(8)
    logs = draw.normal(0.04, 0.02, (3, 9))
    before = of(logs.tolist())
    assert of(np.concatenate((logs, np.zeros((3, 30))), axis=1).tolist()) == before
    lost = of(np.concatenate((logs, np.full((3, 3), -0.5)), axis=1).tolist())
    assert [one.p for one in lost] == [one.p for one in before]
    assert [one.p_adjusted for one in lost] == [one.p_adjusted for one in before]


def test_p_of_a_pair_counts_both_directions() -> None:
    wealth = float(PARTS @ (1 + STAKES) ** 6)
    for sign in (1, -1):
        assert of([[0.1 * sign] * 6])[0].p == pytest.approx(2 / wealth)


def test_a_difference_that_stays_within_the_margin_is_no_verdict_to_hope_for() -> None:
    """Every log ratio is positive, and one in three lies beyond the margin: neither `same` nor `slower` is near."""
    logs = [0.015, 0.016, 0.017, 0.018, 0.015, 0.016, 0.017, 0.025, 0.026, 0.027]
    assert chance_of_verdict(logs, 10, 0.02) < 0.4
