"""False alarms where several sides share a base, and where two runs have no blocks: what `power.py` has of both."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import rank_tests
from numpy.typing import NDArray
from results import table

from collbench.analysis import significance
from collbench.analysis.significance import ALPHA, Sample, statistics

Values = NDArray[np.float64]
Draw = np.random.Generator

LAUNCHES, SIZES, ADDED = 7, 14, 0.1
#: Sides besides the base, each with three cells.
SIDES, CELLS = (1, 2, 4, 8), 3

#: Logarithm of what a launch makes of the times of its cells.
NOISES: dict[str, Callable[[Draw, tuple[int, int]], Values]] = {
    "normal, 1 %": lambda draw, shape: draw.normal(0, 0.01, shape),
    "normal, 5 %": lambda draw, shape: draw.normal(0, 0.05, shape),
    "exponential, 1 %": lambda draw, shape: draw.exponential(0.01, shape),
    "log-normal, 1.5": lambda draw, shape: 0.01 * draw.lognormal(0, 1.5, shape),
    "cells switch modes, x 2": lambda draw, shape: (
        math.log(2) * (draw.random(shape) < 0.2) + draw.normal(0, 0.01, shape)
    ),
    "launches switch modes, + 30 %": lambda draw, shape: (
        math.log(1.3) * (draw.random((shape[0], 1)) < 0.2) + draw.normal(0, 0.01, shape)
    ),
}


def shared(draw: Draw, trials: int) -> dict[str, dict[str, float]]:
    """By noise and number of sides, the share of comparisons with a false alarm."""
    rows = significance.flips(LAUNCHES, 1).rows
    shape = (LAUNCHES, CELLS)
    data: dict[str, dict[str, float]] = {}
    for name, noise in NOISES.items():
        data[name] = {}
        for sides in SIDES:
            wrong = 0
            for _ in range(trials):
                base = noise(draw, shape)
                both = [(base[:, cell], other[:, cell])
                        for other in (noise(draw, shape) for _ in range(sides)) for cell in range(CELLS)]  # fmt: skip
                cells = [Sample(np.array(pair), np.arange(LAUNCHES)) for pair in both]
                wrong += bool((significance.of_statistics(statistics(cells, rows, True)).p_adjusted <= ALPHA).any())
            data[name][str(sides)] = wrong / trials
    return data


def unpaired(draw: Draw, trials: int) -> dict[str, dict[str, dict[str, float]]]:
    """By noise and method: of two runs without blocks the share with a false alarm, and of differences seen."""
    rows = significance.exchanges(LAUNCHES, LAUNCHES, 1).rows
    data: dict[str, dict[str, dict[str, float]]] = {}
    for name, noise in NOISES.items():
        found: dict[str, dict[str, list[float]]] = {"rank tests, BH": {}, "collbench": {}}
        for _ in range(trials):
            base, same = (noise(draw, (LAUNCHES, SIZES)) for _ in range(2))
            for what, number in (("false", 0), ("one", 1), ("all", SIZES)):
                other = same + np.where(np.arange(SIZES) < number, math.log1p(ADDED), 0.0)
                cells = [Sample(values, np.arange(2 * LAUNCHES)) for values in np.concatenate((other, base)).T]
                p = {"rank tests, BH": rank_tests.adjusted(base, other, in_blocks=False),
                     "collbench": significance.of_statistics(statistics(cells, rows, False)).p_adjusted}  # fmt: skip
                for method, values in p.items():
                    seen = values <= ALPHA
                    found[method].setdefault(what, []).append(float(seen[:number].mean() if number else seen.any()))
        data[name] = {method: {what: float(np.mean(shares)) for what, shares in of.items()}
                      for method, of in found.items()}  # fmt: skip
    return data


def page(of_shared: dict[str, dict[str, float]], of_runs: dict[str, dict[str, dict[str, float]]], trials: int) -> str:
    """A table for each."""
    parts = [
        f"## Several sides with one base\n\nComparisons with any false alarm, in per cent, of {trials}: a base and so "
        f"many other sides, {CELLS} cells each, {LAUNCHES} blocks.\n\n",
        table(("noise", *(f"sides: {sides}" for sides in SIDES)),
              [[name, *(f"{100 * share:.1f}" for share in of.values())] for name, of in of_shared.items()]),
        f"\n## Two runs without blocks\n\n{trials // 4} comparisons of {SIZES} cells, {LAUNCHES} launches a side. "
        f"False alarms, and differences of {ADDED:.0%} seen where one cell\ndiffers / where all do, in per cent.\n\n",
        table(("noise", "rank tests, BH", "collbench"), [[name, *(map(_said, of.values()))]
                                                        for name, of in of_runs.items()]),
    ]  # fmt: skip
    return "".join(parts)


def _said(shares: dict[str, float]) -> str:
    false, one, all_ = (100 * shares[what] for what in ("false", "one", "all"))
    return f"{false:.1f}, {one:.0f} / {all_:.0f}"
