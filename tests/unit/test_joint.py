"""All cells tested at once: what is counted, that it is exact, and that no cell hides another."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from collbench.analysis import significance
from collbench.analysis.significance import Arrangements, Sample, adjusted, exchanges, flips, statistics

Values = NDArray[np.float64]


def in_blocks(*cells: Values) -> list[Sample]:
    """Of differences: both sides lie symmetrically, so that blocks are alike."""
    return [Sample(np.array([-values / 2, values / 2]), np.arange(len(values))) for values in map(np.asarray, cells)]


def of_sides(*cells: Values) -> list[Sample]:
    return [Sample(np.asarray(values, float), np.arange(len(values))) for values in cells]


def all_tested(cells: list[Sample]) -> significance.Tested:
    return adjusted(cells, flips(1 + max(int(cell.positions.max()) for cell in cells), 1), True)


def by_windows(base: Values, other: Values) -> tuple[float, float]:
    """The largest t of blocks, and of two sides, without up to half of those beyond five, times (kept / n) cubed."""
    n, found = len(base), []
    most = min((n - 5) // 2, 8)
    order = np.argsort(other - base)
    for low in range(most + 1):
        for high in range(most + 1 - low):
            kept = order[low : n - high]
            tests = (stats.ttest_rel(other[kept], base[kept]), stats.ttest_ind(other[kept], base[kept]))
            found.append([abs(test.statistic) * (len(kept) / n) ** 3 for test in tests])
    paired, unpaired = np.max(found, axis=0).tolist()
    return paired, unpaired


def score(t: float, freedom: int) -> float:
    return (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t**2 / freedom))


@pytest.mark.parametrize("n", [6, 7, 10, 20])
@pytest.mark.parametrize("drift", [0.0, 10.0])
def test_the_statistic_is_the_largest_t_of_blocks_or_sides_without_some_at_the_ends(n: int, drift: float) -> None:
    draw = np.random.default_rng(n)
    for shift in (0.0, 1.0, -5.0):
        base, other = draw.standard_t(2, (2, n)) + drift * draw.normal(0, 1, n) + np.array([[0.0], [shift]])
        paired, unpaired = by_windows(base, other)
        expected = max(score(paired, n - 1), score(unpaired, 2 * n - 2))
        cell = Sample(np.array([base, other]), np.arange(n))
        assert statistics([cell], np.ones((1, n), np.int8), True)[0, 0] == pytest.approx(expected, rel=1e-5)


def test_the_statistic_without_blocks_is_that_of_the_densest_parts_of_both_sides() -> None:
    draw = np.random.default_rng(6)
    base, other = draw.standard_t(2, 7), draw.standard_t(2, 8) + 3
    largest = 0.0
    for left_out in product(range(4), repeat=2):
        if sum(left_out) <= 3:
            parts = [densest(side, k) for side, k in zip((base, other), left_out, strict=True)]
            t = abs(stats.ttest_ind(*parts).statistic) * (1 - sum(left_out) / 15) ** 3
            largest = max(largest, t)
    rows = np.array([[1] * 8 + [0] * 7], np.int8)
    found = statistics(of_sides(np.concatenate((other, base))), rows, False)
    assert found[0, 0] == pytest.approx(score(largest, 13), rel=1e-5)


def densest(values: Values, left_out: int) -> Values:
    ordered, kept = np.sort(values), len(values) - min(left_out, len(values) // 5)
    return min((ordered[i : i + kept] for i in range(len(values) - kept + 1)), key=lambda part: float(part.var()))


def test_one_launch_far_off_hides_no_difference() -> None:
    values = np.array([0.1, 0.101, 0.099, 0.1, 0.102, 0.098, 2.0])
    assert all_tested(in_blocks(values)).p[0] == pytest.approx(2 / 2**7 * 2)  # as well if that one had the other sign
    assert all_tested(in_blocks(values, *np.random.default_rng(1).normal(0, 0.01, (13, 7)))).p_adjusted[0] < 0.05


def test_all_signs_are_taken_once_and_the_measured_ones_first() -> None:
    found = flips(7, 7)
    assert not found.drawn
    assert (found.rows[0] == 1).all()
    both = {tuple(row) for row in found.rows.tolist()} | {tuple(row) for row in (-found.rows).tolist()}
    assert both == set(product((1, -1), repeat=7))


def test_all_ways_to_deal_launches_are_taken_once_and_the_measured_one_first() -> None:
    found = exchanges(4, 3, 7)
    assert not found.drawn
    assert found.rows[0].tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert {tuple(np.flatnonzero(row).tolist()) for row in found.rows} == set(combinations(range(7), 3))
    assert len(found.rows) == 35


@pytest.mark.parametrize(("blocks", "launches", "drawn"), [(16, 16, False), (17, 17, True), (16, 160_000, True)])
def test_where_there_are_too_many_a_sample_is_drawn_that_is_always_the_same(
    blocks: int, launches: int, drawn: bool
) -> None:
    one, again = flips(blocks, launches), flips(blocks, launches)
    assert one.drawn == drawn
    assert (one.rows == again.rows).all() and (one.rows[0] == 1).all()
    assert significance.DRAWN[0] < len(one.rows) <= significance.ALL
    dealt = exchanges(20, 20, launches)
    assert dealt.drawn and (dealt.rows.sum(axis=1) == 20).all() and dealt.rows[0, :20].all()


def by_hand(cells: list[Sample], arrangements: Arrangements, paired: bool) -> list[float]:
    """Westfall and Young (1993), algorithm 2.8: from the largest down, the maximum over what is not yet passed."""
    found = statistics(cells, arrangements.rows, paired).astype(float)
    adjusted, least = [0.0] * len(cells), 0.0
    ranked = sorted(range(len(cells)), key=lambda i: -found[i, 0])
    for rank, i in enumerate(ranked):
        largest = found[ranked[rank:]].max(axis=0)
        least = max(least, float(np.mean(largest >= found[i, 0] * (1 - 1e-4))))
        adjusted[i] = least
    return adjusted


@pytest.mark.parametrize("paired", [True, False])
def test_p_of_many_cells_is_adjusted_as_westfall_and_young_do(paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(4)
    values = draw.normal(0, 1, (9, 8)) + np.array([[3], [2], [1], *[[0]] * 6])
    cells = in_blocks(*values) if paired else of_sides(*values)
    arrangements = flips(8, 1) if paired else exchanges(4, 4, 1)
    monkeypatch.setattr(significance, "MOST_CELLS", 8)
    found = adjusted(cells, arrangements, paired)
    assert found.p_adjusted.tolist() == pytest.approx(by_hand(cells, arrangements, paired))
    assert (found.p_adjusted >= found.p).all()
    assert sorted(found.left.tolist()) == list(range(1, 10))
    monkeypatch.setattr(significance, "_HELD", 50)
    monkeypatch.setattr(significance, "_AT_ONCE", 100)
    assert adjusted(cells, arrangements, paired).p_adjusted.tolist() == found.p_adjusted.tolist()


def test_what_does_not_differ_at_all_stands_out_nowhere() -> None:
    found = all_tested(in_blocks(np.zeros(7), np.full(7, 0.1), np.full(7, -0.1), np.full(7, 1e-9)))
    assert found.p.tolist() == pytest.approx([1.0, 1 / 64, 1 / 64, 1 / 64])
    assert found.p_adjusted.tolist() == pytest.approx([1.0, 1 / 64, 1 / 64, 1 / 64])


def test_no_tie_is_broken_by_rounding() -> None:
    """Steps of a clock: the same few differences in another order are as large as those measured."""
    steps = np.log([210, 200, 210, 220, 190, 200, 210]) - np.log(200)
    for order in (np.arange(7), np.arange(7)[::-1], np.array([3, 1, 4, 0, 5, 2, 6])):
        assert all_tested(in_blocks(steps[order])).p[0] == all_tested(in_blocks(steps)).p[0]
    same = [0.05, 0.05, 0.05, 0.05, 0.05, -0.05]  # any one of six may be the other way: 6 of 32
    assert all_tested(in_blocks(np.array(same))).p[0] == pytest.approx((1 + 6) / 32)


def test_cells_of_other_blocks_flip_with_their_blocks() -> None:
    """The second cell lacks the first block: it is turned where its own blocks are, not where its row numbers are."""
    draw = np.random.default_rng(9)
    cells = [Sample(draw.normal(0, 1, (2, 7)), np.arange(7)), Sample(draw.normal(0, 1, (2, 6)), np.arange(1, 7))]
    rows = flips(7, 13).rows
    alone = statistics([Sample(cells[1].values, np.arange(6))], rows[:, 1:], True)
    assert statistics(cells, rows, True)[1].tolist() == alone[0].tolist()


def test_launches_that_a_cell_lacks_leave_it_the_others() -> None:
    draw = np.random.default_rng(2)
    rows = exchanges(6, 6, 23).rows
    whole, part = Sample(draw.normal(0, 1, 12), np.arange(12)), Sample(draw.normal(0, 1, 11), np.arange(1, 12))
    found = statistics([whole, part], rows, False)
    assert found.shape == (2, math.comb(12, 6))
    assert found[1].tolist() == statistics([part], rows, False)[0].tolist()
    few = statistics([Sample(np.array([1.0, 2.0, 5.0]), np.arange(3))], exchanges(6, 6, 3).rows, False)
    assert (few == 0).all()  # one side has a launch at most


@pytest.mark.parametrize("kind", ["normal", "modes of launches", "steps", "heavy", "zero"])
@pytest.mark.parametrize("paired", [True, False])
def test_it_is_exact_whatever_the_noise(kind: str, paired: bool) -> None:
    """If names mean nothing, all arrangements are as likely: at most 5 % of them have any adjusted p of 5 %."""
    draw = np.random.default_rng([len(kind), paired])
    n = 7 if paired else 10
    noises: dict[str, Callable[[], Values]] = {
        "normal": lambda: draw.normal(0, 1, (4, n)),
        "modes of launches": lambda: draw.normal(0, 0.01, (4, n)) + 0.3 * (draw.random(n) < 0.3),
        "steps": lambda: 0.05 * draw.integers(-1, 2, (4, n)).astype(float),
        "heavy": lambda: draw.standard_cauchy((4, n)),
        "zero": lambda: np.full((4, n), 0.05),
    }
    wrong, total = 0, 0
    for _ in range(2):
        cells = (in_blocks if paired else of_sides)(*noises[kind]())
        rows = flips(n, 1).rows if paired else exchanges(5, 5, 1).rows
        for row in rows:
            if paired:
                turned = [Sample(cell.values * row, cell.positions) for cell in cells]
                found = adjusted(turned, flips(n, 1), True)
            else:
                order = np.argsort(-row, kind="stable")
                turned = [Sample(cell.values[order], cell.positions) for cell in cells]
                found = adjusted(turned, exchanges(5, 5, 1), False)
            wrong += bool((found.p_adjusted <= 0.05).any())
            total += 1
    assert wrong <= 0.05 * total
