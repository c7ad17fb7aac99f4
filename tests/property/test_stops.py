"""Stop rules end, whatever the pace, and keep their bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collbench.run.sampling import LARGEST_BATCH, LONGEST_BATCH, Budget, Fixed, StopRule

paces = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5)


def played(rule: StopRule, paces: list[float], most: int) -> tuple[int, float]:
    """Samples and seconds until the rule ends, when each batch in turn runs at another pace (s per sample)."""
    done, seconds, batches = 0, 0.0, 0
    while (n := rule.next_batch(done, seconds)) > 0:
        assert n <= LARGEST_BATCH
        if done and seconds:
            assert n == 1 or n * seconds / done <= LONGEST_BATCH * (1 + 1e-9)
        done += n
        seconds += n * paces[batches % len(paces)]
        batches += 1
        assert batches <= most
    return done, seconds


@given(st.integers(1, 20_000), paces)
def test_fixed_sums_to_n(n: int, paces: list[float]) -> None:
    done, _ = played(Fixed(n), paces, most=n)
    assert done == n


@given(st.floats(1e-9, 1e300), st.integers(1, 500), st.integers(0, 10_000), paces)
def test_a_budget_ends_between_floor_and_cap(budget: float, floor: int, more: int, paces: list[float]) -> None:
    rule = Budget(budget, floor, floor + more)
    done, seconds = played(rule, paces, most=floor + more)
    assert floor <= done <= floor + more
    assert done == floor + more or done == floor or seconds > 0.0
