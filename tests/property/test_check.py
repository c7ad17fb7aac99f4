"""Results are checked exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collbench import collectives
from collbench.bindings.spec import HostBuffer
from collbench.collectives.row import Array, Collective
from collbench.run import measure
from collbench.schema.axes import DTYPES, Op

dtypes = st.sampled_from(list(DTYPES))
blocks = st.integers(1, 4)
periods = st.sampled_from(measure.PERIODS)


def tile(rank: int, ranks: int, blocks: int, period: int, dtype: str, op: Op | None) -> Array:
    """One period of a rank's input, [blocks, period]."""
    made: Array = measure.tiles(range(rank, rank + 1), ranks, range(blocks), period, dtype, op)[0]
    return made


def written(tile: Array, count: int) -> Array:
    target = np.empty((len(tile), count), tile.dtype)
    measure.poison(HostBuffer(target))
    measure.write(HostBuffer(target), tile)
    return target


@st.composite
def cases(draw: st.DrawFn, least: int = 0) -> tuple[Array, Array]:
    """A period, and a buffer of it: shorter than the period, a multiple of it, or neither."""
    period = draw(periods)
    counts = [n for n in (period - 1, period, 2 * period, 2 * period + 1) if n >= least] or [least]
    count = draw(st.integers(least, least + 3 * period) | st.sampled_from(counts))
    op: Op | None = draw(st.sampled_from([None, "sum"]))
    period_of_input = tile(draw(st.integers(0, 4)), 5, draw(blocks), period, draw(dtypes), op)
    return period_of_input, written(period_of_input, count)


@given(cases())
def test_a_buffer_is_its_period_over_and_over(case: tuple[Array, Array]) -> None:
    tile, buffer = case
    repeats = buffer.shape[1] // tile.shape[1] + 1
    assert (buffer == np.tile(tile, (1, repeats))[:, : buffer.shape[1]]).all()
    assert measure.count_wrong(HostBuffer(buffer), tile) == 0


@given(cases(least=1), st.data())
def test_one_flipped_bit_is_found_anywhere(case: tuple[Array, Array], data: st.DataObject) -> None:
    tile, buffer = case
    line, column = data.draw(st.integers(0, len(buffer) - 1)), data.draw(st.integers(0, buffer.shape[1] - 1))
    bit = data.draw(st.integers(0, 8 * buffer.itemsize - 1))
    before = buffer[line, column]
    buffer[line : line + 1, column : column + 1].view(np.uint8)[0, bit // 8] ^= 1 << bit % 8
    # The sign of a floating-point zero is no difference: -0.0 == 0.0.
    assert measure.count_wrong(HostBuffer(buffer), tile) == int(not buffer[line, column] == before)  # noqa: SIM201 - NaN too


@given(cases(least=1), st.data())
def test_every_wrong_element_is_counted_once(case: tuple[Array, Array], data: st.DataObject) -> None:
    tile, buffer = case
    right = buffer.copy()
    for _ in range(data.draw(st.integers(1, 5))):
        a, b = (data.draw(st.integers(0, buffer.shape[1])) for _ in range(2))
        segment = buffer[data.draw(st.integers(0, len(buffer) - 1)), min(a, b) : max(a, b)]
        segment[:] = segment[::-1].copy()
    assert measure.count_wrong(HostBuffer(buffer), tile) == np.count_nonzero(buffer != right)


@given(cases(least=61), st.data())
def test_two_swapped_blocks_are_found(case: tuple[Array, Array], data: st.DataObject) -> None:
    tile, buffer = case
    assume(len(buffer) > 1)
    assume(buffer.dtype != np.int8 or tile.max() > 1)
    a, b = data.draw(st.lists(st.integers(0, len(buffer) - 1), min_size=2, max_size=2, unique=True))
    buffer[[a, b]] = buffer[[b, a]]
    assert measure.count_wrong(HostBuffer(buffer), tile) > 0


@given(cases(least=200), st.data())
def test_a_shifted_segment_is_found(case: tuple[Array, Array], data: st.DataObject) -> None:
    """A piece of a message that arrives elsewhere: wrong unless it moved by whole periods."""
    tile, buffer = case
    count, period = buffer.shape[1], tile.shape[1]
    length = data.draw(st.integers(100, count - 1))
    source, target = (data.draw(st.integers(0, count - length)) for _ in range(2))
    assume((source - target) % period != 0)
    line = data.draw(st.integers(0, len(buffer) - 1))
    buffer[line, target : target + length] = buffer[line, source : source + length].copy()
    assert measure.count_wrong(HostBuffer(buffer), tile) > 0


@settings(max_examples=20)
@given(chunks=st.integers(1, 2), more=st.integers(0, 2), odd=st.integers(0, 60), data=st.data())
def test_buffers_beyond_one_chunk_of_the_comparison(chunks: int, more: int, odd: int, data: st.DataObject) -> None:
    chunk = measure._CHUNK // 61 * 61
    tile = np.arange(61, dtype=np.int8).reshape(1, 61)
    buffer = written(tile, chunks * chunk + more * 61 + odd)
    edges = [0, chunk - 1, chunk, chunks * chunk - 1, chunks * chunk, buffer.size - 1]
    buffer[0, min(data.draw(st.sampled_from(edges)), buffer.size - 1)] ^= 1
    assert measure.count_wrong(HostBuffer(buffer), tile) == 1


rows = st.sampled_from(collectives.names()).map(collectives.get)
item_sizes = st.sampled_from(sorted(set(DTYPES.values())))


@given(rows, st.integers(0, 2**40), item_sizes, st.integers(1, 1000))
def test_counts_are_those_of_nccl_tests(row: Collective, size: int, itemsize: int, ranks: int) -> None:
    """nccl-tests, GetCollByteCount of each program: (count / nranks) & -(16 / eltsize) where a size is shared out.

    A share of which that leaves nothing is not rounded.
    """
    count = size // itemsize
    if not row.moves_data:
        assert row.count(size, itemsize, ranks) == 0
    elif row.split:
        share = count // ranks
        assert row.count(size, itemsize, ranks) == (share & -(16 // itemsize) or share)
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
