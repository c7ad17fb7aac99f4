"""Evidence that may be looked at after every block: wealth won by betting on the signs of blocks' log ratios.

Let c be the median of a log ratio d, whatever came before. To bet on the sign of d - c is at best fair: the wealth, 1
at first, is multiplied by 1 + stake x sign, with the stake chosen before the block. The chance that it ever reaches
20, however often and for whatever reason one looks, is at most 1/20 (Ville, Etude critique de la notion de collectif,
1939; betting as statistics: Shafer, Journal of the Royal Statistical Society A 184 (2021) 407-431, and Waudby-Smith
and Ramdas, JRSS B 86 (2024) 1-27; medians: Howard and Ramdas, Bernoulli 28 (2022) 1704-1728). A pair that is no
longer measured is a bet of 0 from then on, which is as fair. NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.estimate import CONFIDENCE, Estimate, HalfSteps, in_logarithms, open_to_clock, ratio_in_blocks
from collbench.analysis.observations import Cell

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: Of these parts of the wealth these shares are staked in each block: the bold part reaches 40 with six blocks that
#: agree, the cautious one bears more that do not.
STAKES = np.array([0.6, 0.9])
PARTS = np.array([0.2, 0.8])

#: A log ratio has its full weight if it is at least half as large as the earlier ones of its pair usually are.
FULL = 0.5

#: What part of the capital is divided after so many blocks, by how much pairs stand out by then; after 0, evenly.
CAPITAL = {0: 0.15, 1: 0.25, 2: 0.25, 3: 0.2, 5: 0.15}

#: What share of such a part is bet on the first pair. Of the rest the pair in place r has the share 1 / (r (r + 1)).
ON_FIRST = 0.5


class Evidence(NamedTuple):
    """Of one pair, after any number of blocks: p of that pair alone, and p of all pairs that are tested together."""

    p: float
    p_adjusted: float


def ratio_at_any_time(
    of: ArrayLike, over: ArrayLike, confidence: float = CONFIDENCE, half_steps: HalfSteps = (0.0, 0.0)
) -> Estimate:
    """As `estimate.ratio_in_blocks`, with an interval that holds after every block at once (a confidence sequence).

    Its ends are the order statistics beyond which so few blocks lie that a bet on c would not have been lost yet.
    """
    of_times, over_times = np.asarray(of, dtype=float), np.asarray(over, dtype=float)
    ordered = np.sort(np.log(of_times) - np.log(over_times)).tolist()
    n = len(ordered)
    value = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    outside = n - fewest_wins(n, 2 / (1 - confidence))  # so many values may lie beyond either end
    interval = (ordered[outside], ordered[n - 1 - outside]) if outside >= 0 else None
    return in_logarithms(Estimate(value, interval, n), open_to_clock(of_times, over_times, half_steps))


def ratio_in_blocks_of(cell: Cell) -> Callable[..., Estimate]:
    """How ratios within blocks are estimated in a run with this cell: its launches may have ended when decided."""
    return ratio_at_any_time if cell.until_decided else ratio_in_blocks


@cache
def fewest_wins(n: int, wealth: float) -> int:
    """The least number of n bets that must be won to reach this wealth; n + 1 where all are not enough."""
    return next((wins for wins in range(n + 1) if _wealth(wins, n) >= wealth), n + 1)


def _wealth(wins: int, n: int) -> float:
    return float(PARTS @ ((1 + STAKES) ** wins * (1 - STAKES) ** (n - wins)))


def evidence(pairs: Sequence[Mapping[int, float]]) -> list[Evidence]:
    """The evidence that each pair differs, from its log ratios by the numbers of their blocks, tested together.

    The chance that any pair that does not differ, or differs in the other direction, ever has a `p_adjusted` of at
    most 0.05 is at most 0.05, however the pairs depend on each other. By closed testing (Marcus, Peritz and Gabriel,
    Biometrika 63 (1976) 655-660; with wealth, Vovk and Wang, Annals of Statistics 49 (2021) 1736-1754): every set of
    hypotheses is tested by parts of a capital of 1. One part is bet on all hypotheses of the set alike; each other
    part, after so many blocks, mostly on the one of them that stands out most by then. A hypothesis has the least
    wealth of the sets that it is in. Sets with one that is rejected already are not asked: before the first error no
    true hypothesis is rejected. A single pair that differs clearly is found as soon among thousands as alone, because
    every set with it bets on it.
    """
    numbers = sorted(set().union(*pairs))
    logs = np.array([[of_pair.get(number, math.nan) for of_pair in pairs] for number in numbers])
    logs = logs.reshape(len(numbers), len(pairs))
    alone = np.ones((2, len(pairs)))
    together = np.full((2, len(pairs)), 1e-300)
    table = _Table(len(pairs))
    for block in range(len(numbers)):
        table.bet(_weighed(logs[:block], logs[block]))
        table.choose(block + 1, logs[: block + 1])
        alone = np.maximum(alone, table.for_each())
        table.settle(together)
    p = np.minimum(1.0, 2 / alone.max(axis=0))
    return [Evidence(float(one), float(min(1.0, 1 / best))) for one, best in zip(p, together.max(axis=0), strict=True)]


class _Chosen(NamedTuple):
    """A part of the capital: each pair's direction (0 up, 1 down) and wealth; `order` are pairs as they stood out."""

    direction: NDArray[np.int64]
    order: NDArray[np.int64]
    wealth: NDArray[np.float64]


