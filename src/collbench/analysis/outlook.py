"""Whether more blocks can still decide a comparison, so that launches go where they can. It changes no error rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from collbench.analysis.estimate import CONFIDENCE
from collbench.analysis.sequential import fewest_wins

#: A comparison is given up when a verdict by the last block has a lower probability than this.
LEAST_CHANCE = 0.1

#: The wealth with which an interval excludes a value; about as much is needed where pairs are tested together.
_ENOUGH = 2 / (1 - CONFIDENCE)


def chance_of_verdict(logs: Sequence[float], later: int, margin: float) -> float:
    """The probability, at most 1, that so many later blocks give a verdict to a pair with these log ratios.

    Signs of later blocks are drawn with a probability of which the earlier ones are all that is known: a beta-binomial
    distribution with Jeffreys' prior.
    """
    n, bound = len(logs), math.log1p(margin)

    def chance(beyond: int, least: int) -> float:
        return _beta_binomial(least - beyond, later, beyond + 0.5, n - beyond + 0.5)

    needed = fewest_wins(n + later, _ENOUGH)
    total = min(chance(sum(sign * log < bound for log in logs), needed) for sign in (1, -1))
    for sign in (1, -1):
        differs = chance(sum(sign * log > 0 for log in logs), needed)
        total += min(differs, chance(sum(sign * log > bound for log in logs), (n + later + 1) // 2))
    return min(total, 1.0)


@lru_cache(maxsize=100_000)  # few numbers of blocks, many comparisons
def _beta_binomial(least: int, n: int, a: float, b: float) -> float:
    """P(X >= least) of n draws, each with the probability that a Beta(a, b) distribution gave."""
    return sum(math.exp(_log_choose(n, k) + _log_beta(a + k, b + n - k) - _log_beta(a, b))
               for k in range(max(least, 0), n + 1))  # fmt: skip


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
