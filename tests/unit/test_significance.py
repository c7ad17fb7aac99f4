"""What is tested together: cells with enough launches, all by the same exchange of names."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.analysis import joint, studentised
from collbench.analysis.significance import Launches, PValues, p_values


def cell(base: list[float], other: list[float], first: int = 0) -> Launches:
    return Launches(base, other, range(first, first + len(base)), range(first, first + len(other)))


def drawn(n: int, cells: int, lone: float = 1.0, spread: float = 0.01, drift: float = 0.0) -> list[Launches]:
    """Cells of which the first differs by a factor; blocks drift."""
    draw = np.random.default_rng([n, cells])
    block = draw.normal(0, drift, n)
    sides = np.exp(block + draw.normal(0, spread, (cells, 2, n)))
    sides[0, 1] *= lone
    return [cell(base.tolist(), other.tolist()) for base, other in sides]


def of(cells: list[Launches], in_blocks: bool = True) -> list[PValues]:
    found = p_values(cells, in_blocks)
    assert None not in found
    return [p for p in found if p is not None]


def test_six_launches_see_one_cell_of_a_hundred_that_takes_twice_the_time() -> None:
    found = of(drawn(6, 100, 2.0))
    assert found[0].p_adjusted == found[0].p == 2 / 2**6
    assert sum(p.p_adjusted <= 0.05 for p in found) == 1
    assert of(drawn(6, 100, 2.0), in_blocks=False)[0].p_adjusted <= 0.05


def test_six_launches_see_thirty_cells_that_all_differ() -> None:
    draw = np.random.default_rng(1)
    sides = np.exp(draw.normal(0, 0.005, (30, 2, 6)) + draw.normal(0, 0.3, (30, 1, 6)))
    sides[:, 1] *= 1.1
    assert max(p.p_adjusted for p in of([cell(*one.tolist()) for one in sides])) == 2 / 2**6


def test_seven_launches_see_ten_percent_at_one_size_of_fourteen_whatever_blocks_do() -> None:
    seen = [of(drawn(7, 14 + extra, 1.1, drift=0.1))[0].p_adjusted for extra in range(20)]
    assert sum(p <= 0.05 for p in seen) >= 19
    assert min(seen) == 2 / 2**7


def test_a_cell_of_few_launches_has_no_p_and_hides_no_other() -> None:
    """Two launches that agree are infinitely many deviations away from nothing."""
    few = [cell([1.0, 1.0], [2.0, 2.0]) for _ in range(50)]
    clear = cell([1.0, 1.01, 0.99, 1.02, 1.0, 0.98], [1.1, 1.12, 1.08, 1.1, 1.11, 1.09])
    *none, found = p_values([*few, clear], in_blocks=True)
    assert none == [None] * 50
    assert found == PValues(2 / 64, 2 / 64, 1, 1, 32, None)
    assert p_values(few, in_blocks=True) == [None] * 50 and p_values([], in_blocks=True) == []


def test_blocks_are_matched_by_their_number() -> None:
    """Cells whose launches have the same numbers turn together; the order in which cells come does not matter."""
    whole = drawn(8, 3)
    later = cell([1.0, 1.1, 1.2, 1.0, 0.9, 1.05], [1.1, 1.2, 1.1, 1.2, 1.0, 1.1], first=2)
    one, again = of([*whole, later]), of([later, *whole])
    assert one[3].arrangements == 2**7
    assert one == [*again[1:], again[0]]


@pytest.mark.parametrize("n", [7, 12])
@pytest.mark.parametrize("in_blocks", [True, False])
def test_either_side_may_be_the_base(n: int, in_blocks: bool) -> None:
    cells = drawn(n, 4, 1.02)
    turned = [cell(list(one.other), list(one.base)) for one in cells]
    one, other = of(cells, in_blocks), of(turned, in_blocks)
    assert [p.p_adjusted for p in one] == pytest.approx([p.p_adjusted for p in other])
    assert (one[0].seed is None) == (in_blocks or n == 7)


def test_a_sample_of_arrangements_has_its_seed() -> None:
    (found,) = of(drawn(17, 1))
    assert (found.seed, found.arrangements) == (joint.SEED, joint.DRAWN[1] + 1)
    (found,) = of(drawn(16, 1))
    assert (found.seed, found.arrangements) == (None, 2**15)


def test_two_sides_without_their_outermost_launches_count_less_by_the_sixth_power_of_the_share() -> None:
    """Of 20 launches 16 are kept: 14 degrees of freedom, a difference of 1, and spreads of 0.5 on each side."""
    part = [(8, np.array([mean]), np.array([0.5])) for mean in (0.0, 1.0)]
    assert studentised._largest(part[:1], part[1:], 20) == pytest.approx((16 / 20) ** 6 * 14 / (1 / 8 + 1 / 8))
