"""The run that a world wrote, read as untrusted input: a container may have written anything there.

Links are not followed, only plain files are read, records line by line and within limits. Every record is decoded
strictly and compared with what was asked for, its samples file with the record before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import close
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from collbench.errors import LaunchFailed, RunReadError
from collbench.launch.folders.plain_files import open_folder, open_plain
from collbench.launch.log import whole_words
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.record import Record, Samples
from collbench.schema.samples import decode_samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Largest samples file that is read (bytes): 10 million samples of 8 bytes on 64 ranks would be larger.
LARGEST = 1 << 30

#: Longest line of records.jsonl (bytes): a record of 256 ranks takes a tenth of it.
LONGEST_LINE = 1 << 20

#: How many notes of a record are kept, and how many characters of each and of its reason.
MOST_NOTES, LONGEST_TEXT = 12, 2_000


@dataclass(frozen=True)
class Harvested:
    """A record as the world wrote it, and its samples [ranks, n] in ns."""

    record: Record
    samples: NDArray[np.int64] | None


def take_over(folder: Path, expected: frozenset[Case]) -> Iterator[Harvested]:
    """The records of the run in `folder`, in order, one at a time. Stops at a line that was cut off.

    Raises:
        RunReadError: a file is not a plain file, or too large; a line is too long, or not a record, or of a case that
            was not asked for or came before; samples are not what their record says.
    """
    root = open_folder(folder)
    try:
        seen: set[Case] = set()
        for number, line in enumerate(_lines(root), start=1):
            record = records.decode(line, f"records.jsonl line {number}")
            if record.case not in expected or record.case in seen:
                raise RunReadError(f"records.jsonl line {number}: a case that was not asked for.")
            seen.add(record.case)
            yield Harvested(_cut(record), _samples(root, record))
    finally:
        close(root)


def left_behind(folder: Path, expected: frozenset[Case]) -> Iterator[Harvested | LaunchFailed]:
    """As `take_over`, but the error that prevents reading the rest of the run comes last, in place of a record."""
    try:
        yield from take_over(folder, expected)
    except RunReadError as error:
        yield LaunchFailed(f"wrote a run that cannot be read further: {error}")
    except Exception as error:
        yield LaunchFailed(f"wrote a run that cannot be read further: {type(error).__name__}: {error}")


def cut(text: str) -> str:
    """A text from a world, as a record may hold it: of bounded length, and encodable."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain if len(plain) <= LONGEST_TEXT else f"{whole_words(plain, LONGEST_TEXT)} ..."


def _cut(record: Record) -> Record:
    notes = tuple(cut(note) for note in record.notes[:MOST_NOTES])
    if len(record.notes) > MOST_NOTES:
        notes += (f"{len(record.notes) - MOST_NOTES} more notes were left out",)
    texts = {name: getattr(record, name) for name in ("reason", "transport", "algorithm", "protocol")}
    bounded = {name: cut(text) for name, text in texts.items() if text is not None}
    return msgspec.structs.replace(record, notes=notes, **bounded)


def _lines(root: int) -> Iterator[bytes]:
    """The complete lines of records.jsonl; none where there is no such file."""
    try:
        opened = open_plain(root, "records.jsonl")
    except RunReadError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    with opened as file:
        number = 1
        while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
            yield line
            number += 1
    if len(line) == LONGEST_LINE:
        raise RunReadError(f"records.jsonl line {number}: longer than {LONGEST_LINE} bytes.")


def _samples(root: int, record: Record) -> NDArray[np.int64] | None:
    description = record.samples
    if description is None or description.file is None:
        return None
    folder, _, name = description.file.partition("/")
    if folder != "samples" or not name or "/" in name:
        raise RunReadError(f"samples file {description.file!a} is not inside samples/.")
    inner = open_folder(folder, root)
    try:
        file = open_plain(inner, name, LARGEST)
    finally:
        close(inner)
    with file:
        samples = decode_samples(file, f"{description.file!a}", record)
    _refuse_other_values(samples, description)
    return samples


def _refuse_other_values(samples: NDArray[np.int64], description: Samples) -> None:
    """Samples are times of 1 ns and more; for an operation that was late at the gate every rank's is negative."""
    late = samples < 0
    if not (late.any(axis=0) == late.all(axis=0)).all() or int(late[0].sum()) != description.invalid:
        raise RunReadError(f"{description.file!a}: its late samples are not the {description.invalid} of its record.")
    if not samples.all():
        raise RunReadError(f"{description.file!a}: holds a time of 0 ns.")
