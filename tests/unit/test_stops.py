from __future__ import annotations

import pytest

from collbench.run.sampling import FIRST_BATCH, LARGEST_BATCH, LONGEST_BATCH, Budget, Fixed, StopRule


def batches(rule: StopRule, pace: float) -> list[int]:
    """Batch sizes when every sample takes `pace` seconds."""
    found: list[int] = []
    while (n := rule.next_batch(sum(found), sum(found) * pace)) > 0:
        found.append(n)
        assert len(found) <= 1_000, "it does not stop"
    return found


@pytest.mark.parametrize("n", [1, FIRST_BATCH - 1, FIRST_BATCH, FIRST_BATCH + 1, 1000, 100_000])
def test_fixed_takes_exactly_what_was_asked_for(n: int) -> None:
    assert sum(batches(Fixed(n), 1e-6)) == n
    assert batches(Fixed(n), 1e-6)[0] == min(n, FIRST_BATCH)


def test_batches_are_small_first_and_bounded_then() -> None:
    assert batches(Fixed(5000), 1e-6) == [FIRST_BATCH, LARGEST_BATCH, LARGEST_BATCH, 990]
    assert batches(Fixed(100), 0.1) == [FIRST_BATCH, *[5] * 18]
    assert batches(Fixed(FIRST_BATCH + 2), 10 * LONGEST_BATCH) == [FIRST_BATCH, 1, 1]


def test_a_budget_pays_for_as_many_samples_as_it_can() -> None:
    assert sum(batches(Budget(0.25, floor=20, cap=10_000), 1e-3)) == 250
    assert sum(batches(Budget(1.0, floor=20, cap=10_000), 0.01)) == 100


def test_a_budget_has_a_floor_and_a_cap() -> None:
    assert sum(batches(Budget(0.25, floor=20, cap=10_000), 2.0)) == 20
    assert sum(batches(Budget(0.25, floor=20, cap=10_000), 1e-7)) == 10_000
    assert sum(batches(Budget(0.25, floor=5, cap=7), 1e-7)) == 7


def test_a_clock_that_stands_still_ends_at_the_cap() -> None:
    assert sum(batches(Budget(0.25, floor=20, cap=10_000), 0.0)) == 10_000
    assert sum(batches(Fixed(3000), 0.0)) == 3000
