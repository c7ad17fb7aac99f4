"""A run on disk: `manifest.json`, `records.jsonl`, samples files. Written as it is measured.

Beside them are `yardsticks.jsonl`, the readings of yardsticks around launches, and of a gate `gate-plan.json`, what it
is to answer.

A record is on disk before the next case begins. A writer that fails half-way takes its half line back, so what was
measured before stays readable.

The file `progress` is removed when the run is complete. Whoever waits for the run sees by it that a silent program
makes progress.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import msgspec

from collbench.errors import RequestError, RunReadError, RunWriteError
from collbench.schema import files
from collbench.schema import manifest as manifests
from collbench.schema import record as records
from collbench.schema.case import Case, Where, refuse_odd
from collbench.schema.files import Amount, Count, LaunchNumber, ShortText
from collbench.schema.manifest import LARGEST_MANIFEST, Host, Manifest, read_manifest
from collbench.schema.record import Record
from collbench.schema.samples import rows_of, save_samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def refuse_used(directory: Path) -> None:
    """Whether it is free. Raises RequestError: there is a run in it, or something else."""
    if (directory / "records.jsonl").exists() or (directory / "manifest.json").exists():
        raise RequestError(f"--out {directory}: already holds a run. Name a directory that does not exist yet.")
    if directory.is_dir() and any(directory.iterdir()):
        raise RequestError(f"--out {directory}: is not empty. Name a directory that does not exist yet.")


def refuse_unusable(directory: Path) -> None:
    """Whether a run can be created there, before anything is measured; nothing is left of the attempt.

    Raises RequestError: there is a run in it, or something else; RunWriteError: nothing can be written there.
    """
    try:
        refuse_used(directory)
        parent = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
        tempfile.TemporaryDirectory(prefix=".collbench-", dir=parent).cleanup()
    except OSError as error:
        raise RunWriteError(f"--out {directory}: {error.strerror or error}. Nothing was measured.") from error


LONGEST_LINE = 64 << 20  # a record of a thousand machines takes some hundred kilobytes


class RunWriter(contextlib.AbstractContextManager["RunWriter"]):
    """Creates a run directory and appends to it. Use as a context manager.

    Raises RequestError: the directory already holds a run; RunWriteError: it cannot be created or written.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        try:
            refuse_used(directory)
            (directory / "samples").mkdir(parents=True, exist_ok=True)
            content = manifests.encode(manifest)
            manifests.decode(content, f"--out {directory}: the manifest would not be read back")
            files.write_synced(directory / "manifest.json", content)
            self._opened(files.locked((directory / "records.jsonl").open("xb", buffering=0)))
        except OSError as error:
            raise RunWriteError(f"--out {directory}: {error.strerror or error}. Nothing was measured.") from error
        except RunReadError as error:
            raise RunWriteError(f"{error} Nothing was measured.") from error
        self.count, self.before = 0, tuple[Record, ...]()

    @classmethod
    def resume(cls, directory: Path) -> RunWriter:
        """Go on with a run that is there: its records are in `before`. A last line that was cut off is taken away.

        Raises RunReadError, RunWriteError: it cannot be read, or not be written.
        """
        read_manifest(directory)
        writer, path = cls.__new__(cls), directory / "records.jsonl"
        writer.directory = directory
        try:
            files.require_regular(path)
            file = files.locked(path.open("ab", buffering=0))
            (directory / "samples").mkdir(exist_ok=True)  # a packed run has none
            stream = RecordStream(directory)
            writer.before = tuple(stream)  # nobody adds to them any more
            writer.count = len(writer.before)
            if stream.truncated:
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
            writer._opened(file)
        except OSError as error:
            raise RunWriteError(f"{directory}: {error.strerror}.") from error
        return writer

    def append(self, record: Record, samples: NDArray[np.int64] | None = None) -> Record:
        """Write the samples [ranks, n] in nanoseconds, then the record; synced when this returns the record as written.

        Raises RunWriteError: the disk is full, the run is gone, or a reader would refuse the record. The run
        stays readable up to the record before.
        """
        self.verify()
        path: Path | None = None
        before = self._records.tell()
        if samples is not None and record.samples is not None and samples.size:
            path = self.directory / "samples" / f"{record.case.key}-{record.launch}.npy"
            where = f"samples/{path.name}"
            record = msgspec.structs.replace(record, samples=msgspec.structs.replace(record.samples, file=where))
        try:
            line = _readable(record, None if path is None else samples)
        except RunReadError as error:
            raise RunWriteError(f"--out {self.directory}: {error} {self.standing()}") from error
        try:
            if path is not None and samples is not None:
                save_samples(path, samples)
            files.write_whole(self._records, line)
            os.fsync(self._records.fileno())
        except OSError as error:
            self._take_back(before, path)
            raise RunWriteError(f"--out {self.directory}: {error.strerror or error}. {self.standing()}") from error
        self.count += 1
        self._length = before + len(line)
        return record

    def verify(self) -> None:
        """Raises RunWriteError where somebody removed, moved, replaced or cut what was written."""
        if self.lost() is not None:
            raise RunWriteError(f"--out {self.directory}: {self.standing()}")

    def standing(self) -> str:
        if (lost := self.lost()) is not None:
            return f"{lost} while the run was written. Its {self.count} records cannot be read there any more."
        return f"The {self.count} records written before are whole (collbench show {self.directory})."

    def lost(self) -> str | None:
        try:
            (self.directory / "manifest.json").stat()
            now = (self.directory / "records.jsonl").stat()
        except OSError as error:
            return f"{error.filename} was removed or moved ({error.strerror})"
        if (now.st_dev, now.st_ino) != self._file:
            return f"{self.directory / 'records.jsonl'} was replaced"
        return None if now.st_size >= self._length else f"{self.directory / 'records.jsonl'} was cut"

    def _opened(self, records: BinaryIO) -> None:
        opened = os.fstat(records.fileno())
        self._records, self._file, self._length = records, (opened.st_dev, opened.st_ino), opened.st_size

    def _take_back(self, length: int, path: Path | None) -> None:
        with contextlib.suppress(OSError):
            self._records.truncate(length)
            self._records.seek(length)
        with contextlib.suppress(OSError):
            if path is not None:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self._records.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _readable(record: Record, samples: NDArray[np.int64] | None) -> bytes:
    """The line of a record, with samples that are written beside it.

    Raises RunReadError: whoever reads the run would stop at it.
    """
    what = f"the record of {record.case.workload}, {record.case['size']} B,"
    try:
        line = records.encode(record) + b"\n"
    except UnicodeEncodeError as error:
        raise RunReadError(f"{what} cannot be written: {error}.") from error
    if len(line) >= LONGEST_LINE:
        raise RunReadError(f"{what} is {len(line) >> 20} MiB long, and would not be read back.")
    records.decode(line, f"{what} would not be read back")
    if samples is not None and record.samples is not None:
        ranks = record.case.where.ranks
        if samples.ndim != 2 or samples.shape[:1] not in rows_of(ranks) or samples.shape[1] != record.samples.n:
            contents = f"{ranks} ranks and {record.samples.n} samples"
            raise RunReadError(f"{what} says {contents}, and there is an array {list(samples.shape)}.")
    return line


