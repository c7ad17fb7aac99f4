"""What so many launches can see: quiet ones find little differences, and names that mean nothing are none."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.analysis import planning
from collbench.analysis.bounds import Launches, in_order
from collbench.analysis.planning import false_positives, smallest


def sides(spread: float, launches: int = 10, cells: int = 3, between: float = 0.0) -> list[Launches]:
    """Launches of one thing under two names, with a spread within blocks and one between them (shares)."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(cells):
        block = generator.normal(0, between, launches)
        one, other = (np.exp(block + generator.normal(0, spread, launches)) * 1e-5 for _ in range(2))
        found.append(in_order(one.tolist(), other.tolist()))
    return found


def test_names_that_mean_nothing_are_seldom_called_different() -> None:
    """Over all swaps of eight blocks about 5 % of them have any cell whose interval excludes equality.

    Not exactly: each interval is that of a test in which the other cells stand at their own locations.
    """
    assert 0.02 < false_positives(sides(0.05, launches=8, cells=8)) < 0.06


@pytest.mark.slow
def test_quiet_launches_see_smaller_differences() -> None:
    quiet, loud = smallest(sides(0.005), 0.02), smallest(sides(0.05), 0.02)
    assert all(one is not None and one <= 0.03 for one in quiet)
    assert all(one is not None and one >= 0.05 for one in loud)


def test_drift_from_block_to_block_hides_little() -> None:
    assert all(one is not None and one <= 0.05 for one in smallest(sides(0.005, between=0.3), 0.02))


@pytest.mark.slow
def test_what_no_difference_overcomes_is_none() -> None:
    assert smallest(sides(3.0), 0.05) == [None] * 3


def test_a_difference_is_put_into_one_cell_beside_others_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six launches tell one cell of eight; in launches that spread by more, one of many takes a larger difference."""
    monkeypatch.setattr(planning, "STEPS", (0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1))
    assert all(one is not None and one <= 0.1 for one in smallest(sides(0.005, 6, 8), 0.02))
    alone, among = smallest(sides(0.02, 7, 1), 0.02), smallest(sides(0.02, 7, 12), 0.02)
    assert alone[0] is not None
    assert among[0] is None or among[0] > alone[0]
