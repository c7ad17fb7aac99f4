"""Intervals of crossings and of what steps give back cover what they say they do, over simulated experiments."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_runs import made_case

from collbench.analysis.crossover import crossover
from collbench.analysis.observations import Cell
from collbench.analysis.options import Option, Question
from collbench.analysis.recovery import recoveries

EXPERIMENTS = 2000
SIZES = [1 << power for power in range(8, 18)]
CASE = made_case()


def option(library: str, policy: str = "host", step: str = "") -> Option:
    return Option((library, policy, step, "native", "single", "", "", "", "", "", ""))


def cell(medians: NDArray[np.float64]) -> Cell:
    values = array("d", medians.tolist())
    return Cell(CASE, launches=array("q", range(len(values))), medians=values, means=values)


def noisy(draw: np.random.Generator, block: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """A factor for each launch: what its block does to all, and a spread of its own."""
    return np.asarray(np.exp(block + draw.normal(0, share, len(block))))


@pytest.mark.parametrize("launches", [7, 25])
def test_the_interval_of_a_crossing_covers_it(launches: int) -> None:
    draw, below, above, inside = np.random.default_rng(3), option("a"), option("b"), 0
    for _ in range(EXPERIMENTS):
        block = draw.normal(0, 0.1, launches)
        times = {size: (2 + size * 2e-3, 10 + size * 1e-3) for size in SIZES}  # equal at 8000 B
        cells = {
            size: {below: cell(noisy(draw, block, 0.03) * a), above: cell(noisy(draw, block, 0.03) * b)}
            for size, (a, b) in times.items()
        }
        found = crossover(Question(CASE, cells, ("library",)), below, above, True)
        assert found is not None and found.interval is not None
        inside += found.interval[0] <= 8000 <= found.interval[1]
    assert 0.93 <= inside / EXPERIMENTS <= 0.97


@pytest.mark.parametrize("launches", [7, 25])
def test_the_interval_of_what_comes_back_covers_it(launches: int) -> None:
    draw, inside = np.random.default_rng(4), 0
    for _ in range(EXPERIMENTS):
        block = draw.normal(0, 0.1, launches)
        places = {("host", ""): 100, ("single", "strict"): 300, ("single", "ipc"): 140}  # 80 % comes back
        cells = {option("a", *place): cell(noisy(draw, block, 0.05) * time) for place, time in places.items()}
        (found,) = recoveries(Question(CASE, {8: cells}, ("policy", "isolation")), 8, True)
        assert found.share_interval is not None
        inside += found.share_interval[0] <= 0.8 <= found.share_interval[1]
    assert 0.93 <= inside / EXPERIMENTS <= 0.97
