"""From stamps made by hand to samples. Rows are ranks, columns are operations; nanoseconds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from collbench.run.samples import left_early, leg_times, out_times, per_operation, valid_samples
from collbench.timing.loop import Stamps


def stamps(entered: list[int], left: list[int], late: list[bool] | None = None, *marks: list[int]) -> Stamps:
    ends = np.array(marks, np.int64).reshape(len(marks), len(left)).T
    return Stamps(np.array(entered), np.array(left), np.array(late or [False] * len(left)), ends)


def test_a_sample_is_last_out_minus_first_in() -> None:
    ranks = [stamps([100, 500], [110, 590]), stamps([105, 480], [130, 520]), stamps([90, 490], [120, 600])]
    matrix = out_times(ranks, "common")
    assert matrix.tolist() == out_times(ranks, "synced").tolist() == [[20, 110], [40, 40], [30, 120]]
    assert valid_samples(matrix).tolist() == [40, 120]


def test_without_a_common_clock_it_is_the_largest_local_time() -> None:
    ranks = [stamps([100, 500], [110, 590]), stamps([7_000_000, 8_000_000], [7_000_025, 8_000_020])]
    matrix = out_times(ranks, "local")
    assert matrix.tolist() == [[10, 90], [25, 20]]
    assert valid_samples(matrix).tolist() == [25, 90]


@pytest.mark.parametrize("clock", ["common", "local"])
def test_one_late_rank_makes_the_sample_late_on_all(clock: str) -> None:
    ranks = [
        stamps([0, 10, 20], [5, 15, 25], [False, True, False]),
        stamps([0, 10, 20], [7, 17, 27], [False, False, True]),
    ]
    matrix = out_times(ranks, "common" if clock == "common" else "local")
    assert matrix.tolist() == [[5, -5, -5], [7, -7, -7]]
    assert valid_samples(matrix).tolist() == [7]


def test_samples_are_never_zero_so_that_their_sign_is_told() -> None:
    matrix = out_times([stamps([10, 10], [10, 10], [False, True]), stamps([10, 12], [10, 12])], "common")
    assert matrix.tolist() == [[1, -1], [1, -2]]
    assert valid_samples(matrix).tolist() == [1]


def test_no_valid_sample() -> None:
    assert len(valid_samples(out_times([stamps([0], [5], [True])], "common"))) == 0


def test_leaving_a_barrier_before_the_last_has_come() -> None:
    good = [stamps([0, 100], [60, 160]), stamps([50, 101], [55, 150]), stamps([20, 150], [61, 155])]
    assert left_early(good) == 0
    early = [stamps([0, 100], [49, 149]), stamps([50, 101], [55, 150]), stamps([20, 150], [61, 155])]
    assert left_early(early) == 2
    assert left_early([stamps([5], [5])]) == 0


def test_a_burst_is_shared_out_over_its_operations() -> None:
    """Late samples stay negative, and what is too short to be shared is not 0, which would have no sign."""
    matrix = np.array([[100, -100, 9, 10, 1, -1], [101, -149, 11, 30, 4, -4]])
    assert per_operation(matrix, 20).tolist() == [[5, -5, 1, 1, 1, -1], [5, -7, 1, 2, 1, -1]]
    assert per_operation(matrix, 1).tolist() == matrix.tolist()
    assert per_operation(matrix, 20).dtype == np.int64


def test_with_a_common_clock_the_legs_add_up_to_the_sample() -> None:
    """A leg ends when its last rank has; the first begins when the first rank enters."""
    ranks = [
        stamps([100, 500], [190, 700], None, [130, 520], [150, 640]),
        stamps([105, 480], [180, 710], None, [120, 560], [170, 600]),
    ]
    legs = leg_times(ranks, "common")
    assert legs.tolist() == leg_times(ranks, "synced").tolist() == [[30, 80], [40, 80], [20, 70]]
    assert legs.sum(axis=0).tolist() == valid_samples(out_times(ranks, "common")).tolist()


def test_a_leg_that_a_rank_is_through_early_holds_nobody_up() -> None:
    """The server is done with its part while the workers wait for the link."""
    ranks = [stamps([0], [50], None, [50]), stamps([0], [90], None, [0])]
    assert leg_times(ranks, "common").tolist() == [[50], [40]]


def test_without_a_common_clock_a_leg_is_its_largest_local_time() -> None:
    ranks = [
        stamps([100, 500], [190, 700], None, [130, 520]),
        stamps([7_000_105, 8_000_000], [7_000_180, 8_000_100], None, [7_000_120, 8_000_030]),
    ]
    assert leg_times(ranks, "local").tolist() == [[30, 30], [60, 180]]
    early = [stamps([10], [95], None, [25]), stamps([7], [90], None, [40])]
    assert leg_times(early, "local").tolist() == [[33], [70]]
    assert leg_times(early, "common").tolist() == [[33], [55]]


@pytest.mark.parametrize("clock", ["common", "local"])
def test_an_operation_of_one_part_has_one_leg(clock: Literal["common", "local"]) -> None:
    ranks = [stamps([100, 500], [190, 700]), stamps([90, 510], [180, 710])]
    assert leg_times(ranks, clock).tolist() == [valid_samples(out_times(ranks, clock)).tolist()]


def test_valid_are_samples_that_took_time_and_were_not_late() -> None:
    """The sign of the largest value says whether a sample was late; 0 has none."""
    assert valid_samples(np.array([[5, -9, 0, 3], [7, -2, 0, 1]])).tolist() == [7, 3]
