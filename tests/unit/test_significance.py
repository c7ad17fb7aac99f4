"""Tests of many cells at once give what SciPy gives one by one, and their adjustment what the formula says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from collbench.analysis.significance import adjusted, either, mann_whitney, signed_rank

Side = list[float]


def sides(seed: int, sizes: list[tuple[int, int]], digits: int = 12) -> list[tuple[Side, Side]]:
    """Pairs of sides of these sizes; few digits make ties."""
    draw = np.random.default_rng(seed)
    return [
        (draw.lognormal(0.0, 0.3, n).round(digits).tolist(), draw.lognormal(0.1, 0.3, m).round(digits).tolist())
        for n, m in sizes
    ]


MIXED = [(6, 6), (10, 10), (6, 9), (10, 10), (1, 1), (9, 6), (25, 25), (70, 70), (61, 6), (1, 30), (6, 6)]


def test_many_cells_of_mixed_sizes_are_tested_as_scipy_tests_each() -> None:
    pairs = sides(1, MIXED)
    alone = [stats.mannwhitneyu(a, b, method="exact" if max(len(a), len(b)) <= 60 else "asymptotic").pvalue
             for a, b in pairs]  # fmt: skip
    assert mann_whitney(pairs) == pytest.approx(alone, rel=1e-12)
    assert len(set(alone)) > 8  # of other sizes, in another order, something else


def test_ties_take_the_approximation_with_its_correction_and_do_not_spoil_their_neighbours() -> None:
    tied, clear = sides(2, [(10, 10)] * 6, digits=1), sides(3, [(10, 10)] * 6)
    found = mann_whitney([pair for both in zip(tied, clear, strict=True) for pair in both])
    assert found[0::2] == pytest.approx([stats.mannwhitneyu(a, b, method="asymptotic").pvalue for a, b in tied])
    assert found[1::2] == pytest.approx([stats.mannwhitneyu(a, b, method="exact").pvalue for a, b in clear])


def test_where_nothing_can_be_told_p_is_one() -> None:
    pairs: list[tuple[Side, Side]] = [([1.0] * 6, [1.0] * 6), ([], [1.0, 2.0]), ([1.0], []), ([], []), ([2.0], [2.0])]
    assert mann_whitney(pairs) == [1.0] * 5
    assert mann_whitney([]) == []


def test_six_launches_apart_are_as_unlikely_as_two_orders_of_924() -> None:
    low, high = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
    assert mann_whitney([(low, high), (high, low)]) == pytest.approx([2 / 924] * 2)


def test_signed_rank_is_scipys_for_each_cell() -> None:
    draw = np.random.default_rng(5)
    cells = [draw.normal(0.3, 1.0, n).tolist() for n in (1, 6, 7, 10, 25, 60)]
    assert signed_rank(cells) == pytest.approx([stats.wilcoxon(values, method="exact").pvalue for values in cells])
    tied = [[0.0, 1.0, 1.0, -1.0, 2.0, 3.0, 4.0], [0.0, *draw.normal(0.3, 1.0, 9)], [1.0, *draw.choice([-2, 1], 11)]]
    assert signed_rank(tied) == pytest.approx([stats.wilcoxon(values).pvalue for values in tied])  # all permutations
    many = draw.normal(0.1, 1.0, 61).tolist()
    assert signed_rank([many]) == pytest.approx([stats.wilcoxon(many, method="asymptotic").pvalue])
    assert signed_rank([[0.5] * 6, [0.0] * 6]) == pytest.approx([2 / 64, 1.0])  # one way, all alike
    assert signed_rank([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]) == pytest.approx([2 / 64])


def test_signed_rank_of_no_difference_at_all_is_one() -> None:
    assert signed_rank([[0.0] * 8, [], [0.0]]) == [1.0, 1.0, 1.0]
    assert signed_rank([]) == []


def by_hand(p: list[float]) -> list[float]:
    """Benjamini and Hochberg: from the largest p down, m p / rank, and never more than the one above."""
    found = [0.0] * len(p)
    lowest = 1.0
    ranked = sorted(range(len(p)), key=lambda index: p[index])
    for rank, index in reversed(list(enumerate(ranked, start=1))):
        lowest = min(lowest, p[index] * len(p) / rank)
        found[index] = lowest
    return found


@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_p_values_are_adjusted_as_benjamini_and_hochberg_do(number: int) -> None:
    p = np.random.default_rng(number).beta(0.3, 1.0, number).tolist()
    assert adjusted(p) == pytest.approx(stats.false_discovery_control(p).tolist())
    assert adjusted(p) == pytest.approx(by_hand(p))
    assert all(mine >= theirs for mine, theirs in zip(adjusted(p), p, strict=True))


def test_the_example_of_the_paper_keeps_its_four_discoveries() -> None:
    """Benjamini and Hochberg (1995), section 4.1: fifteen p values, of which four pass at 5 %."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
         0.7590, 1.0]  # fmt: skip
    assert sum(value <= 0.05 for value in adjusted(p)) == 4
    assert adjusted([]) == []


def test_two_tests_of_a_cell_share_the_false_positives() -> None:
    assert either(0.3, 0.014) == 0.014 / 0.7
    assert either(0.003, 0.5) == 0.003 / (1 - 0.7)
    assert either(0.3, None) == 0.3
    assert either(0.8, 0.9) == 1.0
    assert either(1.0, 2 / 2**6) <= 0.05  # six blocks that agree are enough
