"""What is tested together: cells with enough launches, all by the same exchange of names."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from collbench.analysis import significance
from collbench.analysis.significance import Launches, PValues, Sample, p_values, statistics


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
    assert (found.seed, found.arrangements) == (significance.SEED, significance.DRAWN[1] + 1)
    (found,) = of(drawn(16, 1))
    assert (found.seed, found.arrangements) == (None, 2**15)


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_of_two_sides_the_largest_t_counts_times_the_cube_of_the_share_that_is_kept(left_out: int) -> None:
    """Against Student's t of every way to keep the narrowest neighbours of each side, one by one."""
    draw = np.random.default_rng(left_out)
    sides = np.sort(draw.normal(0, 0.01, (2, 7)))
    sides[1] += 0.05
    sides[1, 7 - left_out :] += 1.0  # so many launches are far away
    largest = 0.0
    for kept in itertools.product(range(5, 8), repeat=2):
        if 14 - sum(kept) > 2:  # a fifth of them
            continue
        parts = [min((side[i : i + n] for i in range(8 - n)), key=np.var) for side, n in zip(sides, kept, strict=True)]
        t = scipy.stats.ttest_ind(parts[1], parts[0]).statistic
        largest = max(largest, abs(t) * (sum(kept) / 14) ** 3)
    cells = [Sample(sides.ravel(), np.arange(14))]
    [[found]] = statistics(cells, np.array([[0] * 7 + [1] * 7], np.int8), in_blocks=False)
    wallace = (8 * 12 + 1) / (8 * 12 + 3) * np.sqrt(12 * np.log1p(largest**2 / 12))
    assert found == pytest.approx(wallace, rel=1e-5)
