"""The samples of a record, decoded as untrusted input and checked against their record."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from collbench.errors import RunReadError
from collbench.schema.record import Record
from collbench.units import format_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Above this many ranks a run keeps the samples instead of a row for each rank, and machines instead of ranks.
ALL_RANKS_LIMIT = 64

#: Most values that are read from a file: 1 GiB as int64.
MOST_VALUES = 1 << 27

#: No operation takes longer (ns): more than a century.
LONGEST = 1 << 62

#: By how much a record's median may differ from that of its samples, which are whole nanoseconds (s; share).
ROUNDING, RELATIVE = 1e-9, 1e-6

#: Bytes of a samples file besides its values: the longest header of NumPy's first format.
LONGEST_HEADER = (1 << 16) + 10

_AT_ONCE = 1 << 20


def largest_file(ranks: int, n: int) -> int:
    """Most bytes of a samples file of so many ranks and samples; never more than are read."""
    return LONGEST_HEADER + 8 * min(ranks * n, MOST_VALUES)


def rows_of(ranks: int) -> tuple[tuple[int], ...]:
    """How many rows a samples file of so many ranks may have."""
    return ((ranks,),) if ranks <= ALL_RANKS_LIMIT else ((ranks,), (1,), (2,))


def decode_samples(file: IO[bytes], what: str, record: Record) -> NDArray[np.int64]:
    """The samples of a record, as `decode_values`."""
    return decode_values(file, what, record.case.where.ranks, 0 if record.samples is None else record.samples.n)


def decode_values(file: IO[bytes], what: str, ranks: int, n: int) -> NDArray[np.int64]:
    """Samples [ranks, n] in nanoseconds from an open samples file.

    Above 64 ranks they may be [1, n], or, up to schema 7, [2, n]: the largest and the smallest of each sample.
    The header is compared with the record before memory is allocated.

    Raises:
        RunReadError: not the array that the record describes; `what` names the file in the message.
    """
    import numpy as np

    shape, in_columns, dtype = _header(file, what)
    rows = shape[0] if shape[:1] in rows_of(ranks) else ranks
    if dtype not in (np.dtype(np.int32), np.dtype(np.int64)) or shape != (rows, n):
        expected = f"expected integers {[rows, n]}, as its record says"
        raise RunReadError(f"{what}: {expected}, found {dtype} {list(shape)}.")
    size = rows * n
    if size > MOST_VALUES:
        raise RunReadError(f"{what}: {size} values; at most {MOST_VALUES} are read.")
    samples = np.empty(size, np.int64)
    for begin in range(0, size, _AT_ONCE):
        length = min(_AT_ONCE, size - begin)
        content = _exactly(file, length * dtype.itemsize, what)
        samples[begin : begin + length] = np.frombuffer(content, dtype)
    if size and max(-int(samples.min()), int(samples.max())) > LONGEST:
        raise RunReadError(f"{what}: holds an impossible time, more than a century.")
    return samples.reshape(shape, order="F" if in_columns else "C")


def _header(file: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        version = npy.read_magic(file)
        if version not in readers:
            raise ValueError(f"version {version} of NumPy's format")
        return readers[version](file)
    except Exception as error:  # NumPy parses the header with Python's tokenizer, which raises errors of many kinds
        raise RunReadError(f"{what}: {error}") from error


def _exactly(file: IO[bytes], size: int, what: str) -> bytes:
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    if size:
        raise RunReadError(f"{what}: ends before its last sample.")
    return b"".join(parts)


def disagreement(record: Record, samples: NDArray[np.int64]) -> str:
    """How the record of a measured case contradicts its samples [ranks, n]; empty where they agree."""
    import numpy as np

    if record.samples is None or record.seconds is None:
        return ""
    largest = samples.max(axis=0)
    valid = largest[largest > 0]
    late = len(largest) - len(valid)
    if late != record.samples.invalid:
        return f"{late} samples late in the file, {record.samples.invalid} in the record"
    median = float(np.median(valid)) * 1e-9
    if abs(median - record.seconds.p50) > ROUNDING + RELATIVE * median:
        return f"median {format_duration(median)} in the file, {format_duration(record.seconds.p50)} in the record"
    return ""
