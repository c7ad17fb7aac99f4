"""Where the difference of two options changes its sign for good."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.analysis.tradeoffs import crossing

AXIS = np.array([3.0, 4.0, 6.0, 7.0, 8.0])


@pytest.mark.parametrize(
    ("difference", "found"),
    [
        ((4, 2, -2, -4, -6), 5.0),  # half way between 4 and 6
        ((3, -1, -2, -3, -4), 3.75),
        ((1, 1, 1, 1, -3), 7.25),
        ((2, 1, 0, -1, -1), 6.0),  # equal at a measured size
        ((1, 0, 0, -1, -1), 4.0),  # where it ends to be positive, not where it begins to be negative
    ],
)
def test_a_crossing_lies_on_the_straight_line_between_two_sizes(difference: tuple[float, ...], found: float) -> None:
    assert crossing(AXIS, np.array(difference, float)) == pytest.approx(found)


def test_of_several_crossings_the_last_one_counts() -> None:
    """Between 6 and 7 the lower option is ahead again: only beyond 7.5 does the upper one stay the better."""
    assert crossing(AXIS, np.array([2.0, -2.0, -1.0, 1.0, -1.0])) == pytest.approx(7.5)


@pytest.mark.parametrize("difference", [(-1, -1, -1, -1, -1), (0, 0, 0, 0, 0), (0, -1, -1, -2, -2)])
def test_where_it_is_never_positive_the_crossing_lies_an_octave_before_the_axis(difference: tuple[float, ...]) -> None:
    assert crossing(AXIS, np.array(difference, float)) == 2.0


@pytest.mark.parametrize("difference", [(1, 1, 1, 1, 1), (-1, -1, -1, -1, 1), (1, -1, -1, -1, 1)])
def test_where_it_is_positive_at_the_end_the_crossing_lies_an_octave_behind(difference: tuple[float, ...]) -> None:
    assert crossing(AXIS, np.array(difference, float)) == 9.0
