"""Intervals of medians and of ratios against their definitions; other names that launches could have."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from collbench.analysis import bounds, estimate
from collbench.analysis.bounds import exchanges, flips
from collbench.analysis.change_points import step_down
from collbench.analysis.estimate import FEWEST, Estimate, centre, ratio_in_blocks, ratio_of_sides


def counted_rank_sums(n: int, m: int) -> list[float]:
    """P(U <= k), k = 0 .. n m, by going through every way to place n of n + m ranks."""
    ways = Counter(sum(ranks) - n * (n - 1) // 2 for ranks in combinations(range(n + m), n))
    total = math.comb(n + m, n)
    return [sum(ways[u] for u in range(k + 1)) / total for k in range(n * m + 1)]


def test_the_interval_of_six_values_is_the_one_worked_out_by_hand() -> None:
    """Levels 1 - 2/64 and 1 - 14/64; I = (62/64 - 0.95) / (12/64) = 0.1; weight 5 x 0.1 / (1 + 4 x 0.1) = 5/14."""
    found = centre([60, 10, 40, 20, 50, 30])
    assert found.value == 35
    assert found.interval == pytest.approx((10 + 10 * 5 / 14, 60 - 10 * 5 / 14))
    assert found.n == 6


@pytest.mark.parametrize("n", [6, 7, 8, 9, 10])
def test_intervals_lie_between_the_binomial_levels_around_95_percent(n: int) -> None:
    """k is the depth of the outer pair of order statistics: P(X < k) for X ~ Binomial(n, 1/2) is at most 2.5 %."""
    values = np.arange(1.0, n + 1) ** 3
    k = next(k for k in range(n, 0, -1) if stats.binom.cdf(k - 1, n, 0.5) <= 0.025)
    outer, inner = (1 - 2 * stats.binom.cdf(depth - 1, n, 0.5) for depth in (k, k + 1))
    assert inner < 0.95 <= outer
    share = (outer - 0.95) / (outer - inner)
    weight = (n - k) * share / (k + (n - 2 * k) * share)
    low = values[k - 1] + weight * (values[k] - values[k - 1])
    high = values[n - k] - weight * (values[n - k] - values[n - k - 1])
    assert centre(values).interval == pytest.approx((low, high))
    assert values[k - 1] <= low < values[k]


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 7, 10, 25])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.96])
def test_between_the_levels_the_interval_is_exact_where_values_are_laplace_distributed(
    n: int, confidence: float
) -> None:
    """For which Hettmansperger and Sheather chose the weights; ends of 1, 2, ..., n say which order statistics mix."""
    found = centre(np.arange(n), confidence).interval
    assert found is not None
    low, share = divmod(found[0], 1)
    drawn = np.sort(np.random.default_rng(1).laplace(size=(400_000, n)), axis=1)
    ends = (1 - share) * drawn[:, int(low)] + share * drawn[:, int(low) + 1]
    assert np.mean(ends > 0) == pytest.approx((1 - confidence) / 2, abs=0.0012)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_fewer_than_six_launches_have_no_interval(n: int) -> None:
    values = np.arange(1.0, n + 1)
    assert centre(values) == Estimate(float(np.median(values)), None, n)
    assert ratio_in_blocks(values, values).interval is None
    for found in (ratio_of_sides(values, np.arange(1.0, 20)), ratio_of_sides(np.arange(1.0, 20), values)):
        assert (found.interval, found.n) == (None, n)
    assert FEWEST == 6


def test_six_launches_a_side_have_intervals() -> None:
    values = np.arange(1.0, 7)
    assert None not in (centre(values).interval, ratio_in_blocks(values, values + 1).interval)
    assert ratio_of_sides(values, values + 1).interval is not None


def test_an_interval_that_touches_a_value_does_not_exclude_it() -> None:
    found = Estimate(1.1, (1.0, 1.2), 9)
    assert not found.excludes(1.0)
    assert found.excludes(0.999)
    assert found.within(1.0, 1.2)
    assert not found.within(1.0, 1.19)
    assert not Estimate(1.0, None, 3).excludes(2.0) and not Estimate(1.0, None, 3).within(0.0, 9.0)


def test_a_ratio_in_blocks_is_the_median_of_the_ratios_whatever_blocks_do() -> None:
    drift = np.array([1, 9, 2, 30, 4, 1, 7.0])
    ratios = np.array([1.5, 1.4, 1.6, 1.55, 1.45, 1.7, 1.3])
    found = ratio_in_blocks(drift * ratios, drift)
    alone = centre(np.log(ratios)).interval
    assert alone is not None
    assert found.value == pytest.approx(1.5)
    assert found.interval == pytest.approx(tuple(map(math.exp, alone)))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 5), (6, 6), (6, 7), (8, 6), (7, 9)])
def test_the_distribution_of_the_rank_sum_is_what_counting_gives(n: int, m: int) -> None:
    assert estimate._rank_sum_cdf(n, m) == pytest.approx(counted_rank_sums(n, m), abs=1e-15)


@pytest.mark.parametrize(("n", "m"), [(6, 6), (6, 9), (7, 7), (10, 8), (20, 15)])
def test_the_interval_of_two_sides_inverts_the_mann_whitney_test(n: int, m: int) -> None:
    """Shift one side through every gap between differences: SciPy's exact test accepts between two of these steps."""
    draw = np.random.default_rng(n * 100 + m)
    mine, theirs = draw.normal(size=n), draw.normal(size=m)
    steps = np.sort((mine[:, None] - theirs).ravel())
    shifts = (steps[1:] + steps[:-1]) / 2
    tested = stats.mannwhitneyu(mine[None, :] - shifts[:, None], theirs[None, :], axis=1, method="exact").pvalue
    accepted = np.flatnonzero(tested > 0.05)
    outer = steps[accepted[0]], steps[accepted[-1] + 1]
    inner = steps[accepted[0] + 1], steps[accepted[-1]]
    found = ratio_of_sides(np.exp(mine), np.exp(theirs))
    assert found.value == pytest.approx(math.exp(np.median(steps)))
    assert found.interval is not None
    low, high = map(math.log, found.interval)
    assert outer[0] - 1e-12 <= low <= inner[0] + 1e-12
    assert inner[1] - 1e-12 <= high <= outer[1] + 1e-12


