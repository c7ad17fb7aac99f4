"""A run on disk: `manifest.json`, `records.jsonl`, samples files. Written as it is measured.

A record is on disk before the next case begins. A writer that fails half-way takes its half line back, so what was
measured before stays readable.

The file is removed when the run is complete. Whoever waits for the run sees by it that a silent program makes progress.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from collbench.errors import RequestError, RunReadError, RunWriteError
from collbench.schema import manifest as manifests
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.schema.sample_files import ALL_RANKS_LIMIT, read_samples, rows_of
from collbench.schema.untrusted import read_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def refuse_used(directory: Path) -> None:
    """Whether it is free.

    Raises:
        RequestError: there is a run in it, or something else.
    """
    if (directory / "records.jsonl").exists() or (directory / "manifest.json").exists():
        raise RequestError(f"--out {directory}: already holds a run. Name a directory that does not exist yet.")
    if directory.is_dir() and any(directory.iterdir()):
        raise RequestError(f"--out {directory}: is not empty. Name a directory that does not exist yet.")


def refuse_unusable(directory: Path) -> None:
    """Whether a run can be created there, before anything is measured; nothing is left of the attempt.

    Raises:
        RequestError: there is a run in it, or something else.
        RunWriteError: nothing can be written there.
    """
    try:
        refuse_used(directory)
        parent = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
        tempfile.TemporaryDirectory(prefix=".collbench-", dir=parent).cleanup()
    except OSError as error:
        raise RunWriteError(f"--out {directory}: {error.strerror or error}. Nothing was measured.") from error


#: A record of a thousand machines takes some hundred kilobytes.
LONGEST_LINE = 64 << 20

#: Read at a time (bytes): a system call for each few records would cost as much as decoding them.
READ_AHEAD = 1 << 20

#: As long a manifest is one of many ranks (bytes).
LARGEST_MANIFEST = 64 << 20


class RunWriter:
    """Creates a run directory and appends to it. Use as a context manager.

    Raises:
        RequestError: the directory already holds a run.
        RunWriteError: it cannot be created or written.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        try:
            refuse_used(directory)
            (directory / "samples").mkdir(parents=True, exist_ok=True)
            content = manifests.encode(manifest)
            manifests.decode(content, f"--out {directory}: the manifest would not be read back")
            write_synced(directory / "manifest.json", content)
            self._opened(locked((directory / "records.jsonl").open("xb", buffering=0)))
        except OSError as error:
            raise RunWriteError(f"--out {directory}: {error.strerror or error}. Nothing was measured.") from error
        except RunReadError as error:
            raise RunWriteError(f"{error} Nothing was measured.") from error
        self.count, self.before = 0, tuple[Record, ...]()

    @classmethod
    def resume(cls, directory: Path) -> RunWriter:
        """Go on with a run that is there: its records are in `before`. A last line that was cut off is taken away.

        Raises:
            RunReadError, RunWriteError: it cannot be read, or not be written.
        """
        read_manifest(directory)
        writer, path = cls.__new__(cls), directory / "records.jsonl"
        writer.directory = directory
        try:
            _refuse_irregular(path)
            file = locked(path.open("ab", buffering=0))
            (directory / "samples").mkdir(exist_ok=True)  # a packed run has none
            stream = RecordStream(directory)
            writer.before = tuple(stream)  # nobody adds to them any more
            writer.count = len(writer.before)
            if stream.truncated:
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
            writer._opened(file)
        except BlockingIOError as error:
            raise RunWriteError(f"{directory}: another program is writing this run. Wait for it, or end it.") from error
        except OSError as error:
            raise RunWriteError(f"{directory}: {error.strerror}.") from error
        return writer

    def append(self, record: Record, samples: NDArray[np.int64] | None = None) -> Record:
        """Write the samples [ranks, n] in nanoseconds, then the record; synced when this returns the record as written.

        Raises:
            RunWriteError: the disk is full, the run is gone, or a reader would refuse the record. The run stays
                readable up to the record before.
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
            rest = memoryview(line)
            while rest:  # what does not fit in one write tells why in the next
                rest = rest[self._records.write(rest) :]
            os.fsync(self._records.fileno())
        except OSError as error:
            self._take_back(before, path)
            raise RunWriteError(f"--out {self.directory}: {error.strerror or error}. {self.standing()}") from error
        self.count += 1
        self._length = before + len(line)
        return record

    def verify(self) -> None:
        """Look whether what was written is still there.

        Raises:
            RunWriteError: somebody removed, moved, replaced or cut it.
        """
        if self.lost() is not None:
            raise RunWriteError(f"--out {self.directory}: {self.standing()}")

    def standing(self) -> str:
        """What there is of the run, in words."""
        if (lost := self.lost()) is not None:
            return f"{lost} while the run was written. Its {self.count} records cannot be read there any more."
        return f"The {self.count} records written before are whole (collbench show {self.directory})."

    def lost(self) -> str | None:
        """What happened to the run, where what was written is not there any more; None where it is."""
        try:
            (self.directory / "manifest.json").stat()
            found = (self.directory / "records.jsonl").stat()
        except OSError as error:
            return f"{error.filename} was removed or moved ({error.strerror})"
        if (found.st_dev, found.st_ino) != self._file:
            return f"{self.directory / 'records.jsonl'} was replaced"
        return None if found.st_size >= self._length else f"{self.directory / 'records.jsonl'} was cut"

    def _opened(self, records: BinaryIO) -> None:
        """From now on this is the file, as it is."""
        found = os.fstat(records.fileno())
        self._records, self._file, self._length = records, (found.st_dev, found.st_ino), found.st_size

    def _take_back(self, length: int, path: Path | None) -> None:
        with contextlib.suppress(OSError):
            self._records.truncate(length)
            self._records.seek(length)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; the run is complete as it stands."""
        self._records.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _readable(record: Record, samples: NDArray[np.int64] | None) -> bytes:
    """The line of a record, with samples that are written beside it.

    Raises:
        RunReadError: whoever reads the run would stop at it.
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
            said = f"{ranks} ranks and {record.samples.n} samples"
            raise RunReadError(f"{what} says {said}, and there is an array {list(samples.shape)}.")
    return line


def save_samples(path: Path, samples: NDArray[np.int64]) -> None:
    """Write samples [ranks, n] (above 64 ranks: [1, n], the largest) as the narrowest signed integer."""
    import numpy as np

    if len(samples) > ALL_RANKS_LIMIT:
        samples = largest(samples)
    fits = int(samples.min()) > -(2**31) and int(samples.max()) < 2**31
    narrow = samples.astype(np.int32 if fits else np.int64)
    content = io.BytesIO()
    np.save(content, narrow, allow_pickle=False)
    with path.open("wb") as file:
        file.write(content.getbuffer())  # not by NumPy, which forgets why a write failed
        file.flush()
        os.fsync(file.fileno())


#: What file systems without locks answer.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


def locked(records: BinaryIO) -> BinaryIO:
    """The file, which no other program writes to while this one does; the lock goes with the process."""
    import fcntl  # Unix has it; a run is read on any system

    try:
        fcntl.flock(records.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            records.close()
            raise
    return records


def is_being_written(directory: Path) -> bool:
    """Whether a program holds the lock of a run; False where the file system has no locks, or the system."""
    try:
        import fcntl

        with (directory / "records.jsonl").open("rb") as records:
            fcntl.flock(records.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ImportError):
        return False
    return False


def largest(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """[1, n]: per sample the largest value over the ranks; a late sample stays negative."""
    import numpy as np

    sign = np.where((samples < 0).any(axis=0), -1, 1)
    signed: NDArray[np.int64] = np.abs(samples).max(axis=0) * sign
    return signed[np.newaxis]


def write_synced(path: Path, content: bytes) -> None:
    """Write a file that does not exist; it is on disk, whole, when this returns."""
    try:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise
    except OSError:
        path.unlink(missing_ok=True)  # half a manifest would pass for a damaged run
        raise


@dataclass(frozen=True)
class Run:
    """A run as read. `truncated` says that the last line was cut off and left out (a killed writer leaves that)."""

    directory: Path
    manifest: Manifest
    records: tuple[Record, ...]
    truncated: bool = False

    def samples(self, record: Record) -> NDArray[np.int64] | None:
        """Samples of a record in nanoseconds, [ranks, n]; negative where late. None when none were kept.

        Raises:
            RunReadError: as `read_samples`.
        """
        return read_samples(self.directory, record)

    def find(self, case: Case, launch: int = 0) -> Record | None:
        """The record of a case in a launch, or None."""
        return next((r for r in self.records if r.case == case and r.launch == launch), None)


def read_run(directory: Path) -> Run:
    """Read a run from disk.

    Raises:
        RunReadError: not a run, a newer schema, or a line that is not a record (the message has its number).
    """
    manifest, stream = read_manifest(directory), RecordStream(directory)
    return Run(directory, manifest, tuple(stream), stream.truncated)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a run.

    Raises:
        RunReadError: no folder, not a run, or a newer schema.
    """
    path = directory / "manifest.json"
    if not os.path.lexists(directory):
        raise RunReadError(f"{directory}: not a run (there is no such folder).")
    try:
        return manifests.decode(read_whole(path, LARGEST_MANIFEST), str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunReadError(f"{directory}: not a run ({reason}: manifest.json).{_runs_in(directory)}") from error


def _runs_in(directory: Path) -> str:
    """Of a folder of runs, which one could be meant."""
    found = sorted(path.parent for path in directory.glob("*/manifest.json"))
    return f" It holds {len(found)}; name one of them, such as {found[0]}." if found else ""


class RecordStream:
    """The records of a run one after the other, so that a run of any length needs the memory of one record.

    After the last one, `truncated` says whether the last line was cut off and left out.

    Raises:
        RunReadError: while iterating, on a line that is not a record (the message has its number).
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "records.jsonl"
        self.truncated = False

    def __iter__(self) -> Iterator[Record]:
        path = str(self._path)
        for number, line, complete in lines_of(self._path, LONGEST_LINE):
            if not complete:
                self.truncated = True
                return
            yield records.decode(line, f"{path} line {number}")


def _refuse_irregular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise RunReadError(f"{path}: not a regular file.")


def lines_of(path: Path, longest: int) -> Iterator[tuple[int, bytes, bool]]:
    """The lines of a file of a run with their numbers, from 1, and whether each is complete; none where it is missing.

    Raises:
        RunReadError: it is not a regular file, or a line has `longest` bytes or more.
    """
    try:
        _refuse_irregular(path)
        with path.open("rb", buffering=READ_AHEAD) as file:
            for number in itertools.count(1):
                line = file.readline(longest)
                if len(line) == longest:
                    raise RunReadError(f"{path} line {number}: longer than {longest >> 20} MiB; this is no record.")
                if not line:
                    return
                yield number, line, line.endswith(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunReadError(f"{path}: {error.strerror}.") from error


PROGRESS = "progress"


def note_progress(directory: Path, what: str) -> None:
    """Add a line. A disk that is full is noticed with the next record."""
    with contextlib.suppress(OSError), (directory / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


def end_progress(directory: Path) -> None:
    with contextlib.suppress(OSError):
        (directory / PROGRESS).unlink(missing_ok=True)
