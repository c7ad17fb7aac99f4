"""Evidence that may be looked at after every block: wealth won by betting on the signs of blocks' log ratios.

Let c be the median of a log ratio d, whatever came before. To bet on the sign of d - c is at best fair: the wealth, 1
at first, is multiplied by 1 + stake x sign, with the stake chosen before the block. The chance that it ever reaches
20, however often and for whatever reason one looks, is at most 1/20 (Ville, Etude critique de la notion de collectif,
1939; betting as statistics: Shafer, Journal of the Royal Statistical Society A 184 (2021) 407-431, and Waudby-Smith
and Ramdas, JRSS B 86 (2024) 1-27; medians: Howard and Ramdas, Bernoulli 28 (2022) 1704-1728). A pair that is no
longer measured is a bet of 0 from then on, which is as fair. Of the sizes of one question each has its part of 5 %.
NumPy alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.arrangements import ALPHA
from collbench.analysis.bounds import Bounds, Launches, Name
from collbench.analysis.estimate import CONFIDENCE, Estimate, HalfSteps, in_logarithms, open_to_clock, ratio_in_blocks
from collbench.analysis.observations import Cell

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: Of these parts of the wealth these shares are staked in each block: the bold part reaches 40 with six blocks that
#: agree, the cautious one bears more that do not.
STAKES = np.array([0.6, 0.9])
PARTS = np.array([0.2, 0.8])


def ratio_at_any_time(
    of: ArrayLike, over: ArrayLike, confidence: float = CONFIDENCE, half_steps: HalfSteps = (0.0, 0.0)
) -> Estimate:
    """As `estimate.ratio_in_blocks`, with an interval that holds after every block at once (a confidence sequence)."""
    of_times, over_times = np.asarray(of, dtype=float), np.asarray(over, dtype=float)
    ordered = np.sort(np.log(of_times) - np.log(over_times))
    ends = _least(ordered, 2 / (1 - confidence)), _most(ordered, 2 / (1 - confidence))
    estimate = Estimate(float(np.median(ordered)), ends if math.isfinite(ends[0]) else None, len(ordered))
    return in_logarithms(estimate, open_to_clock(of_times, over_times, half_steps))


def _least(ordered: NDArray[np.float64], wealth: float) -> float:
    """The order statistic below which so few values lie that a bet on it would not have been lost; else infinite."""
    outside = len(ordered) - fewest_wins(len(ordered), wealth)
    return float(ordered[outside]) if outside >= 0 else -math.inf


def _most(ordered: NDArray[np.float64], wealth: float) -> float:
    return -_least(-ordered[::-1], wealth)


def ratio_in_blocks_of(cell: Cell) -> Callable[..., Estimate]:
    """How the ratio of one cell is estimated within blocks: launches of its run may have ended when decided."""
    return ratio_at_any_time if cell.until_decided else ratio_in_blocks


def bounds_at_any_time(cells: Sequence[dict[int, float]]) -> list[Bounds]:
    """As `bounds.bounds`, by bets: they hold after every block. Each bet on one side needs half the wealth of two."""
    each = [np.sort([*cell.values()]) for cell in cells]
    return [Bounds(float(np.median(one)), _least(one, len(cells) / ALPHA), _most(one, 1 / ALPHA)) for one in each]


def of_controls_at_any_time(pairs: Mapping[tuple[Name, Name], Launches]) -> dict[tuple[Name, Name], float]:
    """As `bounds.of_controls`, by bets: they hold after every block. Each has its part of `ALPHA`."""
    others = Counter(name for key in pairs for name in key)
    found = {}
    for (base, other), cell in pairs.items():
        ordered = np.sort(np.log(cell.other) - np.log(cell.base))
        found[base, other] = _least(ordered, others[other] / ALPHA)
        found[other, base] = _least(-ordered[::-1], others[base] / ALPHA)
    return found


@cache
def fewest_wins(n: int, wealth: float) -> int:
    """The least number of n bets that must be won to reach this wealth; n + 1 where all are not enough."""
    return next((wins for wins in range(n + 1) if _wealth(wins, n) >= wealth), n + 1)


def _wealth(wins: int, n: int) -> float:
    return float(PARTS @ ((1 + STAKES) ** wins * (1 - STAKES) ** (n - wins)))
