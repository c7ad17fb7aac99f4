"""How many launches a verdict lacks: right for one cell of many, and with the chance that is promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t

from collbench.analysis.bounds import Launches, intervals
from collbench.analysis.compare import judge
from collbench.analysis.estimate import Estimate, in_logarithms
from collbench.analysis.planning import CHANCE, MOST, launches_more, power

Sides = NDArray[np.float64]


def ratios(sides: Sides) -> list[Estimate]:
    """Of a question, [cells, 2, n]: base and other side in blocks."""
    blocks = range(sides.shape[-1])
    cells = [Launches(base.tolist(), other.tolist(), blocks, blocks) for base, other in sides]
    return [in_logarithms(Estimate(value, (low, high), len(blocks)), 0.0)
            for value, low, high in intervals(cells, in_blocks=True)]  # fmt: skip


def test_six_launches_settle_one_cell_of_a_hundred_that_takes_twice_the_time() -> None:
    draw = np.random.default_rng(3)
    sides = np.exp(draw.normal(0, 0.01, (100, 2, 6)))
    sides[0, 1] *= 2.0
    assert judge(ratios(sides)[0], 0.02)[0] == "slower"


def test_among_more_sizes_it_takes_more_launches() -> None:
    draw = np.random.default_rng(3)
    sides = np.exp(draw.normal(0, 0.05, (20, 2, 10)))
    sides[0, 1] *= 1.03
    more = [launches_more(ratios(sides[:sizes])[0], 0.02) for sizes in (1, 4, 20)]
    assert more[0] is not None and more[1] is not None and more[2] is not None
    assert more[0] < more[1] < more[2]


def test_after_the_launches_that_are_advised_four_cells_in_five_have_a_verdict() -> None:
    """Spread 3 %, 10 blocks, differences of 0, 3 and 4 %: the plan is made, then that many blocks are drawn besides."""
    draw = np.random.default_rng(7)
    decided = []
    for effect in (0.0, 0.03, 0.04) * 90:
        base, other = np.exp(draw.normal(0, 0.03, (2, MOST)))
        other *= 1 + effect
        _, more = _judged(base[:10], other[:10])
        if more is not None and more < MOST - 10:
            decided.append(_judged(base[: 10 + more], other[: 10 + more])[0] != "unclear")
    assert len(decided) > 150
    assert 0.7 <= np.mean(decided) <= 0.95


def _judged(base: Sides, other: Sides) -> tuple[str, int | None]:
    verdict, _, more = judge(ratios(np.array([[base, other]]))[0], 0.02)
    return verdict, more


def test_what_is_lacking_grows_about_with_the_square_of_the_spread() -> None:
    found = []
    for times in (0.5, 1.0):
        half = times * math.log(1.1)
        wide = Estimate(1.0, (math.exp(-half), math.exp(half)), 10)
        found.append(10 + (launches_more(wide, 0.02) or 0))
    assert 3.0 <= found[1] / found[0] <= 4.5


def test_what_launches_cannot_settle_says_so() -> None:
    """An interval of 75 % either way takes thousands of launches to lie within 2 %, if nothing differs."""
    hopeless = Estimate(1.03, (1.03 / 1.75, 1.03 * 1.75), 10)
    assert launches_more(hopeless, 0.02) is None
    verdict, _, more = judge(hopeless, 0.02)
    assert (verdict, more) == ("unclear", None)


def known(launches: int = 1000) -> Estimate:
    """Equal sides whose launches spread by 5 %, which so many have shown."""
    half = float(t.ppf(0.975, launches - 1)) * 0.05 * math.sqrt(2 / launches)
    return Estimate(1.0, (math.exp(-half), math.exp(half)), launches)


@pytest.mark.parametrize("later", [7, 12])
def test_four_runs_in_five_show_the_difference_that_a_plan_says_they_show(later: int) -> None:
    draw = np.random.default_rng(5)
    (difference,) = power([known()], later, 0.05).differences
    shown = []
    for _ in range(200):
        sides = np.exp(draw.normal(0, 0.05, (1, 2, later)))
        sides[0, 1] *= 1 + difference
        shown.append(ratios(sides)[0].excludes(1.0))
    assert abs(np.mean(shown) - CHANCE) < 0.1


def test_equal_cells_are_the_same_in_four_runs_of_five_from_the_number_that_says_so() -> None:
    draw = np.random.default_rng(5)
    first = next(number for number in range(6, 100) if power([known()], number, 0.1).same)
    same = [ratios(np.exp(draw.normal(0, 0.05, (1, 2, first))))[0].within(1 / 1.1, 1.1) for _ in range(200)]
    assert abs(np.mean(same) - CHANCE) < 0.1


def test_a_cell_without_an_interval_is_no_part_of_what_launches_decide() -> None:
    known = Estimate(1.0, (0.9, 1.1), 8)
    assert power([known, Estimate(1.0, None, 3), Estimate(1.0, (0.0, math.inf), 6)], 10, 0.05) == power(
        [known], 10, 0.05
    )


def test_what_the_clock_leaves_open_does_not_shrink_with_launches() -> None:
    coarse = Estimate(1.0, (0.9, 1.1), 8, resolution=0.04)
    assert power([coarse], 1000, 0.05).differences[0] > math.expm1(0.04)
