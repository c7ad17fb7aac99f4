"""The records of one launch: read from its world as untrusted input, given their place, and sent to the sink.

Links are not followed, only plain files are read, records line by line and within limits. Every record is decoded
strictly and compared with what was asked for, its samples file with the record before it is read.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from numpy.typing import NDArray

from collbench.errors import LaunchFailed, LaunchLost, RunReadError
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.folders import open_folder, open_plain
from collbench.launch.waiting import whole_words
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.record import LOST, Record
from collbench.schema.samples import decode_samples
from collbench.schema.store import YardstickReading
from collbench.units import counted

if TYPE_CHECKING:
    import numpy as np


#: Largest samples file that is read, and longest line of records.jsonl (bytes): 10 million samples of 8 bytes on 64
#: ranks would be larger, a record of 256 ranks takes a tenth of it.
LARGEST, LONGEST_LINE = 1 << 30, 1 << 20

#: How many notes of a record are kept, and how many characters of each and of its reason.
MOST_NOTES, LONGEST_TEXT = 12, 2_000


@dataclass(frozen=True)
class CollectedRecord:
    """A record as the world wrote it, and its samples [ranks, n] in ns."""

    record: Record
    samples: NDArray[np.int64] | None


def collect(folder: Path, expected: frozenset[Case]) -> Iterator[CollectedRecord]:
    """The records of the run in `folder`, in order, one at a time. Stops at a line that was cut off.

    Raises RunReadError: a file is not plain, or too large; a line is too long, no record, or of a case that is known or
    was not asked for; samples are not what their record says.
    """
    with open_folder(folder) as root:
        seen: set[Case] = set()
        for number, line in enumerate(_lines(root), start=1):
            record = records.decode(line, f"records.jsonl line {number}")
            if record.case not in expected or record.case in seen:
                raise RunReadError(f"records.jsonl line {number}: a case that was not asked for.")
            seen.add(record.case)
            notes = tuple(cut(note) for note in record.notes[:MOST_NOTES])
            if len(record.notes) > MOST_NOTES:
                notes += (f"{len(record.notes) - MOST_NOTES} more notes were left out",)
            texts = {name: getattr(record, name) for name in ("reason", "transport", "algorithm", "protocol")}
            texts = {name: cut(text) for name, text in texts.items() if text is not None}
            yield CollectedRecord(msgspec.structs.replace(record, notes=notes, **texts), _samples(root, record))


def left_behind(folder: Path, expected: frozenset[Case]) -> Iterator[CollectedRecord | LaunchFailed]:
    """As `collect`, but the error that prevents reading the rest of the run comes last, in place of a record."""
    try:
        yield from collect(folder, expected)
    except Exception as error:
        why = str(error) if isinstance(error, RunReadError) else f"{type(error).__name__}: {error}"
        yield LaunchFailed(f"wrote a run that cannot be read further: {why}")


def cut(text: str) -> str:
    """A text from a world, as a record may hold it: of bounded length, and encodable."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain if len(plain) <= LONGEST_TEXT else f"{whole_words(plain, LONGEST_TEXT)} ..."


def _lines(root: int) -> Iterator[bytes]:
    """The complete lines of records.jsonl; none where there is no such file."""
    try:
        file = open_plain(root, "records.jsonl")
    except RunReadError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    with file:
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
    with open_folder(folder, root) as inner, open_plain(inner, name, LARGEST) as file:
        samples = decode_samples(file, f"{description.file!a}", record)
    # times of 1 ns and more; for an operation that was late every rank's is negative
    late = samples < 0
    if not (late.any(axis=0) == late.all(axis=0)).all() or int(late[0].sum()) != description.invalid:
        raise RunReadError(f"{description.file!a}: its late samples are not the {description.invalid} of its record.")
    if not samples.all():
        raise RunReadError(f"{description.file!a}: holds a time of 0 ns.")
    return samples


class LaunchSink(Protocol):
    """Where records go, as they come."""

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        """One record and its samples [ranks, n] in ns."""

    def launched(self, launch: Launch, problem: str | None) -> None:
        """A launch is over; `problem` says how it ended where it did not end well."""

    def add_reading(self, reading: YardstickReading) -> None:
        """What the cores of a launch were like just before or after it."""


