"""From samples to the numbers of a record: quantiles and an exact interval of the median, without SciPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Seconds, never negative, and less than three centuries.
Time = Annotated[float, msgspec.Meta(ge=0, le=1e10)]

#: Two quantiles that are one value may differ in their last digits.
_ROUNDING = 1e-9


class Seconds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The distribution of the valid samples of one case in one launch, in seconds. No outliers are removed.

    `ci95` is a confidence interval of the median over the samples of this launch, which are not independent: for
    comparisons `analysis` computes one from several launches.
    `lag1` is the autocorrelation of neighbouring samples; far from 0, `ci95` is too narrow.
    """

    min: Time
    p50: Time
    p95: Time
    p99: Time
    max: Time
    mean: Time
    ci95: tuple[Time, Time]
    lag1: float | None


def in_order(seconds: Seconds) -> bool:
    """Whether, up to rounding, quantiles rise, and the mean and the interval of the median are possible."""
    least, median, most, (low, high) = seconds.min, seconds.p50, seconds.max, seconds.ci95
    loose = 1 + _ROUNDING
    return (
        least <= median * loose
        and median <= seconds.p95 * loose
        and seconds.p95 <= seconds.p99 * loose
        and seconds.p99 <= most * loose
        and least <= seconds.mean * loose
        and seconds.mean <= most * loose
        and least <= low * loose
        and low <= median * loose
        and median <= high * loose
        and high <= most * loose
    )


def median_interval_ranks(n: int, confidence: float = 0.95) -> tuple[int, int]:
    """Zero-based order statistics (low, high) that enclose the median of `n` samples with at least `confidence`.

    The number of samples below the median is Binomial(n, 1/2), whatever the distribution (David and Nagaraja, Order
    Statistics, 3rd ed., section 7.1). Below 6 samples no pair reaches 95 %, and the whole range is returned.
    """
    tail = (1.0 - confidence) / 2.0
    cumulative, low = 0.0, -1
    for k in range((n + 1) // 2):
        cumulative += math.exp(_log_choose(n, k) - n * math.log(2.0))
        if cumulative > tail:
            break
        low = k
    low = max(low, 0)
    return low, n - 1 - low


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def lag1_autocorrelation(values: NDArray[np.float64]) -> float | None:
    """Sample autocorrelation at lag 1 of `values` [n]; None below 3 values or when they are all the same."""
    if len(values) < 3:
        return None
    centred = values - values.mean()
    power = float((centred * centred).sum())
    return float((centred[:-1] * centred[1:]).sum()) / power if power > 0.0 else None


def summarise(nanoseconds: NDArray[np.int64]) -> Seconds:
    """Summary of the valid samples [n] in nanoseconds; n must be at least 1. Quantiles interpolate linearly."""
    import numpy as np

    seconds = nanoseconds.astype(np.float64) * 1e-9
    ordered = np.sort(seconds)
    p50, p95, p99 = np.quantile(ordered, [0.5, 0.95, 0.99])
    low, high = median_interval_ranks(len(ordered))
    return Seconds(
        min=float(ordered[0]),
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        max=float(ordered[-1]),
        mean=float(ordered.mean()),
        ci95=(float(ordered[low]), float(ordered[high])),
        lag1=lag1_autocorrelation(seconds),
    )
