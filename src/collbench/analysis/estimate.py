"""Estimates with intervals from a few launches: a median, and the ratio of the times of two sides.

Of the logarithm of times, so that the ratio of A over B is the inverse of that of B over A. Intervals come from order
statistics, whose distribution is known whatever that of the times, interpolated between the two exact levels on either
side of the one asked for: with six or seven launches those lie far apart. SciPy is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from collbench.errors import PackageMissing, to_install

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = "NDArray[np.float64]"

CONFIDENCE = 0.95
FEWEST = 6  # below this many launches a side no interval of a median reaches 95 %
_EXACT = 60  # above this many values a normal approximation replaces the exact distribution: its error is below 1e-3

#: By how much (s) the times of both sides can be wrong, because the clock has steps: half a step each.
HalfSteps = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; the interval is None where there are too few launches for one.

    `resolution`: the part of its half width that the clock's step keeps (s; of a ratio the logarithm of a factor).
    """

    value: float
    interval: tuple[float, float] | None
    n: int
    resolution: float = 0.0

    def within(self, low: float, high: float) -> bool:
        """Whether the whole interval lies in [low, high]."""
        return self.interval is not None and low <= self.interval[0] and self.interval[1] <= high

    def excludes(self, value: float) -> bool:
        """Whether the interval does not contain `value`."""
        return self.interval is not None and not self.interval[0] <= value <= self.interval[1]


def centre(values: ArrayLike, confidence: float = CONFIDENCE, half_step: float = 0.0) -> Estimate:
    """Median of `values` [n >= 1], each known to `half_step` either way, in their unit.

    With the interval of Hettmansperger and Sheather, Statistics & Probability Letters 4 (1986) 75-79.
    """
    ordered = np.sort(np.asarray(values, dtype=float)).tolist()
    n = len(ordered)
    value = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if n < FEWEST:
        return Estimate(value, None, n, half_step)
    outside, inside, weight = _ends(n, confidence)
    low = (1 - weight) * ordered[outside] + weight * ordered[inside]
    high = (1 - weight) * ordered[n - 1 - outside] + weight * ordered[n - 1 - inside]
    return Estimate(value, (low - half_step, high + half_step), n, half_step)


