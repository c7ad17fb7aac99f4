"""From stamps made by hand to samples. Rows are ranks, columns are operations; nanoseconds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from tests.unit.made_measurements import in_world

from collbench.run import sampling
from collbench.run.sampling import Times, left_early, per_operation, times_of
from collbench.schema.case import SampleClock
from collbench.timing.loop import Stamps

Clock = SampleClock


def found_of(ranks: list[Stamps], clock: Clock, burst: int = 1) -> list[Times]:
    """What each rank finds."""
    of_ranks = in_world(len(ranks), lambda world: times_of(ranks[world.rank], world, clock, burst))
    for other in of_ranks[1:]:
        assert (other.samples == of_ranks[0].samples).all() and (other.legs == of_ranks[0].legs).all()
        assert (other.in_time == of_ranks[0].in_time).all()
    return of_ranks


def out_times(ranks: list[Stamps], clock: Clock) -> NDArray[np.int64]:
    """[ranks, n]: each rank's own times."""
    return np.stack([times.of_rank for times in found_of(ranks, clock)])


def leg_times(ranks: list[Stamps], clock: Clock) -> NDArray[np.int64]:
    """[stages, n]."""
    return found_of(ranks, clock)[0].legs


def valid_samples(ranks: list[Stamps], clock: Clock) -> NDArray[np.int64]:
    """[valid]."""
    times = found_of(ranks, clock)[0]
    return times.samples[times.in_time]


def stamps(entered: list[int], left: list[int], late: list[bool] | None = None, *marks: list[int]) -> Stamps:
    ends = np.array(marks, np.int64).reshape(len(marks), len(left)).T
    return Stamps(np.array(entered), np.array(left), np.array(late or [False] * len(left)), ends)


def test_a_sample_is_last_out_minus_first_in() -> None:
    ranks = [stamps([100, 500], [110, 590]), stamps([105, 480], [130, 520]), stamps([90, 490], [120, 600])]
    matrix = out_times(ranks, "common")
    assert matrix.tolist() == out_times(ranks, "synced").tolist() == [[20, 110], [40, 40], [30, 120]]
    assert valid_samples(ranks, "common").tolist() == [40, 120]


def test_without_a_common_clock_it_is_the_largest_local_time() -> None:
    ranks = [stamps([100, 500], [110, 590]), stamps([7_000_000, 8_000_000], [7_000_025, 8_000_020])]
    matrix = out_times(ranks, "local")
    assert matrix.tolist() == [[10, 90], [25, 20]]
    assert valid_samples(ranks, "local").tolist() == [25, 90]


@pytest.mark.parametrize("clock", ["common", "local"])
def test_one_late_rank_makes_the_sample_late_on_all(clock: Clock) -> None:
    ranks = [
        stamps([0, 10, 20], [5, 15, 25], [False, True, False]),
        stamps([0, 10, 20], [7, 17, 27], [False, False, True]),
    ]
    assert out_times(ranks, clock).tolist() == [[5, -5, -5], [7, -7, -7]]
    assert found_of(ranks, clock)[0].samples.tolist() == [7, -7, -7]
    assert valid_samples(ranks, clock).tolist() == [7]


def test_samples_are_never_zero_so_that_their_sign_is_told() -> None:
    ranks = [stamps([10, 10], [10, 10], [False, True]), stamps([10, 12], [10, 12])]
    assert out_times(ranks, "common").tolist() == [[1, -1], [1, -2]]
    assert valid_samples(ranks, "common").tolist() == [1]


def test_no_valid_sample() -> None:
    assert len(valid_samples([stamps([0], [5], [True])], "common")) == 0


def test_leaving_a_barrier_before_the_last_has_come() -> None:
    def early_in(ranks: list[Stamps]) -> int:
        (of_ranks,) = set(in_world(len(ranks), lambda world: left_early(ranks[world.rank], world)))
        return of_ranks

    good = [stamps([0, 100], [60, 160]), stamps([50, 101], [55, 150]), stamps([20, 150], [61, 155])]
    assert early_in(good) == 0
    early = [stamps([0, 100], [49, 149]), stamps([50, 101], [55, 150]), stamps([20, 150], [61, 155])]
    assert early_in(early) == 2
    assert early_in([stamps([5], [5])]) == 0


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
    assert legs.sum(axis=0).tolist() == valid_samples(ranks, "common").tolist()


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
    assert leg_times(ranks, clock).tolist() == [valid_samples(ranks, clock).tolist()]


# The same from the stamps of all ranks --------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> list[Stamps]:
    """Stamps of some ranks: marks lie between the other two, and any sample may be late on any rank."""
    ranks, n, stages = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    moments = draw(arrays(np.int64, (ranks, n, stages + 1), elements=st.integers(0, 10**6)))
    moments = np.sort(moments, axis=2) + draw(st.sampled_from([0, 10**18]))
    late = draw(arrays(np.bool_, (ranks, n)))
    return [Stamps(m[:, 0], m[:, -1], lates, m[:, 1:-1]) for m, lates in zip(moments, late, strict=True)]


def direct(ranks: list[Stamps], clock: Clock, burst: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[ranks, n] own times, and [stages, n] legs, by the definitions: with the stamps of all ranks in one place."""
    entered, left = (np.stack([getattr(one, name) for one in ranks]) for name in ("entered", "left"))
    begin = entered.min(axis=0) if clock == "common" else entered
    times = np.maximum(np.rint(np.maximum(left - begin, 1) / burst).astype(np.int64), 1)
    late = np.stack([one.late for one in ranks]).any(axis=0)
    ends = np.stack([np.column_stack((one.marks, one.left)) for one in ranks])
    begins = np.stack([np.column_stack((one.entered, one.marks)) for one in ranks])
    if clock == "local":
        legs = (ends - begins).max(axis=0)
    else:
        last = ends.max(axis=0)
        legs = last - np.column_stack((begins[:, :, 0].min(axis=0), last[:, :-1]))
    return np.where(late, -times, times), legs.T


@pytest.mark.parametrize("clock", ["common", "local"])
@given(ranks=worlds(), burst=st.sampled_from([1, 20]))
def test_reductions_give_what_all_stamps_in_one_place_would(clock: Clock, ranks: list[Stamps], burst: int) -> None:
    matrix, legs = direct(ranks, clock, burst)
    found = found_of(ranks, clock, burst)
    assert np.stack([times.of_rank for times in found]).tolist() == matrix.tolist()
    assert found[0].samples.tolist() == (np.sign(matrix[0]) * np.abs(matrix).max(axis=0)).tolist()
    assert found[0].legs.tolist() == legs.tolist()
    assert all(times.of_rank.dtype == times.samples.dtype == np.int64 for times in found)


def test_many_samples_are_reduced_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [stamps([0, 10, 20, 30, 40], [5, 16, 27, 38, 49]), stamps([1, 9, 20, 30, 40], [6, 15, 28, 30, 41])]
    whole = found_of(ranks, "common")
    monkeypatch.setattr(sampling, "PORTION", 2)
    parts = found_of(ranks, "common")
    assert [times.of_rank.tolist() for times in parts] == [times.of_rank.tolist() for times in whole]
    assert parts[0].samples.tolist() == whole[0].samples.tolist() == [6, 7, 8, 8, 9]
    assert parts[0].legs.tolist() == whole[0].legs.tolist()
