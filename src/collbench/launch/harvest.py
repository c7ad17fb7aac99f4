"""What a world left behind, taken over as untrusted input: a container may have written anything there.

Links are not followed, only plain files below a size are read, and every record is decoded strictly and held against
what was asked for.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.errors import RunReadError
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.record import Record
from collbench.schema.samples import decode_samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Largest file that is read (bytes): 10 million samples of 8 bytes on 64 ranks would be larger, and are not kept.
LARGEST = 1 << 30


@dataclass(frozen=True)
class Taken:
    """A record as the world wrote it, and its samples [ranks, n] in ns."""

    record: Record
    samples: NDArray[np.int64] | None


def take_over(folder: Path, asked: frozenset[Case]) -> Iterator[Taken]:
    """The records of the run in `folder`, in order. Stops at a line that was cut off.

    Raises:
        RunReadError: a file is a link, no plain file, too large; a line is no record, or not of a case that was asked
            for, or comes twice.
    """
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        lines = read_plain(root, "records.jsonl", missing_is_empty=True).split(b"\n")
        seen: set[Case] = set()
        for number, line in enumerate(lines[:-1], start=1):
            record = records.decode(line, f"records.jsonl line {number}")
            if record.case not in asked or record.case in seen:
                raise RunReadError(f"records.jsonl line {number}: a case that was not asked for.")
            seen.add(record.case)
            yield Taken(record, _samples(root, record))
    finally:
        os.close(root)


def read_plain(folder: int, name: str, missing_is_empty: bool = False) -> bytes:
    """The bytes of a plain file in an open folder.

    Raises:
        RunReadError: it is a link, a device or a pipe, too large, or cannot be read.
    """
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        if missing_is_empty:
            return b""
        raise RunReadError(f"{name}: is missing.") from None
    except OSError as error:
        raise RunReadError(f"{name}: {error.strerror}; a world may only leave plain files.") from error
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise RunReadError(f"{name}: no plain file of at most {LARGEST} bytes.")
        return opened.read(LARGEST)


def _samples(root: int, record: Record) -> NDArray[np.int64] | None:
    if record.samples is None or record.samples.file is None:
        return None
    folder, _, name = record.samples.file.partition("/")
    if folder != "samples" or not name or "/" in name:
        raise RunReadError(f"samples file {record.samples.file!r} is not inside samples/.")
    try:
        inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    except OSError as error:
        raise RunReadError(f"samples/: {error.strerror}.") from error
    try:
        content = read_plain(inner, name)
    finally:
        os.close(inner)
    return decode_samples(io.BytesIO(content), record.samples.file, record)
