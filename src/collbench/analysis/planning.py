"""What launches decide, before they are made: how many more a cell needs for a verdict, and what a number can show.

Both with a probability of 80 %, by the intervals of launches that were made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.arrangements import ALPHA
from collbench.analysis.estimate import Estimate
from collbench.analysis.optional import ndtr, stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: More launches than this are not suggested.
MOST = 1000

#: The probability of a verdict that is planned for.
CHANCE = 0.8

#: The usual size of differences (logarithm of a ratio).
USUAL = 0.2

#: A p above a half says nothing of the spread.
_LEAST_SCORE = 0.67

_NORMAL = NormalDist()


def launches_more(ratio: Estimate, margin: float) -> int | None:
    """Launches a side after which there is a verdict with probability `CHANCE`; None above `MOST`.

    The prior: nothing differs with probability 1/2, otherwise the logarithm of the ratio is normal, 0 +- `USUAL`. The
    interval makes a posterior of it, from which follows how the estimate and its interval are distributed after more
    launches (predictive power: Spiegelhalter, Freedman and Blackburn, Controlled Clinical Trials 7 (1986) 8-17).
    """
    assert ratio.interval is not None
    if hidden_by_clock(ratio, margin) or not all(0 < end < math.inf for end in ratio.interval):
        return None
    low, high = (math.log(end) for end in ratio.interval)
    half = max((high - low) / 2 - ratio.resolution, 1e-9)
    later = ratio.n + _TRIED
    narrower = half * np.sqrt(ratio.n / later)
    known = _Known(abs(math.log(ratio.value)), half / _score(ALPHA), ratio.n)
    inside = np.maximum(math.log1p(margin) - narrower - ratio.resolution, 0.0)
    chance = known.chance_outside(narrower + ratio.resolution, later) + 1 - known.chance_outside(inside, later)
    enough = np.flatnonzero(chance >= CHANCE)
    return int(_TRIED[enough[0]]) if len(enough) else None


class Power(NamedTuple):
    """What so many launches a side show of comparisons, each with probability `CHANCE`.

    `differences` are shares, ascending: of each comparison the least true difference that excludes equality. `same` is
    how many, if nothing differs, have their whole interval within the margin.
    """

    launches: int
    differences: tuple[float, ...]
    same: int


def power(ratios: Sequence[Estimate], launches: int, margin: float) -> Power:
    """Of `launches` a side, at least `FEWEST`, on sides whose launches spread as those of these ratios did.

    The half width of an interval of n launches is taken to be t of n - 1 degrees of freedom times the standard error,
    and that to fall with the square root of n. Ratios without a finite interval are left out.
    """
    quantile = stats().t.ppf
    wanted = float(quantile(1 - ALPHA / 2, launches - 1))
    widths = []
    for ratio in ratios:
        if ratio.interval is None or not all(0 < end < math.inf for end in ratio.interval):
            continue
        half = max(math.log(ratio.interval[1] / ratio.interval[0]) / 2 - ratio.resolution, 0.0)
        error = half / float(quantile(1 - ALPHA / 2, ratio.n - 1)) * math.sqrt(ratio.n / launches)
        widths.append((wanted * error + ratio.resolution, error))
    seen = sorted(math.expm1(half + _NORMAL.inv_cdf(CHANCE) * error) for half, error in widths)
    within = _NORMAL.inv_cdf((1 + CHANCE) / 2)
    return Power(launches, tuple(seen), sum(half + within * error <= math.log1p(margin) for half, error in widths))


def hidden_by_clock(ratio: Estimate, margin: float) -> bool:
    """Whether the clock's step, more than the spread of launches, keeps the interval from being narrow enough."""
    assert ratio.interval is not None
    half = math.log(ratio.interval[1] / ratio.interval[0]) / 2
    return ratio.resolution > math.log1p(margin) / 3 and ratio.resolution > half / 2


@dataclass(frozen=True)
class _Known:
    """A difference (logarithm) estimated from n launches, with its standard error."""

    effect: float
    error: float
    n: int

    def chance_outside(self, bound: NDArray[np.float64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        """The chance [m] that after `later` [m] launches the estimate lies beyond +-`bound` [m]."""
        wide = math.hypot(self.error, USUAL)
        nothing, something = (_density(self.effect, deviation) for deviation in (self.error, wide))
        share = nothing / max(nothing + something, 1e-300)
        shrunk = (USUAL / wide) ** 2
        return share * self._outside(bound, later, 0.0, 0.0) + (1 - share) * self._outside(
            bound, later, self.effect * shrunk, self.error * math.sqrt(shrunk)
        )

    def _outside(
        self, bound: NDArray[np.float64], later: NDArray[np.int64], true: float, unsure: float
    ) -> NDArray[np.float64]:
        """The same where the difference is `true` +- `unsure`: n launches had `effect`, the others are to come."""
        new = 1 - self.n / later
        centre = (1 - new) * self.effect + new * true
        deviation = np.sqrt((new * unsure) ** 2 + new * (1 - new) * self.error**2)
        return _above(bound, centre, deviation) + _above(bound, -centre, deviation)


def _density(value: float, deviation: float) -> float:
    return math.exp(-((value / deviation) ** 2) / 2) / deviation


#: Numbers of launches that are tried: each, then in steps of 6 %.
_TRIED = np.unique(np.concatenate((np.arange(1, 17), np.geomspace(17, MOST, 72).astype(int))))


def _score(two_sided: float) -> float:
    """The normal score beyond which, on both sides together, lies this probability."""
    return _NORMAL.inv_cdf(1 - max(min(two_sided, 1.0), 1e-300) / 2)


def _above(
    value: NDArray[np.float64], centre: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """P(X > value) of normal X."""
    share: NDArray[np.float64] = ndtr()((centre - value) / np.maximum(deviation, 1e-12))
    return share
