"""What launches decide, before they are made: how many more a cell needs for a verdict, and what a number can show.

Both with a probability of 80 %, by the intervals of launches that were made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.bounds import ALPHA, Launches, excluded, in_order
from collbench.analysis.estimate import CONFIDENCE, FEWEST, Estimate, ndtr, stats

#: More launches than this are not suggested.
MOST = 1000

#: The probability of a verdict that is planned for.
CHANCE = 0.8

#: The usual size of differences (logarithm of a ratio).
USUAL = 0.2

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
    known = _Known(abs(math.log(ratio.value)), half / _NORMAL.inv_cdf(1 - ALPHA / 2), ratio.n)
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
    critical = float(quantile(1 - ALPHA / 2, launches - 1))
    widths = []
    for ratio in ratios:
        if ratio.interval is None or not all(0 < end < math.inf for end in ratio.interval):
            continue
        half = max(math.log(ratio.interval[1] / ratio.interval[0]) / 2 - ratio.resolution, 0.0)
        error = half / float(quantile(1 - ALPHA / 2, ratio.n - 1)) * math.sqrt(ratio.n / launches)
        widths.append((critical * error + ratio.resolution, error))
    effects = sorted(math.expm1(half + _NORMAL.inv_cdf(CHANCE) * error) for half, error in widths)
    within = _NORMAL.inv_cdf((1 + CHANCE) / 2)
    return Power(launches, tuple(effects), sum(half + within * error <= math.log1p(margin) for half, error in widths))


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
        nothing, something = (math.exp(-((self.effect / deviation) ** 2) / 2) / deviation
                              for deviation in (self.error, wide))  # fmt: skip
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


#: Numbers of launches that are tried: each, then in steps of 6 %.
_TRIED = np.unique(np.concatenate((np.arange(1, 17), np.geomspace(17, MOST, 72).astype(int))))


def _above(
    value: NDArray[np.float64], centre: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """P(X > value) of normal X."""
    share: NDArray[np.float64] = ndtr()((centre - value) / np.maximum(deviation, 1e-12))
    return share


#: Ways to swap names: all of them up to eight blocks, else so many at random.
SWAPS = 256
SEED = 1

#: A difference is detected when this share of the swaps finds it.
POWER = 0.8

#: Differences that are tried, as shares.
STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)


def false_positives(cells: Sequence[Launches]) -> float:
    """The share of swaps in which the interval of any cell of a question excludes equality, without any difference."""
    swaps = _swaps(cells)
    none = [[0.0]] * len(cells)
    return sum(any(first for (first,) in excluded(_swapped(cells, signs), True, none)) for signs in swaps) / len(swaps)


def smallest(cells: Sequence[Launches], margin: float) -> list[float | None]:
    """For each cell of a question the least of `STEPS` that is seen in 80 % of the swaps; None where none is.

    The difference is in that cell alone, and none in all others: the hardest case for cells that are judged at once.
    An interval that does not hold a loss that is not there would not hold equality if it were.
    """
    swaps, steps = _swaps(cells), [step for step in STEPS if step > margin]
    places = [[-math.log1p(step) for step in steps]] * len(cells)
    detected = np.mean([excluded(_swapped(cells, signs), True, places) for signs in swaps], axis=0)
    return [next((step for step, share in zip(steps, of_cell, strict=True) if share >= POWER), None)
            for of_cell in detected.tolist()]  # fmt: skip


def _swaps(cells: Sequence[Launches]) -> NDArray[np.int64]:
    """[swaps, blocks]: -1 where the names of a block are swapped; every cell of a block is swapped with it."""
    blocks = max(len(cell.base) for cell in cells)
    if 2**blocks <= SWAPS:
        every: NDArray[np.int64] = 1 - 2 * ((np.arange(2**blocks)[:, None] >> np.arange(blocks)) & 1)
        return every
    return np.random.default_rng(SEED).choice(np.array([1, -1]), (SWAPS, blocks))


def _swapped(cells: Sequence[Launches], signs: NDArray[np.int64]) -> list[Launches]:
    swapped = []
    for cell in cells:
        as_named = signs[: len(cell.base)] > 0
        sides = np.where(as_named, cell.base, cell.other), np.where(as_named, cell.other, cell.base)
        swapped.append(in_order(sides[0].tolist(), sides[1].tolist()))
    return swapped


@dataclass(frozen=True)
class Movement:
    """The least and the largest value of a yardstick, in its unit, of so many readings."""

    name: str
    least: float
    largest: float
    readings: int

    @property
    def share(self) -> float:
        """By what share the largest exceeds the least."""
        return self.largest / self.least - 1


def movements(readings: Iterable[Mapping[str, float | None]]) -> tuple[Movement, ...]:
    """Of each yardstick that has a value in some reading, in the order of the first one."""
    values: dict[str, list[float]] = {}
    for reading in readings:
        for name, value in reading.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return tuple(Movement(name, min(found), max(found), len(found)) for name, found in values.items())


@dataclass(frozen=True)
class Cost:
    """What the spread of launches costs: its size, and the launches a side that show a `difference`.

    `spread` is the standard deviation of a block's log ratio, `launches` those of the cell that spreads most.
    """

    spread: float
    difference: float
    launches: int


def cost(cells: Sequence[Launches], difference: float) -> Cost | None:
    """The launches a side by which a difference (a share, above 0) of one cell alone is seen in 80 % of experiments.

    n = ((z_0.975 + z_0.8) s / log(1 + difference))^2 blocks with a spread s of their log ratios: the sample size of a
    paired test of normal values (Cohen, Statistical Power Analysis, 2nd ed., section 2.3), and at least `FEWEST`. Cells
    that are tested together, and launches that are not normal, need more. None for a difference of 0, and where no cell
    has two blocks.
    """
    several = [cell for cell in cells if len(cell.base) > 1]
    if not several or difference <= 0:
        return None
    spread = max(float(np.std(np.log(cell.other) - np.log(cell.base), ddof=1)) for cell in several)
    scores = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2) + _NORMAL.inv_cdf(POWER)
    return Cost(spread, difference, max(FEWEST, math.ceil((scores * spread / math.log1p(difference)) ** 2)))
