"""How far yardsticks moved, and what the spread of launches costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collbench.analysis.bounds import Launches, in_order
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import Movement, cost, movements


def test_movements_leave_out_what_could_not_be_read() -> None:
    found = movements([{"a": None, "b": 2.0}, {"a": 5.0, "b": 3.0, "c": None}, {"b": 1.0}])
    assert found == (Movement("b", 1.0, 3.0, 3), Movement("a", 5.0, 5.0, 1))
    assert [one.share for one in found] == [2.0, 0.0]
    assert movements([]) == ()


def paired(*logs: float) -> Launches:
    return in_order((1.0,) * len(logs), tuple(math.exp(log) for log in logs))


def test_the_sample_size_of_a_paired_test() -> None:
    """(1.96 + 0.8416)^2 = 7.849: with s = 0.1, and log(1.05) = 0.0488, 33 blocks."""
    s = 0.1 / math.sqrt(2)  # of one value on either side of 0 the deviation is sqrt(2) times as large
    found = cost([paired(-s, s), paired(0.0, 0.001)], 0.05)
    assert found is not None
    assert found.spread == pytest.approx(0.1)
    assert found.difference == 0.05
    assert found.launches == math.ceil(7.849 * (0.1 / math.log(1.05)) ** 2) == 33


def test_as_many_launches_as_it_says_see_the_difference_in_four_of_five_experiments() -> None:
    draw = np.random.default_rng(3)
    found = cost([paired(*draw.normal(0, 0.05, 4000))], 0.03)
    assert found is not None
    values = draw.normal(math.log(1.03), 0.05, (4000, found.launches))
    seen = np.abs(values.mean(axis=1)) > 1.96 * values.std(axis=1, ddof=1) / math.sqrt(found.launches)
    assert 0.75 < seen.mean() < 0.87


def test_a_quiet_machine_needs_as_many_as_there_must_be() -> None:
    found = cost([paired(*[0.0] * 7)], 0.02)
    assert found is not None
    assert (found.spread, found.launches) == (0.0, FEWEST)


def test_what_has_no_spread_or_no_difference_costs_nothing_that_is_known() -> None:
    assert cost([paired(0.1)], 0.02) is None
    assert cost([paired(0.1, 0.2)], 0.0) is None
