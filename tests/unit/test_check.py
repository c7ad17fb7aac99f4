"""Inputs whose result is known exactly: exact under every operation, in every dtype, for any number of ranks."""

from __future__ import annotations

from functools import reduce
from typing import Any, get_args

import numpy as np
import pytest

from collbench import collectives
from collbench.bindings.spec import HostBuffer, numpy_dtype
from collbench.collectives.row import Array, fold
from collbench.run import measure
from collbench.schema.axes import DTYPES, Op


def tile(rank: int, ranks: int, blocks: int, period: int, dtype: str, op: Op | None) -> Array:
    """One period of a rank's input, [blocks, period]."""
    made: Array = measure.tiles(range(rank, rank + 1), ranks, range(blocks), period, dtype, op)[0]
    return made


PERIOD = 251
#: What a sum of whole numbers may reach and still be exact in the dtype.
LARGEST = {
    "int8": 2**7 - 1, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1,
    "uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1,
    "float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53,
    "fp8_e4m3": 2**7, "fp8_e5m2": 2**7,  # what 126 is rounded to; sums and products stay below 16 and 8
}  # fmt: skip


def tiles(ranks: int, dtype: str, op: Op | None) -> list[Array]:
    return [tile(rank, ranks, 2, PERIOD, dtype, op) for rank in range(ranks)]


def exactly(arrays: list[Array], op: Op) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The reduction in whole numbers, where nothing can be rounded; of `avg` the sum."""
    ufunc = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    result: np.ndarray[Any, np.dtype[np.int64]] = reduce(ufunc, [array.astype(np.int64) for array in arrays])
    return result


def quotient(total: Array, ranks: int, dtype: str) -> Array:
    """A sum over the number of ranks: rounded down in whole numbers, to the nearest in floats."""
    found: Array = total // ranks if "int" in dtype else (total / ranks).astype(numpy_dtype(dtype))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 64, 255, 300, 520])
@pytest.mark.parametrize("op", get_args(Op))
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_are_exact_in_the_dtype(dtype: str, op: Op, ranks: int) -> None:
    arrays = tiles(ranks, dtype, op)
    expected = exactly(arrays, op)
    assert all(array.dtype == numpy_dtype(dtype) for array in arrays)
    assert expected.min() >= 0
    assert expected.max() <= LARGEST[dtype]
    for result in (fold(op)(arrays), fold(op)(arrays[::-1])):
        assert result.dtype == numpy_dtype(dtype)
        right = quotient(expected, ranks, dtype) if op == "avg" else expected
        assert (result.astype(np.float64) == right.astype(np.float64)).all()
    if op == "prod":
        assert expected.max() <= 15
    if op in ("sum", "avg"):
        assert len(np.unique(expected)) > 1


@pytest.mark.parametrize("ranks", [1, 3, 300])
@pytest.mark.parametrize("op", [None, *get_args(Op)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_no_expected_value(dtype: str, op: Op | None, ranks: int) -> None:
    poisoned = np.zeros((2, PERIOD), numpy_dtype(dtype))
    measure.poison(HostBuffer(poisoned))
    expected = tiles(ranks, dtype, op)
    for array in expected if op is None else (*expected, fold(op)(expected)):
        assert (poisoned != array).all()
        assert measure.count_wrong(HostBuffer(poisoned), array) == poisoned.size


def test_an_average_over_more_ranks_than_the_dtype_counts() -> None:
    """300 does not fit int8, and no sum there exceeds 126: the average is 0, and a sum that was not divided is not."""
    for dtype in ("int8", "uint8"):
        arrays = tiles(300, dtype, "avg")
        assert (fold("avg")(arrays) == 0).all()
        assert measure.count_wrong(HostBuffer(fold("sum")(arrays)), fold("avg")(arrays)) > PERIOD


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [None, *get_args(Op)])
def test_only_averages_of_floats_have_a_tolerance(dtype: str, op: Op | None) -> None:
    for ranks in (1, 2, 8, 256):
        assert measure.tolerance_of(dtype, op, ranks) == 0.0
    for ranks in (3, 12, 300):
        assert (measure.tolerance_of(dtype, op, ranks) > 0.0) == (op == "avg" and "int" not in dtype)
        assert measure.tolerance_of(dtype, op, ranks) <= 0.25


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if "float" in dtype])
def test_the_tolerance_of_an_average_is_half_a_spacing_for_each_rounding(dtype: str) -> None:
    """1/ranks, each rank's product, ranks - 1 sums and the expected value: ranks + 2 on the way to one element."""
    spacing = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
               "fp8_e4m3": 2.0**-3, "fp8_e5m2": 2.0**-2}[dtype]  # fmt: skip
    for ranks in (3, 5, 12, 100, 1000):
        assert measure.tolerance_of(dtype, "avg", ranks) == min((ranks + 2) / 2 * spacing, 0.25)


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 12, 24, 48, 100])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])  # nccl takes none of 8 bits
def test_an_average_as_nccl_takes_it_is_right(dtype: str, ranks: int) -> None:
    """Each value times the rounded 1/ranks, and the products added up in the dtype, from any rank on."""
    arrays = tiles(ranks, dtype, "avg")
    expected, tolerance = fold("avg")(arrays), measure.tolerance_of(dtype, "avg", ranks)
    factor = np.array(1 / ranks).astype(numpy_dtype(dtype))
    products = [array * factor for array in arrays]
    for first in range(0, ranks, max(ranks // 4, 1)):
        result = fold("sum")(products[first:] + products[:first])
        assert measure.count_wrong(HostBuffer(result), expected, tolerance) == 0


@pytest.mark.parametrize("ranks", [3, 12, 100])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if "float" in dtype])
def test_what_is_no_average_is_wrong(dtype: str, ranks: int) -> None:
    arrays = tiles(ranks, dtype, "avg")
    expected, tolerance = fold("avg")(arrays), measure.tolerance_of(dtype, "avg", ranks)
    there = int(np.count_nonzero(expected))
    assert there > PERIOD
    nothing = np.full_like(expected, np.nan)
    assert measure.count_wrong(HostBuffer(fold("sum")(arrays)), expected, tolerance) == there
    assert measure.count_wrong(HostBuffer(nothing), expected, tolerance) == expected.size
    for side in (-1, 1):
        off = (expected.astype(np.float64) * (1 + side * 2 * tolerance)).astype(numpy_dtype(dtype))
        assert measure.count_wrong(HostBuffer(off), expected, tolerance) == there


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_two_ranks_or_blocks_hold_the_same(dtype: str) -> None:
    lines = [line.tobytes() for array in tiles(5, dtype, None) for line in array]
    assert len(set(lines)) == 10


