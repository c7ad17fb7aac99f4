"""Intervals of crossings and of what steps give back cover what they say they do, over simulated experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_runs import made_case, made_cell

from collbench.analysis.estimate import centre
from collbench.analysis.options import FACTORS, Option, Question
from collbench.analysis.results import Cell
from collbench.analysis.tradeoffs import crossings, crossover, recoveries

pytestmark = pytest.mark.slow

EXPERIMENTS = 2000
SIZES = [1 << power for power in range(8, 18)]
CASE = made_case()

#: Microseconds of both options at a size.
Pairs = Callable[[int], tuple[float, float]]


def option(library: str, policy: str = "host", step: str = "") -> Option:
    said = {"library": library, "policy": policy, "isolation": step, "driver": "native", "thread-level": "single"}
    return Option(tuple(said.get(factor, "") for factor in FACTORS))


BELOW, ABOVE = option("a"), option("b")


def cell(medians: NDArray[np.float64]) -> Cell:
    return made_cell(CASE, medians.tolist())


def noisy(draw: np.random.Generator, block: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """A factor for each launch: what its block does to all, and a spread of its own."""
    return np.asarray(np.exp(block + draw.normal(0, share, len(block))))


def made(draw: np.random.Generator, launches: int, share: float, pairs: Pairs, sizes: Iterable[int]) -> Question:
    """Two options that take `pairs` microseconds at a size, measured in blocks."""
    block = draw.normal(0, 0.1, launches)
    cells = {}
    for size in sizes:
        a, b = pairs(size)
        cells[size] = {BELOW: cell(noisy(draw, block, share) * a), ABOVE: cell(noisy(draw, block, share) * b)}
    return Question(CASE, cells, ("library",))


def straight(size: int) -> tuple[float, float]:
    """Equal at 8000 B."""
    return 2 + size * 2e-3, 10 + size * 1e-3


def curved(size: int) -> tuple[float, float]:
    """Equal at 50 000 B, and bent between measured sizes that lie far apart."""
    return 20 + size * 1e-3, 45 + size * 5e-4


def switching(size: int) -> tuple[float, float]:
    """The first takes another protocol from 60 000 B on, and is slower from there."""
    return (10 + size * 1e-4) * (1.0 if size < 60_000 else 2.0), 12 + size * 1.2e-4


@pytest.mark.parametrize("launches", [7, 25])
def test_the_interval_of_crossings_covers_that_of_straight_lines(launches: int) -> None:
    draw, inside = np.random.default_rng(3), 0
    for _ in range(EXPERIMENTS):
        interval = centre(crossings(made(draw, launches, 0.03, straight, SIZES), BELOW, ABOVE, True)[1]).interval
        assert interval is not None
        inside += interval[0] <= math.log2(8000) <= interval[1]
    assert 0.93 <= inside / EXPERIMENTS <= 0.97


@pytest.mark.parametrize("launches", [7, 25])
@pytest.mark.parametrize("step", [1, 2, 3], ids=["x2", "x4", "x8"])
@pytest.mark.parametrize(("pairs", "true"), [(straight, 8000), (curved, 50_000), (switching, 60_000)])
def test_the_interval_of_a_flip_covers_it_whatever_the_curves_are(
    pairs: Pairs, true: int, step: int, launches: int
) -> None:
    draw, inside, widths = np.random.default_rng(3), 0, []
    sizes = [1 << power for power in range(8, 21, step)]
    for _ in range(EXPERIMENTS // 10):
        found = crossover(made(draw, launches, 0.01, pairs, sizes), BELOW, ABOVE, True)
        assert found is not None and found.interval is not None
        inside += found.interval[0] <= true <= found.interval[1]
        widths.append(math.log2(found.interval[1] / found.interval[0]))
    assert inside / len(widths) >= 0.93
    assert np.median(widths) <= 2 * step  # one gap between sizes, or both beside a size at which the options are equal


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