@pytest.mark.parametrize(("n", "m"), [(6, 6), (6, 8), (7, 7)])
def test_ends_of_the_interval_are_interpolated_between_exact_levels(n: int, m: int) -> None:
    draw = np.random.default_rng(3)
    mine, theirs = draw.normal(size=n), draw.normal(size=m)
    steps, levels = np.sort((mine[:, None] - theirs).ravel()), counted_rank_sums(n, m)
    k = next(k for k, level in enumerate(levels) if level > 0.025)
    share = (0.025 - levels[k - 1]) / (levels[k] - levels[k - 1])
    ends = (1 - share) * steps[k - 1] + share * steps[k], (1 - share) * steps[-k] + share * steps[-k - 1]
    assert ratio_of_sides(np.exp(mine), np.exp(theirs)).interval == pytest.approx(tuple(map(math.exp, ends)))


def test_where_the_normal_approximation_takes_over_it_agrees_with_the_exact_distribution() -> None:
    n = estimate._EXACT
    exact = estimate._rank_sum_cdf(n, n)
    normal = estimate._normal_cdf(np.arange(n * n + 1), n * n / 2, math.sqrt(n * n * (2 * n + 1) / 12))
    assert np.abs(exact - normal).max() < 1e-3
    tail = int(np.searchsorted(exact, 0.025))
    assert normal[tail] == pytest.approx(exact[tail], abs=2e-4)