def test_inputs_repeat_on_every_machine() -> None:
    """Ranks on different machines make their inputs by themselves."""
    assert tile(1, 3, 2, 5, "int32", "sum").tolist() == [[60, 14, 0, 39, 85], [54, 43, 11, 110, 84]]
    assert tile(0, 3, 2, 7, "int32", "prod").tolist() == [[1, 2, 1, 1, 1, 4, 1], [1, 1, 4, 1, 5, 12, 3]]
    assert tile(1, 3, 2, 7, "int32", "prod").tolist() == [[2, 5, 3, 3, 1, 1, 3], [3, 1, 1, 1, 3, 1, 2]]
    assert tile(2, 300, 1, 12, "int8", "avg").tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]]


@pytest.mark.parametrize("name", collectives.names())
@pytest.mark.parametrize("ranks", [2, 5])
def test_an_expectation_is_the_meaning_of_everybodys_tiles(name: str, ranks: int) -> None:
    row = collectives.get(name)
    op: Op | None = "sum" if row.reduces else None
    period = measure.period_of(row, ranks)
    inputs = [tile(r, ranks, row.blocks(r, ranks, 1).send, period, "float32", op) for r in range(ranks)]
    for rank in range(ranks):
        expected = row.meaning(rank, inputs, 1, fold(op))
        given, result = measure.expectation(row, rank, ranks, 1, "float32", op)
        assert (given == inputs[rank]).all()
        assert (result is None) == (expected is None)
        assert result is None or (result == expected).all()


