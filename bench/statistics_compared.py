"""False alarms of whole comparisons, and differences seen, by statistic and noise: what `power.py` has of 14 cells.

A comparison has 14 cells in 7 blocks; blocks drift by 0 or 10 %. Nothing differs, or 10 % at one cell, at four, or at
all. Counted are adjusted p values of at most 0.05; a verdict also needs the interval to exclude equality.
"""

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

BLOCKS, CELLS, ADDED = 7, 14, 0.1
DRIFTS = (0.0, 0.1)
#: Cells that differ.
DIFFERING = {"one": 1, "four": 4, "all": CELLS}
STEP = 1e-8
SHAPE = (BLOCKS, CELLS)


def _outliers(draw: Draw) -> Values:
    far = draw.choice([-1, 1], SHAPE) * draw.exponential(0.5, SHAPE)
    return draw.normal(0, 0.01, SHAPE) + far * (draw.random(SHAPE) < 0.1)


#: Logarithm of what a launch makes of the times of its cells, [blocks, cells].
NOISES: dict[str, Callable[[Draw], Values]] = {
    "normal 1 %": lambda draw: draw.normal(0, 0.01, SHAPE),
    "normal 3 %": lambda draw: draw.normal(0, 0.03, SHAPE),
    "normal 5 %": lambda draw: draw.normal(0, 0.05, SHAPE),
    "cells depend on each other, 1 %": lambda draw: draw.normal(0, 0.003, SHAPE) + draw.normal(0, 0.01, (BLOCKS, 1)),
    "skewed, 5 %": lambda draw: np.log1p(0.05 * draw.lognormal(0, 1, SHAPE)),
    "heavy-tailed, 2 %": lambda draw: 0.02 * draw.standard_t(2, SHAPE),
    "outliers, one in ten": _outliers,
    "cells switch modes, x 2": lambda draw: math.log(2) * (draw.random(SHAPE) < 0.2) + draw.normal(0, 0.01, SHAPE),
    "launches switch modes, + 30 %": lambda draw: (
        math.log(1.3) * (draw.random((BLOCKS, 1)) < 0.2) + draw.normal(0, 0.01, SHAPE)
    ),
    "10 ns steps at 200 ns": lambda draw: draw.normal(0, 0.005, SHAPE),
    "no spread": lambda draw: np.zeros(SHAPE),
}


def _t(base: Values, other: Values, rows: Values) -> Values:
    """Student's t of the differences, [cells, arrangements]."""
    differences = other - base
    total, squares = rows @ differences, (differences**2).sum(axis=0)
    spread = np.maximum(BLOCKS * squares - total**2, 1e-9 * BLOCKS * squares + 1e-300)
    found: Values = (np.abs(total) / np.sqrt(spread)).T
    return found


def _hodges_lehmann(base: Values, other: Values, rows: Values) -> Values:
    """The median of means of pairs over that of their distances (Shamos), [cells, arrangements]."""
    signed = rows[:, :, None] * (other - base)
    i, j = np.triu_indices(BLOCKS)
    a, b = np.triu_indices(BLOCKS, 1)
    centre = np.abs(np.median((signed[:, i] + signed[:, j]) / 2, axis=1))
    scale = np.median(np.abs(signed[:, a] - signed[:, b]), axis=1)
    found: Values = (centre / np.maximum(scale, 1e-9 * np.abs(other - base).max(axis=0) + 1e-300)).T
    return found


def _ours(base: Values, other: Values, rows: Values) -> Values:
    cells = [Sample(np.array(pair), np.arange(BLOCKS)) for pair in zip(base.T, other.T, strict=True)]
    return statistics(cells, rows.astype(np.int8), in_blocks=True).astype(float)


STATISTICS = {"t": _t, "Hodges-Lehmann": _hodges_lehmann, "ours": _ours}
METHODS = ("rank tests, BH", *STATISTICS, "collbench")


def measured(draw: Draw, trials: int) -> dict[str, dict[str, dict[str, float]]]:
    """By noise and drift, then by method: the share of comparisons with a false alarm, and of differences seen."""
    rows = significance.flips(BLOCKS, 1).rows.astype(float)
    data: dict[str, dict[str, dict[str, float]]] = {}
    for name, noise in NOISES.items():
        for drift in DRIFTS:
            found: dict[str, dict[str, list[float]]] = {method: {} for method in METHODS}
            for _ in range(trials):
                block = draw.normal(0, drift, (BLOCKS, 1))
                base, other = (block + noise(draw) for _ in range(2))
                for number in (0, *DIFFERING.values()):
                    _add(found, base, other, number, rows, steps=name.startswith("10 ns"))
            data[f"{name}, drift {drift:.0%}"] = {
                method: {what: float(np.mean(shares)) for what, shares in of_method.items()}
                for method, of_method in found.items()
            }
    return data


def _add(
    found: dict[str, dict[str, list[float]]], base: Values, other: Values, number: int, rows: Values, steps: bool
) -> None:
    """What each method sees of so many cells that differ; of none, whether it sees any."""
    other = other + np.where(np.arange(CELLS) < number, math.log1p(ADDED), 0.0)
    if steps:
        base, other = (np.log(np.maximum(np.rint(2e-7 * np.exp(side) / STEP), 1) * STEP) for side in (base, other))
    p = {"rank tests, BH": rank_tests.adjusted(base, other, in_blocks=True)}
    found_by = {name: make(base, other, rows).astype(np.float32) for name, make in STATISTICS.items()}
    p |= {name: significance.step_down(of_cells[:, 0], [of_cells]).p_adjusted for name, of_cells in found_by.items()}
    p["collbench"] = significance.of_statistics(found_by["ours"]).p_adjusted
    what = next((word for word, cells in DIFFERING.items() if cells == number), "false")
    for method, values in p.items():
        seen = values <= ALPHA
        found[method].setdefault(what, []).append(float(seen[:number].mean() if number else seen.any()))


def page(data: dict[str, dict[str, dict[str, float]]], trials: int) -> str:
    """A table of false alarms, and one of differences seen for each drift."""
    parts = [
        f"## By noise and statistic\n\n{trials} comparisons of {CELLS} cells in {BLOCKS} blocks. Rank tests with "
        "Benjamini and Hochberg's adjustment are what verdicts had\nbefore; the others are statistics under exchanges "
        "of names in whole blocks, with the step-down maximum:\nStudent's t, Hodges and Lehmann's estimate over "
        "Shamos' scale, and ours. collbench has ours with closed tests of\nsums.\n\n"
        "Comparisons with any false alarm, in per cent:\n\n"
    ]
    heads = ("noise", *METHODS)
    parts.append(table(heads, [[name, *(f"{100 * of[method]['false']:.1f}" for method in METHODS)]
                               for name, of in data.items()]))  # fmt: skip
    parts.append(f"\nDifferences of {ADDED:.0%} seen, in per cent, where one cell differs / four do / all:\n\n")
    parts.append(table(heads, [[name, *(" / ".join(f"{100 * of[method][what]:.0f}" for what in DIFFERING)
                                        for method in METHODS)] for name, of in data.items()]))  # fmt: skip
    return "".join(parts)