@lru_cache
def _ends(n: int, confidence: float) -> tuple[int, int, float]:
    """The order statistics between which the lower end lies (the upper one mirrors it), and the weight of the inner."""
    # P(X <= k) for X ~ Binomial(n, 1/2), k = 0 .. n
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2) for k in range(n + 1)]
    cdf = np.cumsum(np.exp(logs))
    k = max(int(np.searchsorted(cdf, (1 - confidence) / 2, side="right")), 1)
    inside = min(k, (n - 1) // 2)
    outer, inner = 1 - 2 * cdf[k - 1], 1 - 2 * cdf[inside]
    share = 0.0 if outer <= inner else (outer - confidence) / (outer - inner)
    return k - 1, inside, float(max(0.0, (n - k) * share / (k + (n - 2 * k) * share)))


def ratio_in_blocks(
    of: ArrayLike, over: ArrayLike, confidence: float = CONFIDENCE, half_steps: HalfSteps = (0.0, 0.0)
) -> Estimate:
    """How many times as long `of` [n] takes as `over` [n], value i of both from one block: all values positive.

    By the median of ratios: what drifts divides out, and what jumps in a few blocks moves it little.
    """
    log_ratio = centre(np.log(of) - np.log(over), confidence)
    return in_logarithms(log_ratio, open_to_clock(of, over, half_steps))


def open_to_clock(of: ArrayLike, over: ArrayLike, half_steps: HalfSteps) -> float:
    """The logarithm of the factor that steps of the clock leave open in a ratio of such times."""
    sides = zip(half_steps, (of, over), strict=True)
    shares = [half / float(np.median(np.asarray(side))) for half, side in sides if half]
    return -sum(math.log1p(-min(share, 0.999)) for share in shares)


def in_logarithms(log_ratio: Estimate, resolution: float) -> Estimate:
    """A ratio and its interval of an estimate of its logarithm, widened by what the clock leaves open."""
    if log_ratio.interval is None:
        return Estimate(_exp(log_ratio.value), None, log_ratio.n, resolution)
    low, high = log_ratio.interval
    return Estimate(_exp(log_ratio.value), (_exp(low - resolution), _exp(high + resolution)), log_ratio.n, resolution)


def ratio_of_sides(of: ArrayLike, over: ArrayLike, half_steps: HalfSteps = (0.0, 0.0)) -> Estimate:
    """How many times as long `of` [n] takes as `over` [m], two sides without common blocks: all values positive.

    The Hodges-Lehmann estimate: the median of all differences of logarithms; the interval inverts the Mann-Whitney
    test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., sections 4.2 and 4.3).
    """
    of_logs, over_logs = np.log(of), np.log(over)
    n, m = len(of_logs), len(over_logs)
    steps = np.sort((of_logs[:, None] - over_logs).ravel())
    interval = None
    if min(n, m) >= FEWEST:
        cdf, tail = _rank_sum_cdf(n, m), (1 - CONFIDENCE) / 2
        k = max(int(np.searchsorted(cdf, tail, side="right")), 1)  # P(W <= k - 1) <= tail < P(W <= k)
        share = min(max((tail - cdf[k - 1]) / (cdf[k] - cdf[k - 1]), 0.0), 1.0)
        low = (1 - share) * steps[k - 1] + share * steps[k]
        high = (1 - share) * steps[-k] + share * steps[-k - 1]
        interval = float(low), float(high)
    log_ratio = Estimate(float(np.median(steps)), interval, min(n, m))
    return in_logarithms(log_ratio, open_to_clock(of, over, half_steps))


def _exp(logarithm: float) -> float:
    """A ratio that a float can hold, and its inverse too: a record may say 1e308 s."""
    return math.exp(min(max(logarithm, -700.0), 700.0))


@cache
def _rank_sum_cdf(n: int, m: int) -> Floats:
    """P(U <= k) for the Mann-Whitney statistic of n and m values, k = 0 .. n m.

    The number of ways to U = k obeys f(n, m, k) = f(n - 1, m, k - m) + f(n, m - 1, k): as a product of polynomials,
    (1 - x^(m + i)) / (1 - x^i) for i = 1 .. n.
    """
    top = n * m
    if max(n, m) > _EXACT:
        return _normal_cdf(np.arange(top + 1), top / 2, math.sqrt(n * m * (n + m + 1) / 12))
    ways = [1] + [0] * top  # whole numbers of any size: nothing cancels
    for i in range(1, n + 1):
        for k in range(top, m + i - 1, -1):
            ways[k] -= ways[k - m - i]
        for k in range(i, top + 1):
            ways[k] += ways[k - i]
    total = math.comb(n + m, n)
    return np.cumsum([count / total for count in ways])


def _normal_cdf(k: NDArray[np.int64], mean: float, deviation: float) -> Floats:
    z = (k + 0.5 - mean) / (deviation * math.sqrt(2))
    return np.array([0.5 * math.erfc(-value) for value in z.tolist()])


def needed(module: str, package: str) -> Any:
    """The module of that name, which belongs to `package`. Raises PackageMissing where that is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise PackageMissing(f"{package} is not installed: {to_install('analysis')} ({error})") from error


def stats() -> Any:
    return needed("scipy.stats", "SciPy")


def welch_freedom(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Degrees of freedom of a sum of independent variances (Welch, Biometrika 34 (1947) 28-35); infinite for 0."""
    total = sum(variances)
    parts = ((variance / total) ** 2 / freedom for variance, freedom in zip(variances, freedoms, strict=True))
    return 1 / sum(parts) if total > 0 else math.inf