def test_the_width_of_the_interval_does_not_jump_at_the_switch() -> None:
    def width(n: int) -> float:
        quantiles = stats.norm.ppf((np.arange(n) + 0.5) / n)
        found = ratio_of_sides(np.exp(quantiles), np.exp(quantiles)).interval
        assert found is not None
        return math.log(found[1] / found[0]) * math.sqrt(n)

    n = estimate._EXACT
    assert width(n + 1) == pytest.approx(width(n), rel=0.006)
    assert width(n + 1) == pytest.approx(width(n - 1), rel=0.006)


@pytest.mark.parametrize("estimated", [ratio_in_blocks, ratio_of_sides])
def test_swapped_sides_give_the_inverse(estimated: object) -> None:
    assert callable(estimated)
    draw = np.random.default_rng(4)
    mine, theirs = draw.lognormal(size=9), draw.lognormal(size=9)
    one, other = estimated(mine, theirs), estimated(theirs, mine)
    assert one.value == pytest.approx(1 / other.value)
    assert one.interval == pytest.approx((1 / other.interval[1], 1 / other.interval[0]))


@pytest.mark.parametrize("estimated", [ratio_in_blocks, ratio_of_sides])
def test_times_that_no_clock_gives_overflow_nothing(estimated: object) -> None:
    assert callable(estimated)
    found = estimated([1e308] * 6, [5e-324] * 6)
    assert all(map(math.isfinite, (found.value, *found.interval)))
    assert min(estimated([5e-324] * 6, [1e308] * 6).interval) > 0


# Ways to give launches other names ------------------------------------------------------------------------------------


def test_all_signs_are_taken_once_and_the_measured_ones_first() -> None:
    found = flips(7, 7)
    assert (found[0] == 1).all()
    both = [tuple(row) for row in np.concatenate((found, -found)).tolist()]
    assert len(both) == 2**7 and set(both) == set(product((1, -1), repeat=7))


def test_all_ways_to_deal_launches_are_taken_once_and_the_measured_one_first() -> None:
    found = exchanges(4, 3, 7)
    assert found[0].tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert {tuple(np.flatnonzero(row).tolist()) for row in found} == set(combinations(range(7), 3))
    assert len(found) == 35


@pytest.mark.parametrize(("blocks", "launches"), [(16, 16), (17, 17), (16, 160_000)])
def test_where_there_are_too_many_a_sample_is_drawn_that_is_always_the_same(blocks: int, launches: int) -> None:
    one, again = flips(blocks, launches), flips(blocks, launches)
    assert (one == again).all() and (one[0] == 1).all()
    assert bounds.DRAWN[0] < len(one) <= bounds.ALL
    dealt = exchanges(20, 20, launches)
    assert (dealt.sum(axis=1) == 20).all() and dealt[0, :20].all()


def by_hand(found: NDArray[np.float32]) -> list[float]:
    """Westfall and Young (1993), algorithm 2.8: from the largest down, the maximum over what is not yet passed."""
    adjusted, least = [0.0] * len(found), 0.0
    ranked = sorted(range(len(found)), key=lambda i: -found[i, 0])
    for rank, i in enumerate(ranked):
        largest = found[ranked[rank:]].max(axis=0)
        least = max(least, float(np.mean(largest >= found[i, 0] * (1 - 1e-4))))
        adjusted[i] = least
    return adjusted


def test_p_of_many_cells_is_adjusted_as_westfall_and_young_do() -> None:
    draw = np.random.default_rng(4)
    found = np.abs(draw.normal(0, 1, (9, 400))).astype(np.float32)
    found[:3, 0] = 4.0, 3.0, 2.0
    adjusted = step_down(found)
    assert adjusted.tolist() == pytest.approx(by_hand(found))
    assert 0 < adjusted[0] < adjusted[1] < adjusted[2] < 1


def test_no_tie_is_broken_by_rounding() -> None:
    found = np.array([[1.0, 1.0 - 1e-6, 0.5, 0.1]], np.float32)
    assert step_down(found).tolist() == [0.5]