class _Table:
    """All bets on so many pairs, block after block."""

    def __init__(self, pairs: int) -> None:
        self._of_all = np.ones((2, len(STAKES), pairs))
        self._chosen: dict[int, _Chosen] = {}
        self._rejected = np.zeros((2, pairs), dtype=bool)
        self._each = np.arange(pairs)

    def bet(self, signs: NDArray[np.float64]) -> None:
        """A block: of each pair the sign of its log ratio times a weight in [0, 1]; 0 where it is missing."""
        for direction, side in enumerate((signs, -signs)):
            self._of_all[direction] *= 1 + STAKES[:, None] * side
        for part in self._chosen.values():
            part.wealth[:] *= 1 + STAKES[:, None] * np.where(part.direction == 0, signs, -signs)

    def choose(self, blocks: int, logs: NDArray[np.float64]) -> None:
        """After so many blocks, if a part of the capital is to be bet from then on."""
        if blocks in CAPITAL:
            score = _standing_out(logs)
            direction = np.where(score >= 0, 0, 1)
            order = np.argsort(-np.abs(score), kind="stable")
            self._chosen[blocks] = _Chosen(direction, order, np.ones((len(STAKES), len(score))))

    def for_each(self) -> NDArray[np.float64]:
        """[2, pairs] the wealth of bets on each pair alone, by direction."""
        of_each: NDArray[np.float64] = np.einsum("s,dsp->dp", PARTS, self._of_all)
        return of_each

    def settle(self, together: NDArray[np.float64]) -> None:
        """Raise `together` [2, pairs] to the least wealth of the sets that each hypothesis is in."""
        while True:
            np.maximum(together, self._least(), out=together, where=~self._rejected)
            new = (together >= 1 / (1 - CONFIDENCE)) & ~self._rejected
            if not new.any():
                return
            self._rejected |= new

    def _least(self) -> NDArray[np.float64]:
        """[2, pairs] at most the wealth of each set that a hypothesis is in with others that are not rejected.

        In such a set a part's first hypothesis is this one, or one that stood out more; and its own place is at
        least as good as among all.
        """
        hypotheses = max(int((~self._rejected).sum()), 1)
        least: NDArray[np.float64] = CAPITAL[0] * self.for_each() / hypotheses
        for blocks, part in self._chosen.items():
            wealth = PARTS @ part.wealth
            out = self._rejected[part.direction, self._each][part.order]
            of_first, own = np.empty_like(wealth), np.empty_like(wealth)
            of_first[part.order] = np.minimum.accumulate(np.where(out, np.inf, wealth[part.order]))
            place = np.maximum(np.cumsum(~out), 1)
            own[part.order] = wealth[part.order] / (place * (place + 1))
            share = ON_FIRST * np.minimum(of_first, wealth) + (1 - ON_FIRST) * own
            least[part.direction, self._each] += CAPITAL[blocks] * share
        return least


def _weighed(past: NDArray[np.float64], logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Signs of log ratios [pairs], those that are small beside the past [blocks, pairs] at less than their full weight.

    Where names mean nothing, because the order within blocks is drawn, a log ratio is as likely to be positive as
    negative whatever its size, so its size may decide on the weight. The weight grows with the size: so the game is no
    better where the log ratio is distributed symmetrically around a median on the other side.
    """
    usual = _middle(np.abs(past))
    now = np.where(np.isnan(logs), 0.0, logs)
    return np.asarray(np.sign(now) * np.minimum(1.0, np.abs(now) / np.maximum(FULL * usual, 1e-300)))


def _standing_out(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """[pairs] how far the median of log ratios [blocks, pairs] is from 0, in spreads; 0 without blocks.

    The spread of few blocks is drawn towards that of all pairs. Which pair is bet on changes no chance of a false
    verdict, so any score is allowed.
    """
    n = np.maximum((~np.isnan(logs)).sum(axis=0), 1)
    middle = _middle(logs)
    away = np.abs(logs - middle)
    spread = _middle(away) if len(logs) > 2 else np.nan_to_num(away).sum(axis=0) / n
    shared = float(np.median(spread)) + 1e-12
    return np.asarray(middle / ((n * spread + 2 * shared) / (n + 2)) * np.sqrt(n))


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Medians of columns [blocks, pairs] without NaN, 0 where nothing else is; a fifth of the time of nanmedian."""
    n = (~np.isnan(values)).sum(axis=0)
    if not len(values):
        return np.zeros(values.shape[1])
    ordered = np.sort(values, axis=0)  # NaN come last
    two = np.array([np.maximum(n - 1, 0) // 2, n // 2])
    return np.where(n > 0, np.take_along_axis(ordered, two, axis=0).mean(axis=0), 0.0)
