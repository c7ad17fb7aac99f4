"""Inputs whose result is known exactly, and the number of elements that differ from it.

Input element (rank, block, column) is a small integer from a hash, chosen so that every reduction is exact in every
dtype. It repeats along the columns with a prime period. A collective treats all columns of a block alike, so its result
repeats with the same period, and one period of it checks a buffer of any size in one pass without extra memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.host_buffers import numpy_dtype
from collbench.bindings.spec import Buffer
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, Collective, fold
from collbench.schema.axes import Op

#: Primes, so that a part of a message in the wrong place does not match by chance.
PERIODS = (4093, 1021, 251, 61, 13)
_LARGEST_TILES = 1 << 20  # elements of all ranks' inputs for one period
_TILES_AT_ONCE = 1 << 16  # elements of the inputs that are made together
_CHUNK = 1 << 20  # elements written or compared at a time, to need no large buffer

#: No sum over all ranks exceeds this; all integers up to it are exact in the dtype (or fit it).
_EXACT = {"int8": 126, "uint8": 126, "float16": 2048, "bfloat16": 256}
_EXACT_ELSEWHERE = (1 << 15) - 1
#: Spacing of the numbers just above 1, where it is not that of float32.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}
_VALUES = 126  # the largest input: below the poison in every dtype


def period_of(row: Collective, ranks: int) -> int:
    """The longest period for which all ranks' inputs stay small."""
    blocks = sum(row.blocks(rank, ranks, 0).send for rank in range(ranks))
    return next((p for p in PERIODS if p * max(blocks, 1) <= _LARGEST_TILES), PERIODS[-1])


