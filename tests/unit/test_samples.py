"""From stamps made by hand to samples. Rows are ranks, columns are operations; nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.run.samples import left_early, out_times, valid_samples
from collbench.timing.loop import Stamps


def stamps(entered: list[int], left: list[int], late: list[bool] | None = None, *marks: list[int]) -> Stamps:
    ends = np.array(marks, np.int64).reshape(len(marks), len(left)).T
    return Stamps(np.array(entered), np.array(left), np.array(late or [False] * len(left)), ends)


def test_a_sample_is_last_out_minus_first_in() -> None:
    ranks = [stamps([100, 500], [110, 590]), stamps([105, 480], [130, 520]), stamps([90, 490], [120, 600])]
    matrix = out_times(ranks, "common")
    assert matrix.tolist() == [[20, 110], [40, 40], [30, 120]]
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