class RecordCollector:
    """Keeps the records of one launch. `known` are those that a run which is resumed holds already.

    `each`: launches of one cell measure different cases, so one that fails has a record of each that it lacks.
    """

    def __init__(
        self, launch: Launch, expected: frozenset[Case], crowded: bool, notes: tuple[str, ...], sink: LaunchSink,
        known: Container[tuple[Case, int]], device: str | None = None, each: bool = False,
    ) -> None:  # fmt: skip
        self._launch, self._crowded, self._notes, self._sink = launch, crowded, notes, sink
        self._device, self._each = device, each
        self._missing = {case for case in expected if (placed_case(case, launch.cell), launch.number) not in known}
        self._failed: list[str] = []  # reasons of cases
        self._cases, self._measured = len(expected), False

    def add(self, collected: CollectedRecord, transport: str | None, failure: LaunchFailed | None = None) -> None:
        """A record of the launch; with the last one, how the launch ended: a note, where every case was measured.

        A launch in which every case was skipped ends so, and each record says why.
        """
        case = collected.record.case
        if collected.record.status == "failed":
            self._failed.append(collected.record.reason or "no reason")
        self._measured |= collected.record.status == "ok"
        if case not in self._missing:
            return
        self._missing.remove(case)
        notes = self._notes
        if failure is not None and not self._missing and self._measured and not self._failed:
            notes += (cut(f"every case was measured, and then: {failure}"),)
        record = with_placement(collected.record, self._launch, transport, self._crowded, self._device)
        self._sink.add(msgspec.structs.replace(record, notes=(*record.notes, *notes)), collected.samples)

    def finish(self, transport: str | None, failure: LaunchFailed | None) -> None:
        """A launch that failed before its end is one failed record: of the first case that it did not measure.

        Or one of `each`. The reason of one that was lost says so, and the run, when it is resumed, measures it again.
        """
        problem = None
        if failure is not None and self._missing:
            missing = sorted(self._missing, key=lambda case: (case.workload, case["size"], repr(case)))
            lost = LOST if isinstance(failure, LaunchLost) else ""
            reason, log = f"{lost}{cut(str(failure))}", tuple(map(cut, failure.log))
            for case in missing if self._each else missing[:1]:
                record = Record(case=case, launch=0, status="failed", reason=reason, notes=log)
                self._sink.add(with_placement(record, self._launch, transport, False), None)
                log = ()  # of this launch, once
            problem = f"failed: {reason}"
        elif self._failed:
            problem = f"failed in {len(self._failed)} of {counted(self._cases, 'case')}: {self._failed[0]}"
        elif failure is not None and self._measured:
            problem = f"measured every case, and then: {cut(str(failure))}"
        self._sink.launched(self._launch, problem)


def with_placement(
    record: Record, launch: Launch, transport: str | None, crowded: bool, device: str | None = None
) -> Record:
    """The record with its place and launch, what the library printed, shared processors, and the storage's `device`.

    What an MPI printed is no fact of data that another library moved.
    """
    if not str(record.case.how.get("backend", "mpi")).startswith("mpi"):
        transport = None
    return msgspec.structs.replace(
        record, case=placed_case(record.case, launch.cell), launch=launch.number,
        transport=storage_text(record.transport or transport, device),
        oversubscribed=None if record.oversubscribed is None else record.oversubscribed or crowded,
    )  # fmt: skip


def storage_text(seen: str | None, device: str | None) -> str | None:
    """What lay under the files as seen from inside, with the engine's device: `overlay on ext4 (vda)`."""
    if seen is None or device is None or device == seen:
        return seen
    return f"{seen}; the engine keeps it on {device}" if seen.endswith(")") else f"{seen} on {device}"


def placed_case(case: Case, cell: LaunchCell) -> Case:
    """A case as its world recorded it, with the place of the cell."""
    return msgspec.structs.replace(case, where=msgspec.structs.replace(cell.where, ranks=case.where.ranks))
