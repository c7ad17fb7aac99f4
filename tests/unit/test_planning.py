"""How many launches a verdict lacks: right for one cell of many, and with the chance that is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from collbench.analysis.compare import judge, p_values, together
from collbench.analysis.estimate import Estimate, ratio_in_blocks
from collbench.analysis.planning import MOST, fewest_launches, launches_more
from collbench.analysis.significance import ALPHA, PValues, either, least_p


def lone(n: int, cells: int, factor: float = 2.0) -> tuple[Estimate, PValues]:
    """One cell of so many that differs, in n blocks that hardly spread; the others do not."""
    draw = np.random.default_rng([n, cells])
    values = []
    for cell in range(cells):
        base, other = np.exp(draw.normal(0, 0.01, (2, n)))
        values.append((base.tolist(), (other * (factor if cell == 0 else 1.0)).tolist()))
    return ratio_in_blocks(values[0][1], values[0][0]), together(*p_values(values, in_blocks=True))[0]


@pytest.mark.parametrize(("n", "cells", "more"), [(6, 100, 3), (6, 60, 2), (6, 30, 2), (7, 30, 1), (6, 8, 1)])
def test_one_cell_of_many_lacks_as_many_launches_as_the_rank_tests_do(n: int, cells: int, more: int) -> None:
    """With 6 blocks the least p is 0.0072, with 7 0.0019: times the number of cells, whatever the difference."""
    ratio, p = lone(n, cells)
    assert judge(ratio, p, 0.02)[0] == "inconclusive"
    assert launches_more(ratio, p, 0.02) == more
    settled, later = lone(n + more, cells)
    assert judge(settled, later, 0.02)[0] == "slower"
    if more > 1:
        early, too_few = lone(n + more - 1, cells)
        assert judge(early, too_few, 0.02)[0] == "inconclusive"


@pytest.mark.parametrize("n", range(6, 12))
def test_the_least_p_is_that_of_sides_that_are_wholly_apart(n: int) -> None:
    base, other = list(range(1, n + 1)), list(range(100, 100 + n))
    assert least_p(n, blocks=False) == pytest.approx(stats.mannwhitneyu(base, other, method="exact").pvalue)
    differences = [b - a for a, b in zip(base, other, strict=True)]
    signs = stats.wilcoxon([d + 0.1 * i for i, d in enumerate(differences)], method="exact").pvalue
    assert least_p(n, blocks=True) == pytest.approx(either(1.0, signs))
    assert least_p(n, blocks=True, both=True) <= least_p(n, blocks=True)


@pytest.mark.parametrize(("cells", "launches"), [(1, 6), (6, 6), (7, 7), (25, 7), (26, 8), (96, 8), (97, 9)])
def test_so_many_cells_take_so_many_launches(cells: int, launches: int) -> None:
    assert fewest_launches(cells) == launches
    assert cells * least_p(launches, blocks=True, both=True) <= ALPHA


def test_after_the_launches_that_are_advised_four_cells_in_five_have_a_verdict() -> None:
    """Spread 2 %, 10 blocks, differences of 0, 3 and 4 %: the plan is made, then that many blocks are drawn besides."""
    draw = np.random.default_rng(7)
    decided = []
    for effect in (0.0, 0.03, 0.04) * 120:
        base, other = np.exp(draw.normal(0, 0.02, (2, MOST)))
        other *= 1 + effect
        more = _more(base[:10], other[:10])
        if more is not None and more < MOST - 10:
            ratio, p = _at(base[: 10 + more], other[: 10 + more])
            decided.append(judge(ratio, p, 0.02)[0] != "inconclusive")
    assert len(decided) > 150
    assert 0.7 <= np.mean(decided) <= 0.95


def _at(base: Sequence[float], other: Sequence[float]) -> tuple[Estimate, PValues]:
    return ratio_in_blocks(other, base), together(*p_values([(list(base), list(other))], in_blocks=True))[0]


def _more(base: Sequence[float], other: Sequence[float]) -> int | None:
    ratio, p = _at(base, other)
    verdict, _, more = judge(ratio, p, 0.02)
    return more if verdict == "inconclusive" else None


def test_what_is_lacking_grows_about_with_the_square_of_the_spread() -> None:
    found = []
    for times in (0.5, 1.0):
        half = times * math.log(1.1)
        wide = Estimate(1.0, (math.exp(-half), math.exp(half)), 10)
        found.append(10 + (launches_more(wide, PValues(0.2, 0.2, 0.3, 1), 0.02) or 0))
    assert 3.0 <= found[1] / found[0] <= 4.5


def test_what_launches_cannot_settle_says_so() -> None:
    """An interval of 75 % either way takes thousands of launches to lie within 2 %, if nothing differs."""
    hopeless = Estimate(1.03, (1.03 / 1.75, 1.03 * 1.75), 10)
    p = PValues(0.9, 0.9, 0.9, 1)
    assert launches_more(hopeless, p, 0.02) is None
    assert judge(hopeless, p, 0.02)[1] == f"needs more than {MOST} more launches"
