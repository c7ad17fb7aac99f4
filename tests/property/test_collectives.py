from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collbench import collectives
from collbench.collectives.row import Collective
from collbench.schema.axes import DTYPES

rows = st.sampled_from(collectives.names()).map(collectives.get)
item_sizes = st.sampled_from(sorted(set(DTYPES.values())))


@given(rows, st.integers(0, 2**40), item_sizes, st.integers(1, 1000))
def test_counts_are_those_of_nccl_tests(row: Collective, size: int, itemsize: int, ranks: int) -> None:
    """nccl-tests, GetCollByteCount of each program: (count / nranks) & -(16 / eltsize) where a size is shared out."""
    count = size // itemsize
    if not row.moves_data:
        assert row.count(size, itemsize, ranks) == 0
    elif row.split:
        assert row.count(size, itemsize, ranks) == (count // ranks) & -(16 // itemsize)
    else:
        assert row.count(size, itemsize, ranks) == count


@given(rows, st.integers(0, 2**40), item_sizes, st.integers(1, 1000))
def test_the_size_shown_is_what_is_moved(row: Collective, size: int, itemsize: int, ranks: int) -> None:
    count = row.count(size, itemsize, ranks)
    shown = row.size(count, itemsize, ranks)
    assert 0 <= shown <= size
    if row.moves_data:
        lost = (16 * ranks + itemsize * ranks) if row.split else itemsize
        assert size - shown < lost
    assert row.count(shown, itemsize, ranks) == count
