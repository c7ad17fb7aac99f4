"""Ways to give launches other names: all of them once, the measured one first; and what stands out among them."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from collbench.analysis import bounds
from collbench.analysis.bounds import exchanges, flips, step_down


def test_all_signs_are_taken_once_and_the_measured_ones_first() -> None:
    found = flips(7, 7)
    assert not found.drawn
    assert (found.rows[0] == 1).all()
    both = [tuple(row) for row in np.concatenate((found.rows, -found.rows)).tolist()]
    assert len(both) == 2**7 and set(both) == set(product((1, -1), repeat=7))


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
    assert bounds.DRAWN[0] < len(one.rows) <= bounds.ALL
    dealt = exchanges(20, 20, launches)
    assert dealt.drawn and (dealt.rows.sum(axis=1) == 20).all() and dealt.rows[0, :20].all()


def by_hand(found: NDArray[np.float32]) -> list[float]:
    """Westfall and Young (1993), algorithm 2.8: from the largest down, the maximum over what is not yet passed."""
    adjusted, least = [0.0] * len(found), 0.0
    ranked = sorted(range(len(found)), key=lambda i: -found[i, 0])
    for rank, i in enumerate(ranked):
        largest = found[ranked[rank:]].max(axis=0)
        least = max(least, float(np.mean(largest >= found[i, 0] * (1 - 1e-4))))
        adjusted[i] = least
    return adjusted


def test_p_of_many_cells_is_adjusted_as_westfall_and_young_do() -> None:
    draw = np.random.default_rng(4)
    found = np.abs(draw.normal(0, 1, (9, 400))).astype(np.float32)
    found[:3, 0] = 4.0, 3.0, 2.0
    adjusted = step_down(found[:, 0], [found])
    assert adjusted.tolist() == pytest.approx(by_hand(found))
    assert 0 < adjusted[0] < adjusted[1] < adjusted[2] < 1
    assert step_down(found[:, 0], np.array_split(found, 7, axis=1)).tolist() == adjusted.tolist()


def test_no_tie_is_broken_by_rounding() -> None:
    found = np.array([[1.0, 1.0 - 1e-6, 0.5, 0.1]], np.float32)
    assert step_down(found[:, 0], [found]).tolist() == [0.5]
