"""What a world left behind, taken over as untrusted input: a container may have written anything there.

Links are not followed, only plain files are read, records line by line and within limits. Every record is decoded
strictly and held against what was asked for, its samples against what it says of them before they are read.
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

#: What is kept of a record's own words: so many notes, and so many characters of each and of its reason.
MOST_NOTES, LONGEST_TEXT = 12, 2_000


@dataclass(frozen=True)
class Harvested:
    """A record as the world wrote it, and its samples [ranks, n] in ns."""

    record: Record
    samples: NDArray[np.int64] | None


def take_over(folder: Path, asked: frozenset[Case]) -> Iterator[Harvested]:
    """The records of the run in `folder`, in order, one at a time. Stops at a line that was cut off.

    Raises:
        RunReadError: a file is a link, no plain file, too large; a line is too long, or no record, or not of a case
            that was asked for, or comes twice; samples are not what their record says.
    """
    root = open_folder(folder)
    try:
        seen: set[Case] = set()
        for number, line in enumerate(_lines(root), start=1):
            record = records.decode(line, f"records.jsonl line {number}")
            if record.case not in asked or record.case in seen:
                raise RunReadError(f"records.jsonl line {number}: a case that was not asked for.")
            seen.add(record.case)
            yield Harvested(_cut(record), _samples(root, record))
    finally:
        close(root)


def left_behind(folder: Path, asked: frozenset[Case]) -> Iterator[Harvested | LaunchFailed]:
    """As `take_over`, but whatever keeps the run from being read to its end comes last, in place of a record."""
    try:
        yield from take_over(folder, asked)
    except RunReadError as error:
        yield LaunchFailed(f"left a run that is not read further: {error}")
    except Exception as error:
        yield LaunchFailed(f"left a run that is not read further: {type(error).__name__}: {error}")


def cut(text: str) -> str:
    """Words of somebody else, as a record holds them: of bounded length, and in letters that can be written."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain if len(plain) <= LONGEST_TEXT else f"{plain[:LONGEST_TEXT]} ..."


def _cut(record: Record) -> Record:
    notes = tuple(cut(note) for note in record.notes[:MOST_NOTES])
    if (more := len(record.notes) - MOST_NOTES) > 0:
        notes += (f"{more} more notes were left out",)
    words = {
        name: cut(text)
        for name in ("reason", "transport", "algorithm", "protocol")
        if (text := getattr(record, name)) is not None
    }
    return msgspec.structs.replace(record, notes=notes, **words)


def _lines(root: int) -> Iterator[bytes]:
    """The whole lines of records.jsonl; none where there is no such file."""
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
        raise RunReadError(f"records.jsonl line {number}: longer than {LONGEST_LINE} bytes; this is no record.")


def _samples(root: int, record: Record) -> NDArray[np.int64] | None:
    said = record.samples
    if said is None or said.file is None:
        return None
    folder, _, name = said.file.partition("/")
    if folder != "samples" or not name or "/" in name:
        raise RunReadError(f"samples file {said.file!a} is not inside samples/.")
    inner = open_folder(folder, root)
    try:
        file = open_plain(inner, name, LARGEST)
    finally:
        close(inner)
    with file:
        samples = decode_samples(file, f"{said.file!a}", record)
    _refuse_other_values(samples, said)
    return samples


def _refuse_other_values(samples: NDArray[np.int64], said: Samples) -> None:
    """Samples are times of 1 ns and more; of an operation that was late at the gate every rank's is negative."""
    late = samples < 0
    if not (late.any(axis=0) == late.all(axis=0)).all() or int(late[0].sum()) != said.invalid:
        raise RunReadError(f"{said.file!a}: other samples are late than the {said.invalid} that its record counts.")
    if not samples.all():
        raise RunReadError(f"{said.file!a}: holds a time that cannot be.")