def _hash(*parts: int | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of integers (murmur3's finaliser over a sum of odd multiples), as uint64 below 2**32."""
    mask = np.uint64(0xFFFFFFFF)
    mixed: NDArray[np.uint64] = np.zeros(1, np.uint64)
    for part, odd in zip(parts, (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F), strict=False):
        mixed = (mixed + (np.asarray(part, np.uint64) + np.uint64(1)) * np.uint64(odd)) & mask
        mixed ^= mixed >> np.uint64(15)
        mixed = (mixed * np.uint64(0x2C1B3C6D)) & mask
        mixed ^= mixed >> np.uint64(12)
    return mixed


def tile(rank: int, ranks: int, blocks: int, period: int, dtype: str, op: Op | None) -> Array:
    """One period of a rank's input, [blocks, period]."""
    own: Array = _tiles(range(rank, rank + 1), ranks, range(blocks), period, dtype, op)[0]
    return own


def _tiles(of: range, ranks: int, blocks: range, period: int, dtype: str, op: Op | None) -> Array:
    """One period of some blocks of some ranks' inputs, [ranks, blocks, period].

    `sum` and `avg`: integers so small that the sum over all ranks is exact; with very many ranks some hold 0.
    `prod`: in every column one rank holds a factor 2 or 3 and one rank a factor 1 to 5, the others 1.
    Everything else: 0 to 126.
    """
    rank, block, column = np.ix_(*(np.array(each, np.uint64) for each in (of, blocks, range(period))))
    if op == "prod":
        holds_first = _hash(block, column, 1) % np.uint64(ranks) == rank
        holds_second = _hash(block, column, 2) % np.uint64(ranks) == rank
        first = np.where(holds_first, _hash(block, column, 3) % np.uint64(2) + np.uint64(2), np.uint64(1))
        second = np.where(holds_second, _hash(block, column, 4) % np.uint64(5) + np.uint64(1), np.uint64(1))
        values = first * second
    else:
        largest, one_in = _share(dtype, ranks) if op in ("sum", "avg") else (_VALUES, 1)
        values = _hash(block, column, rank) % np.uint64(largest + 1)
        values *= (column + block + rank) % np.uint64(one_in) == 0
    return values.astype(numpy_dtype(dtype))


def _share(dtype: str, ranks: int) -> tuple[int, int]:
    """The largest value of a rank for which sums are exact, and of how many ranks only one may hold it."""
    limit = _EXACT.get(dtype, _EXACT_ELSEWHERE)
    one_in = math.ceil(ranks / limit)
    return min(_VALUES, limit // math.ceil(ranks / one_in)), one_in


class _Tiles:
    """The inputs of all ranks, one period of each, made when they are asked for: the same blocks of many at once."""

    def __init__(self, row: Collective, ranks: int, root: int, period: int, dtype: str, op: Op | None) -> None:
        self._row, self._ranks, self._root = row, ranks, root
        self._period, self._dtype, self._op = period, dtype, op
        self._made, self._of, self._blocks = np.empty(0), range(0), range(0)

    def get(self, rank: int, blocks: slice) -> Array:
        """[blocks, period] of a rank."""
        wanted = range(self._row.blocks(rank, self._ranks, self._root).send)[blocks]
        if rank not in self._of or wanted != self._blocks:
            number = _TILES_AT_ONCE // (self._period * max(len(wanted), 1))
            self._of, self._blocks = range(rank, min(rank + max(number, 1), self._ranks)), wanted
            self._made = _tiles(self._of, self._ranks, wanted, self._period, self._dtype, self._op)
        tile: Array = self._made[rank - self._of.start]
        return tile


@dataclass(frozen=True, slots=True)
class _InputOf:
    """What a rank contributes, as a meaning sees it."""

    tiles: _Tiles
    rank: int

    def __getitem__(self, blocks: slice, /) -> Array:
        return self.tiles.get(self.rank, blocks)


@lru_cache(maxsize=4)
def expectation(
    row: Collective, rank: int, ranks: int, root: int, dtype: str, op: Op | None
) -> tuple[Array, Array | None]:
    """One period of a rank's input [blocks.send, period] and of its result [blocks.recv, period]."""
    tiles = _Tiles(row, ranks, root, period_of(row, ranks), dtype, op)
    inputs = [_InputOf(tiles, r) for r in range(ranks)]
    return inputs[rank][:], row.meaning(rank, inputs, root, fold(op))


def expectation_of(row: Collective, case: CollectiveCase, rank: int) -> tuple[Array, Array | None]:
    """`expectation` of a case."""
    return expectation(row, rank, case.ranks, case.root or 0, case.dtype, case.op)


def _spans(count: int, length: int) -> Iterator[tuple[int, int]]:
    """Spans that cover `count` elements, each of whole periods and about as long as a chunk."""
    step = max(_CHUNK // length, 1) * length
    for start in range(0, count, step):
        yield start, min(start + step, count)


def write(target: Buffer, period: Array) -> None:
    """Fill [blocks, count] with one period [blocks, period], repeated."""
    count, length = target.shape[1], period.shape[1]
    for block, pattern in enumerate(period):
        repeated = np.resize(pattern, min(count, max(_CHUNK // length, 1) * length))
        for start, stop in _spans(count, length):
            target.store(block, start, repeated[: stop - start])


def poison(target: Buffer) -> None:
    """Fill with bytes 0xFF: -1, the largest value or NaN, which no result contains."""
    blocks, count = target.shape
    poisoned = np.full(min(count, _CHUNK) * target.dtype.itemsize, 0xFF, np.uint8).view(target.dtype)
    for block in range(blocks):
        for start, stop in _spans(count, 1):
            target.store(block, start, poisoned[: stop - start])


def count_wrong(result: Buffer, period: Array, tolerance: float = 0.0) -> int:
    """How many elements [blocks, count] differ relatively by more than `tolerance` from [blocks, period] repeated."""
    count, length = result.shape[1], period.shape[1]
    wrong = 0
    for block, pattern in enumerate(period):
        repeated = np.resize(pattern, min(count, max(_CHUNK // length, 1) * length))
        for start, stop in _spans(count, length):
            wrong += _differing(result.load(block, start, stop), repeated[: stop - start], tolerance)
    return wrong


def _differing(result: Array, expected: Array, tolerance: float) -> int:
    if tolerance == 0.0:
        return int(np.count_nonzero(result != expected))
    exact = expected.astype(np.float64)
    within = np.abs(result.astype(np.float64) - exact) <= tolerance * np.abs(exact)  # a NaN is not within
    return int(np.count_nonzero(~within))


def tolerance_of(dtype: str, op: Op | None, ranks: int) -> float:
    """The relative error that a correct result may have: 0 except for averages of floats.

    NCCL multiplies every rank's value by 1/ranks and then adds (enqueue.cc, ncclAvg is ncclDevPreMulSum). Unless ranks
    is a power of two, it may round 1/ranks, each product and each of ranks - 1 sums by half a spacing, and the expected
    value is rounded too. At most a quarter, so that a sum which was not divided is wrong.
    """
    power_of_two = ranks & (ranks - 1) == 0
    if op != "avg" or power_of_two or np.issubdtype(numpy_dtype(dtype), np.integer):
        return 0.0
    return min((ranks + 2) / 2 * _EPSILON.get(dtype, 2.0**-23), 0.25)


def prepare_buffers(sent: Buffer | None, received: tuple[Buffer, ...], period: Array) -> None:
    """Poison the result, then write the input, which in place may be a part of the result."""
    for part in received:
        poison(part)
    if sent is not None:
        write(sent, period)


def count_wrong_parts(received: tuple[Buffer, ...], period: Array, tolerance: float = 0.0) -> int:
    """`count_wrong` over parts that are consecutive blocks of the result."""
    wrong = first = 0
    for part in received:
        wrong += count_wrong(part, period[first : first + part.shape[0]], tolerance)
        first += part.shape[0]
    return wrong
