"""Closed testing by branch and bound: what a look at every set finds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from collbench.analysis import significance
from collbench.analysis.significance import Sample, flips, most_counted, of_statistics, sizes, statistics

ENOUGH = 3  # of 64 arrangements: p of 0.047


def made_up(seed: int, cells: int, blocks: int = 7, differing: int = 99, least: float = 0.5) -> NDArray[np.float32]:
    draw = np.random.default_rng(seed)
    added = np.where(np.arange(cells) < differing, draw.uniform(least, 2.5, cells), 0.0)
    made = [Sample(np.array([draw.normal(0, 1, blocks), shift + draw.normal(0, 1, blocks)]), np.arange(blocks))
            for shift in added]  # fmt: skip
    found = statistics(made, flips(blocks, 1).rows, True)
    return found[np.argsort(found[:, 0], kind="stable")]


def of_every_set(found: NDArray[np.float32]) -> list[int]:
    """Of each cell the largest count of all 2^m sets."""
    cells = len(found)
    counts = [0] * cells
    for least, most, power in sizes(cells):
        sums = found.astype(float) ** power
        for size in range(least, most + 1):
            for chosen in map(list, combinations(range(cells), size)):
                total = sums[chosen].sum(axis=0)
                count = int(np.count_nonzero(total >= sums[chosen, 0].sum() * (1 - significance.EQUAL)))
                for cell in chosen:
                    counts[cell] = max(counts[cell], count)
    return counts


def alone(found: NDArray[np.float32]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.count_nonzero(found >= found[:, :1] * (1 - significance.EQUAL), axis=1)
    return counts


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("differing", [2, 5, 10])
def test_no_set_is_worse_than_those_that_were_found(seed: int, differing: int) -> None:
    found = made_up(seed, 10, differing=differing)
    counts, expected = most_counted(found, alone(found), ENOUGH), np.array(of_every_set(found))
    different = expected <= ENOUGH
    assert (counts[different] == expected[different]).all()
    assert (counts[~different] > ENOUGH).all() and (counts <= expected).all()


def test_some_are_different_and_some_are_not() -> None:
    """The test above sees both."""
    several = [np.array(of_every_set(made_up(seed, 6))) <= ENOUGH for seed in range(6)]
    assert any(one.any() for one in several) and any((~one).any() for one in several)


def test_powers_rise_with_the_size_of_a_set() -> None:
    assert list(sizes(1)) == [(1, 1, 4)]
    assert list(sizes(14)) == [(1, 2, 4), (3, 4, 5), (5, 8, 6), (9, 14, 7)]
    assert list(sizes(64))[-1] == (33, 64, 9)


def test_where_all_differ_by_little_more_are_seen_than_by_the_largest_of_all() -> None:
    by_sets, by_largest = 0, 0
    for seed in range(20):
        found = made_up(seed, 14, least=2.0)
        by_sets += int((of_statistics(found).p_adjusted <= 0.05).sum())
        measured, running = found[:, 0], np.maximum.accumulate(found, axis=0)
        p = np.mean(running >= measured[:, None], axis=1)
        by_largest += int((np.maximum.accumulate(p[::-1]) <= 0.05).sum())
    assert by_sets > 1.2 * by_largest


def test_a_cell_for_which_too_many_sets_would_have_to_be_looked_at_is_not_called_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = made_up(1, 14, least=2.0)
    exact = of_statistics(found).p_adjusted <= 0.05
    monkeypatch.setattr(significance, "_MOST_PARTS", 1)
    cut = of_statistics(found).p_adjusted <= 0.05
    assert not (cut & ~exact).any()
    assert exact.sum() > cut.sum()


def test_p_adjusted_is_never_smaller_than_p() -> None:
    for seed in range(10):
        tested = of_statistics(made_up(seed, 9, differing=3))
        assert (tested.p_adjusted >= tested.p).all()
        assert sorted(tested.left.tolist()) == list(range(1, 10))
