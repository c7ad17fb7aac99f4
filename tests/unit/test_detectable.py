"""What so many launches can see: quiet ones find little differences, and names that mean nothing are none."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.analysis import detectable
from collbench.analysis.detectable import PairedLaunches, false_positives, smallest


def sides(spread: float, launches: int = 10, cells: int = 3, between: float = 0.0) -> list[PairedLaunches]:
    """Launches of one thing under two names, with a spread within blocks and one between them (shares)."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(cells):
        block = generator.normal(0, between, launches)
        one, other = (np.exp(block + generator.normal(0, spread, launches)) * 1e-5 for _ in range(2))
        found.append(PairedLaunches(tuple(one.tolist()), tuple(other.tolist())))
    return found


def test_names_that_mean_nothing_are_seldom_called_different() -> None:
    assert false_positives(sides(0.05, cells=8)) <= 0.05


@pytest.mark.slow
def test_quiet_launches_see_smaller_differences() -> None:
    quiet, loud = smallest(sides(0.005)), smallest(sides(0.05))
    assert all(one is not None and one <= 0.03 for one in quiet)
    assert all(one is not None and one >= 0.05 for one in loud)


def test_drift_from_block_to_block_hides_little() -> None:
    assert all(one is not None and one <= 0.05 for one in smallest(sides(0.005, between=0.3)))


@pytest.mark.slow
def test_what_no_difference_overcomes_is_none() -> None:
    assert smallest(sides(3.0)) == [None] * 3


@pytest.mark.slow
def test_a_difference_is_put_into_one_cell_beside_others_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 6 launches one cell alone can be told, and one of eight cannot, however large the difference is."""
    monkeypatch.setattr(detectable, "STEPS", (0.05, 2.0))
    alone, many = smallest(sides(0.005, 6, 1)), smallest(sides(0.005, 6, 8))
    assert alone[0] is not None and alone[0] <= 0.05
    assert many == [None] * 8
    assert all(one is not None for one in smallest(sides(0.005, 7, 8)))
