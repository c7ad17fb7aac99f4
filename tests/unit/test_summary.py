from __future__ import annotations

import numpy as np
import pytest

from collbench.schema.record import lag1_autocorrelation, median_interval_ranks, summarise


def exact_low(n: int) -> int:
    """The largest k with P(Binomial(n, 1/2) <= k) <= 2.5 %, in whole numbers; 0 where there is none."""
    choose, below, low = 1, 0, 0
    for k in range(n):
        below += choose
        choose = choose * (n - k) // (k + 1)
        if below * 1000 > 25 * 2**n:
            break
        low = k
    return low


@pytest.mark.parametrize("n", [*range(1, 201), 1_000, 9_999, 10_000])
def test_the_interval_of_the_median_is_exact(n: int) -> None:
    low, high = median_interval_ranks(n)
    assert low == exact_low(n)
    assert high == n - 1 - low


def test_the_interval_agrees_with_scipy() -> None:
    binom = pytest.importorskip("scipy.stats", reason="scipy is not installed here").binom
    for n in range(1, 201):
        low, high = median_interval_ranks(n)
        covered = binom.cdf(high, n, 0.5) - binom.cdf(low, n, 0.5)
        narrower = binom.cdf(high - 1, n, 0.5) - binom.cdf(low + 1, n, 0.5)
        if n < 6:
            assert (low, high) == (0, n - 1)
        else:
            assert covered >= 0.95 > narrower


def test_another_confidence() -> None:
    assert median_interval_ranks(100, 0.99) == (36, 63)
    assert median_interval_ranks(100, 0.95) == (39, 60)


@pytest.mark.parametrize("n", [1, 2, 3, 20, 101])
def test_a_summary_is_numpys(n: int) -> None:
    samples = np.random.default_rng(n).integers(400, 900, n)
    found = summarise(samples)
    ordered = sorted(samples.tolist())
    low, high = median_interval_ranks(n)
    assert found.p50 == pytest.approx(float(np.median(samples)) * 1e-9, rel=1e-12)
    assert found.p95 == pytest.approx(float(np.percentile(samples, 95)) * 1e-9, rel=1e-12)
    assert found.p99 == pytest.approx(float(np.percentile(samples, 99)) * 1e-9, rel=1e-12)
    assert found.mean == pytest.approx(sum(ordered) / n * 1e-9, rel=1e-12)
    assert (found.min, found.max) == (ordered[0] * 1e-9, ordered[-1] * 1e-9)
    assert found.ci95 == (ordered[low] * 1e-9, ordered[high] * 1e-9)
    assert found.min <= found.ci95[0] <= found.p50 <= found.ci95[1] <= found.max


def test_the_order_of_samples_matters_to_lag1_alone() -> None:
    rising = summarise(np.arange(1, 101))
    mixed = summarise(np.random.default_rng(1).permutation(np.arange(1, 101)))
    assert rising.lag1 is not None
    assert mixed.lag1 is not None
    assert rising.lag1 > 0.9 > 0.3 > abs(mixed.lag1)
    assert rising.ci95 == mixed.ci95


def test_lag1_by_its_definition() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    mean = sum(values) / 7
    above = sum((values[i] - mean) * (values[i + 1] - mean) for i in range(6))
    below = sum((value - mean) ** 2 for value in values)
    assert lag1_autocorrelation(np.array(values)) == pytest.approx(above / below)
    assert lag1_autocorrelation(np.array([1.0, -1.0] * 50)) == pytest.approx(-0.99)


def test_lag1_of_three_values() -> None:
    assert lag1_autocorrelation(np.array([1.0, 2.0, 6.0])) == pytest.approx(-1 / 14)


def test_lag1_that_does_not_exist() -> None:
    assert lag1_autocorrelation(np.array([1.0, 2.0])) is None
    assert lag1_autocorrelation(np.full(10, 7.0)) is None
