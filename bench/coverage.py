"""How often intervals of a ratio hold the true one, and how wide they are: ours and four others, on made-up launches.

    python bench/coverage.py

An experiment has n blocks; in each both sides are launched once, and what the block does to both divides out. The true
ratio is 1. Four kinds of noise of a launch: normal (2 %), skewed (log-normal 5 %), heavy-tailed (Student's t with 2
degrees of freedom, 2 %), and launches that switch modes (one in five takes twice as long, 1 % besides). Needs NumPy,
SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import keep, table
from scipy import stats

from collbench.analysis.estimate import ratio_in_blocks

Values = NDArray[np.float64]
Draw = np.random.Generator
Interval = tuple[float, float]

LAUNCHES = (6, 7, 10, 25)
LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)

#: Logarithm of what a launch makes of a time, by kind of noise.
NOISES: dict[str, Callable[[Draw, tuple[int, int]], Values]] = {
    "normal": lambda draw, shape: draw.normal(0.0, 0.02, shape),
    "skewed": lambda draw, shape: np.log1p(0.05 * draw.lognormal(0.0, 1.0, shape)),
    "heavy-tailed": lambda draw, shape: 0.02 * draw.standard_t(2, shape),
    "switching modes": lambda draw, shape: math.log(2) * (draw.random(shape) < 0.2) + draw.normal(0.0, 0.01, shape),
}


def experiments(noise: str, n: int, number: int, draw: Draw) -> tuple[Values, Values]:
    """Launch medians of both sides, [number, n]: blocks drift by 10 %."""
    block = draw.normal(0.0, 0.1, (number, n))
    sides = [np.exp(block + NOISES[noise](draw, (number, n))) for _ in range(2)]
    return sides[0], sides[1]


def bootstrap_of_median(ratios: Values, draw: Draw, times: int) -> Interval:
    """Percentiles of the medians of blocks drawn again."""
    again = ratios[draw.integers(0, len(ratios), (times, len(ratios)))]
    low, high = np.quantile(np.median(again, axis=1), TAILS)
    return float(low), float(high)


def bootstrap_of_mean(ratios: Values, draw: Draw, times: int) -> Interval:
    """Percentiles of the geometric means of blocks drawn again."""
    logs = np.log(ratios)
    again = logs[draw.integers(0, len(logs), (times, len(logs)))]
    low, high = np.exp(np.quantile(again.mean(axis=1), TAILS))
    return float(low), float(high)


def studentised(ratios: Values, draw: Draw, times: int) -> Interval:
    """Bootstrap-t of the geometric mean (Efron and Tibshirani, An Introduction to the Bootstrap, section 12.5)."""
    logs = np.log(ratios)
    n, mean = len(logs), logs.mean()
    again = logs[draw.integers(0, n, (times, n))]
    errors = again.std(axis=1, ddof=1) / math.sqrt(n)
    useful = errors > 0  # a sample of one block alone tells no spread
    scores = (again.mean(axis=1) - mean)[useful] / errors[useful]
    high, low = mean - np.quantile(scores, TAILS) * logs.std(ddof=1) / math.sqrt(n)
    return math.exp(min(low, 700.0)), math.exp(min(high, 700.0))


def signed_rank(ratios: Values, draw: Draw, times: int) -> Interval:
    """Hodges and Lehmann: the means of pairs of logarithms that Wilcoxon's signed-rank test does not tell from 1."""
    logs = np.log(ratios)
    n = len(logs)
    rows, columns = np.triu_indices(n)
    means = np.sort((logs[rows] + logs[columns]) / 2)
    k = max(_signed_rank_steps(n), 1)
    return math.exp(means[k - 1]), math.exp(means[-k])


def _signed_rank_steps(n: int) -> int:
    """The largest k with P(W <= k - 1) at most the tail, for the signed-rank statistic of n blocks."""
    ways = np.array([1.0])
    for rank in range(1, n + 1):
        more = np.zeros(len(ways) + rank)
        more[: len(ways)] += ways
        more[rank:] += ways
        ways = more
    return int(np.searchsorted(np.cumsum(ways) / 2.0**n, TAILS[0], side="right"))


def ours(ratios: Values, draw: Draw, times: int) -> Interval:
    """`collbench.analysis.estimate.ratio_in_blocks`."""
    found = ratio_in_blocks(ratios, np.ones(len(ratios))).interval
    assert found is not None
    return found


METHODS: dict[str, Callable[[Values, Draw, int], Interval]] = {
    "bootstrap of the median": bootstrap_of_median,
    "bootstrap of the mean": bootstrap_of_mean,
    "studentised bootstrap": studentised,
    "signed-rank": signed_rank,
    "ratio_in_blocks": ours,
}


def measured(noise: str, n: int, asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Of each method: the share of intervals that hold 1, and the median of their widths in per cent."""
    draw = np.random.default_rng([asked.seed, n, list(NOISES).index(noise)])
    of, over = experiments(noise, n, asked.experiments, draw)
    found = {}
    for name, method in METHODS.items():
        ends = np.array([method(ratios, draw, asked.resamples) for ratios in of / over])
        held = (ends[:, 0] <= 1) & (ends[:, 1] >= 1)
        found[name] = {"coverage": float(held.mean()), "width": float(np.median(ends[:, 1] - ends[:, 0])) * 100}
    return found


def page(asked: argparse.Namespace, data: dict[str, Any]) -> str:
    """A table for each kind of noise."""
    error = stats.norm.ppf(TAILS[1]) * math.sqrt(LEVEL * (1 - LEVEL) / asked.experiments) * 100
    parts = [
        f"# Coverage of 95 % intervals of a ratio\n\n{asked.experiments} experiments for each cell, seed {asked.seed}; "
        f"{asked.resamples} resamples. Share of intervals that hold\nthe true ratio, and median width in per cent of "
        f"it. A share is good to {error:.1f} points. Blocks drift by 10 %, which divides out.\n"
    ]
    for noise in NOISES:
        cells = [data[f"{noise}, {n}"] for n in asked.launches]
        rows = [[name, *(f"{one[name]['coverage']:.1%} / {one[name]['width']:.3g} %" for one in cells)]
                for name in METHODS]  # fmt: skip
        parts.append(f"## {noise.capitalize()}\n\n" + table(("", *(f"{n} launches" for n in asked.launches)), rows))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=2000, help="per kind of noise and number of launches [2000]")
    parser.add_argument("--resamples", type=int, default=2000, help="of each bootstrap [2000]")
    parser.add_argument("--launches", type=int, nargs="+", default=list(LAUNCHES), help="blocks of an experiment")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    data: dict[str, Any] = {"seed": asked.seed, "experiments": asked.experiments, "resamples": asked.resamples}
    for noise in NOISES:
        for n in asked.launches:
            data[f"{noise}, {n}"] = measured(noise, n, asked)
    keep("coverage", page(asked, data), data)


if __name__ == "__main__":
    main()