class RecordStream:
    """The records of a run one after the other, so that a run of any length needs the memory of one record.

    After the last one, `truncated` says whether the last line was cut off and left out.

    Raises RunReadError: while iterating, on a line that is not a record (the message has its number).
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "records.jsonl"
        self.truncated = False

    def __iter__(self) -> Iterator[Record]:
        path = str(self._path)
        for number, line, complete in files.lines_of(self._path, LONGEST_LINE):
            if not complete:
                self.truncated = True
                return
            yield records.decode(line, path, number)


PROGRESS = "progress"


def note_progress(directory: Path, what: str) -> None:
    """Add a line. A disk that is full is noticed with the next record."""
    with contextlib.suppress(OSError), (directory / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


def end_progress(directory: Path) -> None:
    with contextlib.suppress(OSError):
        (directory / PROGRESS).unlink(missing_ok=True)


def add_hosts(directory: Path, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Add to the manifest of a run the hosts whose names it does not have; returns these.

    A scheduler may give a run that is resumed other machines than before.

    Raises RunReadError, RunWriteError: it cannot be read, or not be written; then it stays as it was.
    """
    before = read_manifest(directory)
    names = {host.name for host in before.hosts}
    added = tuple(host for host in hosts if host.name not in names)
    if added:
        _replace(directory, msgspec.structs.replace(before, hosts=(*before.hosts, *added)))
    return added


def extend(directory: Path, launches: int) -> None:
    """From now on the run ends when it is decided, after at most so many launches; its `plan` stays as it was.

    Raises RunReadError, RunWriteError: as `add_hosts`.
    """
    before = read_manifest(directory)
    if before.experiment is not None:
        experiment = msgspec.structs.replace(before.experiment, launches=launches, until="decided")
        _replace(directory, msgspec.structs.replace(before, experiment=experiment))


def _replace(directory: Path, manifest: Manifest) -> None:
    path, part = directory / "manifest.json", directory / "manifest.json.part"
    try:
        part.unlink(missing_ok=True)
        files.write_synced(part, manifests.encode(manifest))
        part.replace(path)
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror or error}.") from error


READINGS = "yardsticks.jsonl"

MOST_YARDSTICKS = 64  # the most cells of a launch, and yardsticks of a reading

LONGEST_READING = 1 << 20  # no line is longer (bytes)

Moment = Literal["before", "after"]

#: Why a value is null: ranks are on another machine or on cores that are not known; the part in C is missing; this
#: process may not use a core; the cores are too few; the time limit; anything else that a thread needs and did not get.
NoReading = Literal["elsewhere", "not_built", "core_refused", "too_few_cores", "late", "failed"]

_YardstickValue = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
_CoreList = Annotated[str, msgspec.Meta(max_length=1 << 16)]


class YardstickReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the cores of a launch were like just before or after it, `values` by yardstick (docs/record.md)."""

    launch: LaunchNumber
    sequence: LaunchNumber
    cells: Annotated[tuple[Where, ...], msgspec.Meta(min_length=1, max_length=MOST_YARDSTICKS)]
    cores: _CoreList
    moment: Moment
    monotonic: Amount
    wall: Amount
    values: Annotated[dict[ShortText, _YardstickValue | None], msgspec.Meta(max_length=MOST_YARDSTICKS)]
    reason: NoReading | None = None

    def __post_init__(self) -> None:
        if (None in self.values.values()) != (self.reason is not None):
            raise ValueError("a reason is there where a value is null, and only there")


def append_reading(directory: Path, reading: YardstickReading) -> None:
    """Add a line to the readings of a run; a last line that was cut off is taken away.

    Raises RunWriteError: the file is no regular one, or cannot be written; then it is as before.
    """
    path = directory / READINGS
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        with io.FileIO(number, "r+") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise RunWriteError(f"{path}: not a regular file.")
            size = os.fstat(number).st_size
            last = os.pread(number, LONGEST_READING, max(size - LONGEST_READING, 0))
            end, line = size - len(last.rpartition(b"\n")[2]), msgspec.json.encode(reading) + b"\n"
            file.truncate(end)
            file.seek(end)
            try:
                files.write_whole(file, line)
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror or error}.") from error


def read_readings(directory: Path) -> tuple[YardstickReading, ...]:
    """All readings of a run, in order, without a last line that was cut off; none where it has none.

    Raises RunReadError: not a regular file, or a line that is not a reading (the message has its number).
    """
    path, readings = directory / READINGS, []
    for number, line, complete in files.lines_of(path, LONGEST_READING):
        if not complete:
            break
        try:
            readings.append(files.decode_as(line, YardstickReading))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RunReadError(f"{path} line {number}: {error}") from error
    return tuple(readings)


SIDES = ("base", "other")  # the sides of the launch plan of a gate, and of a self-test

GATE_PLAN, GATE_VERSION = "gate-plan.json", 3

#: An empty file in the folder from the first launch until nothing is left to measure.
GATE_UNFINISHED = "gate-unfinished"


class Margin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `share` that an operation may lose, of sizes of at most `largest` bytes; None: of all other sizes."""

    share: Amount
    largest: Count | None = None


Margins = tuple[Margin, ...]  # by size, the smallest first; the last one is for all others


def margin_of(margins: Margins, case: Case) -> float:
    """The share that a case may lose; without a size that of all others."""
    size = case["size"] if "size" in case.what else math.inf
    return next(margin.share for margin in margins if margin.largest is None or size <= margin.largest)


def has_all_sizes(margins: Margins) -> bool:
    """Whether they are in order, and there is one for every size."""
    sizes = [margin.largest for margin in margins]
    return sizes == [*sorted({size for size in sizes if size is not None}), None]


class GatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plan` names what is measured. `cells` are its cases in the order of the plan, to be measured on both sides.

    `margins` and `accepted` reasons are those with which the gate began; it is judged by them unless others are given.
    """

    gate: int = GATE_VERSION
    plan: str
    cells: tuple[Case, ...]
    margins: Margins = (Margin(0.05),)
    accepted: tuple[str, ...] = ()


def write_gate_plan(folder: Path, plan: GatePlan) -> None:
    """Write the file into the folder of a run that has none, and note that launches are being made.

    Raises RunWriteError: it cannot be written.
    """
    try:
        if not (folder / GATE_PLAN).exists():
            files.write_synced(folder / GATE_PLAN, msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
        (folder / GATE_UNFINISHED).touch()
    except OSError as error:
        raise RunWriteError(f"{folder}: {error.strerror or error}.") from error


def is_gate(folder: Path) -> bool:
    return (folder / GATE_PLAN).exists()


def is_unfinished(folder: Path) -> bool:
    """Whether the gate of a folder was interrupted: its launches are not all made, and `--resume` makes the others."""
    return (folder / GATE_UNFINISHED).exists()


def mark_finished(folder: Path) -> None:
    (folder / GATE_UNFINISHED).unlink(missing_ok=True)


def read_gate_plan(folder: Path) -> GatePlan:
    """The planned cells of the gate in a folder.

    Raises RunReadError: the folder is not one that `collbench gate` wrote, or the file is damaged.
    """
    path = folder / GATE_PLAN
    try:
        plan = files.decode_as(files.read_whole(path, LARGEST_MANIFEST), GatePlan)
        if plan.gate != GATE_VERSION:
            raise RunReadError(f"{path}: version {plan.gate}; this collbench reads {GATE_VERSION}.")
        if not plan.cells:
            raise msgspec.DecodeError("it has no cells")
        if not has_all_sizes(plan.margins):
            raise msgspec.DecodeError("margins are not in the order of sizes, or not of all of them")
    except OSError as error:
        raise RunReadError(f"{folder}: not written by collbench gate ({error.strerror}: {GATE_PLAN}).") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        damage = f"damaged, or not written by collbench gate: {error}"
        raise RunReadError(f"{path}: {damage}. Measure again: --out DIR.") from error
    for case in plan.cells:
        refuse_odd(case, str(path))
    return plan
