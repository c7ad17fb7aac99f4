"""Simulated experiments: intervals, verdicts and advice are right as often as they say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_runs import made_case, made_cell

from collbench.analysis.advise import crossings, crossover, recoveries
from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import Estimate, centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.options import FACTORS, Option, Question
from collbench.analysis.pairs import Pair
from collbench.analysis.results import Cell
from collbench.schema.case import Case, case_of

Values = NDArray[np.float64]
Draw = np.random.Generator

EXPERIMENTS = 2000
LAUNCHES = (6, 7, 10, 25)

#: Logarithm of what a launch makes of a time.
NOISES: dict[str, Callable[[Draw, tuple[int, ...]], Values]] = {
    "normal": lambda draw, shape: draw.normal(0.0, 0.02, shape),
    "skewed": lambda draw, shape: np.log1p(0.05 * draw.lognormal(0.0, 1.0, shape)),
    "heavy-tailed": lambda draw, shape: 0.02 * draw.standard_t(2, shape),
    "switching": lambda draw, shape: math.log(2) * (draw.random(shape) < 0.2) + draw.normal(0.0, 0.01, shape),
}
each_noise = pytest.mark.parametrize("noise", NOISES)
each_number = pytest.mark.parametrize("n", LAUNCHES)


def share_that_holds(found: list[Estimate], true: float) -> float:
    assert all(one.interval is not None for one in found)
    return float(np.mean([not one.excludes(true) for one in found]))


def drawn(noise: str, n: int) -> tuple[Draw, Values, Values]:
    """Two sides of `EXPERIMENTS` experiments with n launches, as logarithms."""
    draw = np.random.default_rng([list(NOISES).index(noise), n])
    return draw, NOISES[noise](draw, (EXPERIMENTS, n)), NOISES[noise](draw, (EXPERIMENTS, n))


@pytest.mark.slow
@each_noise
@each_number
def test_intervals_of_a_median_cover(noise: str, n: int) -> None:
    _, values, _ = drawn(noise, n)
    true = float(np.median(NOISES[noise](np.random.default_rng(1), (2_000_001,))))
    assert 0.93 <= share_that_holds([centre(row) for row in values], true) <= 0.97


@pytest.mark.slow
@each_noise
@each_number
def test_intervals_of_a_ratio_in_blocks_cover_whatever_blocks_do(noise: str, n: int) -> None:
    draw, mine, theirs = drawn(noise, n)
    block = draw.normal(0.0, 0.5, (EXPERIMENTS, n))
    rows = zip(np.exp(mine + block + math.log(1.3)), np.exp(theirs + block), strict=True)
    assert 0.93 <= share_that_holds([ratio_in_blocks(of, over) for of, over in rows], 1.3) <= 0.97


@pytest.mark.slow
@each_noise
@each_number
def test_intervals_of_a_ratio_of_sides_cover(noise: str, n: int) -> None:
    _, mine, theirs = drawn(noise, n)
    rows = zip(np.exp(mine + math.log(0.8)), np.exp(theirs), strict=True)
    assert 0.93 <= share_that_holds([ratio_of_sides(of, over) for of, over in rows], 0.8) <= 0.97


@pytest.mark.slow
def test_samples_taken_for_launches_would_not_cover() -> None:
    """What the intervals above are for: samples of one launch share its luck, and a thousand of them know no better."""
    draw = np.random.default_rng(7)
    launches = draw.normal(0.0, 0.02, (500, 10, 1)) + draw.normal(0.0, 0.02, (500, 10, 100))
    pooled = share_that_holds([centre(one.ravel()) for one in launches], 0.0)
    by_launch = share_that_holds([centre(np.median(one, axis=1)) for one in launches], 0.0)
    assert pooled < 0.5
    assert 0.93 <= by_launch <= 0.97


def cell_of(case: Case, medians: Values) -> Cell:
    return made_cell(case, medians.tolist())


def compared(base: Values, other: Values, in_blocks: bool, margin: float = 0.0) -> list[Comparison]:
    """Cells of one experiment, [cells, n] on each side; without a margin, which would keep verdicts away."""
    made = case_of("allreduce", {"backend": "mpi", "driver": "native", "thread_level": "single", "size": 8,
        "dtype": "float32", "op": "sum", "ranks": 2})  # fmt: skip
    sides = zip(base, other, strict=True)
    pairs = [Pair(cell_of(made, mine), cell_of(made, theirs), "base", "other") for mine, theirs in sides]
    return compare(pairs, margin, in_blocks)


def named(found: list[Comparison]) -> int:
    """Cells in which a difference is said to be."""
    return sum(one.verdict in ("faster", "slower") for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", ["blocks that drift", "blocks alike", "no blocks"])
@pytest.mark.parametrize("noise", ["normal", "switching"])
def test_where_nothing_differs_few_verdicts_say_so(blocks: str, noise: str) -> None:
    """At most 5 % of experiments with 20 cells have any: the test is exact, so two errors of 300 draws are allowed."""
    draw = np.random.default_rng([8, len(blocks), list(NOISES).index(noise)])
    number, cells, n = 300, 20, 10
    wrong = []
    for _ in range(number):
        block = draw.normal(0.0, 0.3, n) if blocks == "blocks that drift" else np.zeros(n)
        base, other = (np.exp(block + NOISES[noise](draw, (cells, n))) for _ in range(2))
        wrong.append(named(compared(base, other, blocks != "no blocks")))
    assert sum(wrong) / (number * cells) <= 0.01
    assert sum(map(bool, wrong)) / number <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / number)


@pytest.mark.slow
def test_without_adjustment_many_cells_would_say_so() -> None:
    """The same experiments cell by cell, each alone in its table: the test above can fail; of 800, 5 % are wrong."""
    draw = np.random.default_rng(10)
    number, cells, n = 40, 20, 10
    wrong = []
    for _ in range(number):
        base, other = (np.exp(NOISES["normal"](draw, (cells, n))) for _ in range(2))
        wrong.append(sum(named(compared(base[i : i + 1], other[i : i + 1], True)) for i in range(cells)))
    assert sum(map(bool, wrong)) / number > 0.2
    assert sum(wrong) / (number * cells) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / (number * cells))


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_seven_blocks_find_ten_percent_at_one_size_of_fourteen(drift: float) -> None:
    """The others do not differ; launches spread by 1 % within blocks that drift."""
    draw = np.random.default_rng(12)
    found, number = 0, 100
    for _ in range(number):
        block = draw.normal(0.0, drift, 7)
        base, other = (np.exp(block + draw.normal(0.0, 0.01, (14, 7))) for _ in range(2))
        other[5] *= 1.1
        found += compared(base, other, True, 0.02)[5].verdict == "slower"
    assert found / number >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("in_blocks", [True, False])
def test_ten_launches_find_ten_percent_behind_two_percent_of_spread(in_blocks: bool) -> None:
    draw = np.random.default_rng(10)
    found = 0
    for _ in range(20):
        base, other = (np.exp(draw.normal(0.0, 0.02, (20, 10))) for _ in range(2))
        found += sum(one.verdict == "slower" for one in compared(base, other * 1.1, in_blocks, 0.02))
    assert found / 400 >= 0.98


@pytest.mark.slow
def test_ten_blocks_find_five_percent_behind_thirty_percent_of_drift() -> None:
    """The drift from block to block is six times the difference, and divides out; between sides it would not."""
    draw = np.random.default_rng(11)
    found = unpaired = 0
    for _ in range(20):
        drift = draw.normal(0.0, 0.3, 10)
        base, other = (np.exp(drift + draw.normal(0.0, 0.01, (20, 10))) for _ in range(2))
        found += sum(one.verdict == "slower" for one in compared(base, other * 1.05, True, 0.02))
        unpaired += named(compared(base, other * 1.05, False, 0.02))
    assert found / 400 >= 0.98
    assert unpaired == 0


# Intervals of crossings and of what steps give back cover what they say they do, over simulated experiments

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


@pytest.mark.slow
@pytest.mark.parametrize("launches", [7, 25])
def test_the_interval_of_crossings_covers_that_of_straight_lines(launches: int) -> None:
    draw, inside = np.random.default_rng(3), 0
    for _ in range(EXPERIMENTS):
        interval = centre(crossings(made(draw, launches, 0.03, straight, SIZES), BELOW, ABOVE, True)[1]).interval
        assert interval is not None
        inside += interval[0] <= math.log2(8000) <= interval[1]
    assert 0.93 <= inside / EXPERIMENTS <= 0.97


@pytest.mark.slow
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


@pytest.mark.slow
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