@pytest.mark.parametrize("name", ["alltoall", "reduce_scatter", "scatter", "allgather"])
def test_what_is_made_for_an_expectation_grows_with_the_ranks_and_not_with_their_square(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    tiles_of = measure.tiles

    def counted(*what: Any) -> Array:
        made.append((array := tiles_of(*what)).size)
        return array

    monkeypatch.setattr(measure, "tiles", counted)
    row, ranks = collectives.get(name), 700
    measure.expectation(row, 1, ranks, 1, "int32", "sum" if row.reduces else None)
    blocks = row.blocks(1, ranks, 1)
    assert sum(made) <= 2 * (blocks.send + max(blocks.recv, ranks)) * measure.period_of(row, ranks) + 2**17


@pytest.mark.parametrize("asked", [(0, 4, 2, 0), (3, 0, 1, 2), (2, 2, 2, 1)])
def test_inputs_are_the_same_in_whatever_order_they_are_asked_for(asked: tuple[int, ...]) -> None:
    alltoall, ranks = collectives.get("alltoall"), 5
    tiles = measure._Tiles(alltoall, ranks, 0, PERIOD, "int32", None)
    for rank in asked:
        whole = tile(rank, ranks, ranks, PERIOD, "int32", None)
        assert (tiles.get(rank, slice(None)) == whole).all()
        assert (tiles.get(rank, slice(1, 3)) == whole[1:3]).all()


def test_periods_are_primes_and_shrink_with_the_world() -> None:
    alltoall, bcast = collectives.get("alltoall"), collectives.get("bcast")
    assert all(all(p % d for d in range(2, p)) for p in measure.PERIODS)
    assert measure.period_of(bcast, 256) == measure.PERIODS[0]
    assert [measure.period_of(alltoall, ranks) for ranks in (16, 32, 64, 128, 256)] == list(measure.PERIODS)


@pytest.mark.parametrize(
    ("name", "ranks", "period"),
    [("allreduce", 1, 4093), ("allreduce", 256, 4093), ("allreduce", 257, 1021), ("allreduce", 1027, 1021),
     ("allreduce", 1028, 251), ("allreduce", 17_189, 61), ("allreduce", 17_190, 13), ("barrier", 100_000, 4093)],
)  # fmt: skip
def test_inputs_of_all_ranks_of_one_period_are_at_most_a_million_elements(name: str, ranks: int, period: int) -> None:
    """A barrier sends nothing."""
    assert measure.period_of(collectives.get(name), ranks) == period


def test_in_place_the_input_is_written_after_the_poison() -> None:
    buffer = np.zeros((3, 10), np.int32)
    measure.prepare_buffers(HostBuffer(buffer[1:2]), (HostBuffer(buffer),), np.arange(7, dtype=np.int32).reshape(1, 7))
    assert buffer[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]
    assert (buffer[[0, 2]] == -1).all()


def test_parts_are_compared_with_their_own_blocks() -> None:
    period = np.arange(12, dtype=np.int32).reshape(4, 3)
    first, second = np.zeros((1, 8), np.int32), np.zeros((3, 8), np.int32)
    measure.write(HostBuffer(first), period[:1])
    measure.write(HostBuffer(second), period[1:])
    assert measure.count_wrong_parts((HostBuffer(first), HostBuffer(second)), period) == 0
    assert measure.count_wrong_parts(tuple(map(HostBuffer, (second[:1], first, second[1:]))), period) == 16
    assert measure.count_wrong_parts((), period[:0]) == 0


class Spans:
    """A buffer [blocks, count] of int8 that remembers which spans were stored and loaded."""

    def __init__(self, blocks: int, count: int) -> None:
        self.array = np.zeros((blocks, count), np.int8)
        self.shape, self.dtype = (blocks, count), self.array.dtype
        self.stored: list[tuple[int, int, int]] = []
        self.loaded: list[tuple[int, int, int]] = []
        self.held = 0  # elements of the largest array that a value was a part of

    def load(self, block: int, start: int, stop: int) -> Array:
        self.loaded.append((block, start, stop))
        return self.array[block, start:stop]

    def store(self, block: int, start: int, values: Array) -> None:
        self.stored.append((block, start, start + len(values)))
        self.array[block, start : start + len(values)] = values
        self.held = max(self.held, values.size if values.base is None else values.base.size)


#: More than two spans of a chunk (2**20 elements), the last of them short.
LONG = 2 * 2**20 + 4000


@pytest.mark.parametrize("length", [13, 4093, 2**20 + 7])
def test_a_long_buffer_is_written_and_compared_by_whole_periods_of_about_a_chunk(length: int) -> None:
    buffer, step = Spans(2, LONG), max(2**20 // length, 1) * length
    spans = [(block, first, min(first + step, LONG)) for block in range(2) for first in range(0, LONG, step)]
    period = (np.arange(2 * length) % 101).astype(np.int8).reshape(2, length)
    measure.write(buffer, period)
    assert buffer.stored == spans
    assert buffer.held <= 2**20 + length, "it needs no large buffer itself"
    assert all((buffer.array[block] == np.resize(period[block], LONG)).all() for block in range(2))
    assert measure.count_wrong(buffer, period) == 0
    assert buffer.loaded == spans
    for place in (0, step - 1, min(step, LONG - 1), LONG - 1):
        buffer.array[1, place] = -1
    assert measure.count_wrong(buffer, period) == len({0, step - 1, min(step, LONG - 1), LONG - 1})


def test_a_long_buffer_is_poisoned_by_chunks() -> None:
    buffer = Spans(2, LONG)
    measure.poison(buffer)
    assert buffer.stored == [(block, first, min(first + 2**20, LONG)) for block in range(2)
                             for first in range(0, LONG, 2**20)]  # fmt: skip
    assert (buffer.array == -1).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_bytes_of_ones_in_every_dtype(dtype: str) -> None:
    buffer = np.zeros((3, 5), numpy_dtype(dtype))
    measure.poison(HostBuffer(buffer))
    assert buffer.tobytes() == b"\xff" * buffer.nbytes


@pytest.mark.parametrize(("ranks", "largest"), [(1057, 31), (1058, 30), (32767, 1)])
def test_wide_dtypes_are_summed_up_to_what_fits_16_bits(ranks: int, largest: int) -> None:
    assert tile(0, ranks, 1, 4093, "int32", "sum").max() == largest


@pytest.mark.parametrize(
    ("dtype", "ranks", "largest", "holders"),
    [
        ("float32", 2, 126, 2), ("int8", 1, 126, 1), ("int8", 2, 63, 2), ("uint8", 127, 1, 64), ("int8", 126, 1, 126),
        ("bfloat16", 2, 126, 2), ("bfloat16", 3, 85, 3), ("bfloat16", 257, 1, 129), ("float16", 16, 126, 16),
        ("float16", 17, 120, 17), ("float64", 260, 126, 260), ("int32", 261, 125, 261),
        ("fp8_e4m3", 2, 8, 2), ("fp8_e4m3", 17, 1, 9), ("fp8_e5m2", 3, 2, 3),
    ],
)  # fmt: skip
def test_sums_are_exact_and_use_what_the_dtype_has(dtype: str, ranks: int, largest: int, holders: int) -> None:
    """The largest value of a rank times those who hold one is at most what is exact; with a longer period none is less.

    With more ranks than that only every second rank, or every third, holds anything but 0 in a column.
    """
    inputs = np.stack([tile(rank, ranks, 1, 4093, dtype, "sum")[0] for rank in range(ranks)]).astype(np.int64)
    assert inputs.max() == largest
    every = -(-ranks // holders)
    for rank in (0, ranks // 2, ranks - 1):
        columns = np.nonzero(inputs[rank])[0]
        assert set((columns + rank) % every) == {0}
        assert len(columns) > 0
