from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from collbench.schema.axes import MOST_SIZES, Sizes


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(2, 100))
def test_a_sweep_by_factor(low: int, more: int, factor: int) -> None:
    sizes = Sizes(min=low, max=low + more, factor=factor).expand()
    assert sizes[0] == low
    assert all(later == max(earlier * factor, 1) for earlier, later in pairwise(sizes))
    assert all(earlier < later for earlier, later in pairwise(sizes))
    assert sizes[-1] <= low + more < max(sizes[-1] * factor, 1)


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 2**30))
def test_a_sweep_by_step(low: int, more: int, step: int) -> None:
    assume(more // step < MOST_SIZES)
    sizes = Sizes(min=low, max=str(low + more), step=step).expand()
    assert sizes == tuple(range(low, low + more + 1, step))
