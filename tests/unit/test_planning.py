"""How many launches a verdict lacks: right for one cell of many, and with the chance that is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from collbench.analysis.compare import judge
from collbench.analysis.estimate import Estimate, ratio_in_blocks
from collbench.analysis.planning import MOST, launches_more
from collbench.analysis.significance import Launches, PValues, p_values


def p_of(left: int = 1, p: float = 0.2, p_adjusted: float = 0.3) -> PValues:
    return PValues(p, p_adjusted, left, left, 64, None)


def test_six_launches_settle_one_cell_of_a_hundred_that_takes_twice_the_time() -> None:
    draw = np.random.default_rng(3)
    sides = np.exp(draw.normal(0, 0.01, (100, 2, 6)))
    sides[0, 1] *= 2.0
    blocks = range(6)
    p = p_values([Launches(base.tolist(), other.tolist(), blocks, blocks) for base, other in sides], in_blocks=True)[0]
    assert judge(ratio_in_blocks(sides[0, 1], sides[0, 0]), p, 0.02)[0] == "slower"


def test_among_more_cells_it_takes_more_launches_to_stand_out() -> None:
    ratio = Estimate(1.5, (1.1, 2.0), 7)
    more = [launches_more(ratio, p_of(left, 1 / 64), 0.02) for left in (1, 10, 100)]
    assert more == sorted(more, key=lambda k: k or 0)
    assert more[0] is not None and more[2] is not None and more[0] < more[2]


def test_where_the_test_is_not_as_sure_as_the_interval_it_takes_more_launches() -> None:
    """An interval of a median leaves out launches that are far off, and the test may not."""
    ratio = Estimate(1.46, (1.28, 1.60), 25)
    more = [launches_more(ratio, PValues(p, 0.2, 16, 16, 2000, 1), 0.02) for p in (1 / 2000, 0.007, 0.05)]
    assert more[0] is not None and more[1] is not None and more[2] is not None
    assert more[0] <= 2 and 10 < more[1] < 60 and more[2] > 1.5 * more[1]


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
    return ratio_in_blocks(other, base), _tested(base, other)


def _tested(base: Sequence[float], other: Sequence[float]) -> PValues:
    (p,) = p_values([Launches(base, other, range(len(base)), range(len(other)))], in_blocks=True)
    assert p is not None
    return p


def _more(base: Sequence[float], other: Sequence[float]) -> int | None:
    ratio, p = _at(base, other)
    verdict, _, more = judge(ratio, p, 0.02)
    return more if verdict == "inconclusive" else None


def test_what_is_lacking_grows_about_with_the_square_of_the_spread() -> None:
    found = []
    for times in (0.5, 1.0):
        half = times * math.log(1.1)
        wide = Estimate(1.0, (math.exp(-half), math.exp(half)), 10)
        found.append(10 + (launches_more(wide, p_of(), 0.02) or 0))
    assert 3.0 <= found[1] / found[0] <= 4.5


def test_what_launches_cannot_settle_says_so() -> None:
    """An interval of 75 % either way takes thousands of launches to lie within 2 %, if nothing differs."""
    hopeless = Estimate(1.03, (1.03 / 1.75, 1.03 * 1.75), 10)
    p = p_of(1, 0.9, 0.9)
    assert launches_more(hopeless, p, 0.02) is None
    assert judge(hopeless, p, 0.02)[1] == f"needs more than {MOST} more launches"
