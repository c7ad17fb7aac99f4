"""The samples files of a run: in its folder `samples/`, or members of `samples.zip`. Both are untrusted.

A file in the folder takes precedence over the member of the same name, so that a run can be read while it is packed,
and records can be added to a packed run.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import zipfile
from pathlib import Path
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

_ARRAY_PIECE = 1 << 20


def largest_file(ranks: int, n: int) -> int:
    """Most bytes of a samples file of so many ranks and samples; never more than are read."""
    return LONGEST_HEADER + 8 * min(ranks * n, MOST_VALUES)


def rows_of(ranks: int) -> tuple[tuple[int], ...]:
    """How many rows a samples file of so many ranks may have."""
    return ((ranks,),) if ranks <= ALL_RANKS_LIMIT else ((ranks,), (1,))


def decode_samples(file: IO[bytes], what: str, record: Record) -> NDArray[np.int64]:
    """The samples of a record, as `decode_values`."""
    return decode_values(file, what, record.case.where.ranks, 0 if record.samples is None else record.samples.n)


def decode_values(file: IO[bytes], what: str, ranks: int, n: int) -> NDArray[np.int64]:
    """Samples [ranks, n] in nanoseconds from an open samples file.

    Above 64 ranks they may be [1, n], the samples themselves. The header is compared with the record before memory is
    allocated.

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
    for begin in range(0, size, _ARRAY_PIECE):
        length = min(_ARRAY_PIECE, size - begin)
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


#: Where the samples files of a run are: packed, and otherwise.
ARCHIVE, FOLDER = "samples.zip", "samples"

#: The name of a samples file, in records and in the archive.
NAME = re.compile(rf"{FOLDER}/([A-Za-z0-9_-]{{1,200}}\.npy)")

#: Most bytes of an archive's central directory: enough for a million members with the names that collbench gives.
LARGEST_DIRECTORY = 96 << 20

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_CHECKSUM_PIECE = 1 << 16


class SampleFiles:
    """Reads the samples files of the run in `directory`. Use as a context manager.

    The archive is opened when the first member is read, and stays open.
    """

    def __init__(self, directory: Path, archive: str = ARCHIVE) -> None:
        self.directory, self._path = directory, directory / archive
        self._archive: zipfile.ZipFile | None = None
        self._file: _BoundedReads | None = None
        self._damage = ""

    def read(self, record: Record) -> NDArray[np.int64] | None:
        """Samples of a record in nanoseconds, [ranks, n]; negative where late. None when none were kept.

        Above 64 ranks they are [1, n].

        Raises:
            RunReadError: as `read_file`.
        """
        if record.samples is None or record.samples.file is None:
            return None
        return self.read_file(record.samples.file, record.case.where.ranks, record.samples.n)

    def read_file(self, name: str, ranks: int, n: int) -> NDArray[np.int64]:
        """Samples [ranks, n] of the file that a record names, as `decode_values`.

        Raises:
            RunReadError: the file is missing, or not a regular file; its name leads out of the run; the archive is
                damaged; the record describes other samples.
        """
        with self.open(name, largest_file(ranks, n)) as file:
            what = f"{self._path}: {name}" if isinstance(file, zipfile.ZipExtFile) else str(self.directory / name)
            try:
                samples = decode_values(file, what, ranks, n)
                while file.read(_CHECKSUM_PIECE):  # a member's checksum is compared at its end
                    pass
            except RunReadError:
                raise
            except Exception as error:  # zipfile and zlib raise errors of many kinds
                raise RunReadError(f"{what}: {_reason(error)}") from error
        return samples

    def open(self, name: str, largest: int) -> IO[bytes]:
        """A samples file of at most `largest` bytes, to be read and closed by the caller.

        Raises:
            RunReadError: as `read_file`, for the name, the archive and the size.
        """
        match = NAME.fullmatch(name)
        if match is None:
            raise RunReadError(f"{self.directory}: samples file {name!a} is not inside {FOLDER}/.")
        path = self.directory / name
        try:
            file = io.FileIO(_open_regular(self.directory / FOLDER, match[1]))
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._opened_archive() is not None:
                return self.open_member(name, largest)
            rule = "" if isinstance(error, FileNotFoundError) else f"; only a regular file inside {FOLDER}/ is read"
            raise RunReadError(f"{path}: {error.strerror or error}{rule}.") from error
        if (size := os.fstat(file.fileno()).st_size) > largest:
            file.close()
            raise RunReadError(f"{path}: {size} bytes; at most {largest} are read.")
        return file

    def open_member(self, name: str, largest: int) -> IO[bytes]:
        """As `open`, but only from the archive."""
        archive = self._opened_archive()
        info = None if archive is None else archive.NameToInfo.get(name)
        if archive is None or info is None:
            raise RunReadError(f"{self._path}: does not contain {name}.")
        if info.file_size > largest:
            raise RunReadError(f"{self._path}: {name}: {info.file_size} bytes; at most {largest} are read.")
        try:
            return archive.open(info)
        except Exception as error:  # zipfile raises errors of many kinds
            raise RunReadError(f"{self._path}: {name}: {_reason(error)}") from error

    def members(self) -> tuple[str, ...]:
        """The names of the samples files in the archive; none where there is no archive.

        Raises:
            RunReadError: the archive is damaged.
        """
        archive = self._opened_archive()
        return () if archive is None else tuple(archive.namelist())

    def _opened_archive(self) -> zipfile.ZipFile | None:
        """The archive, if there is one; it is checked once."""
        if self._archive is None:
            if self._damage:
                raise RunReadError(self._damage)
            path = self._path
            try:
                self._file = _BoundedReads(_open_regular(self.directory, path.name), path)
                self._archive = _checked(zipfile.ZipFile(self._file), path)
            except FileNotFoundError:
                return None
            except Exception as error:
                self.close()
                self._damage = str(error) if isinstance(error, RunReadError) else f"{path}: {_reason(error)}"
                raise RunReadError(self._damage) from error
        return self._archive

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._archive = self._file = None

    def __enter__(self) -> SampleFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_samples(directory: Path, record: Record) -> NDArray[np.int64] | None:
    """Samples of one record of the run, as `SampleFiles.read`. To read many, keep a `SampleFiles`."""
    with SampleFiles(directory) as files:
        return files.read(record)


class _BoundedReads(io.FileIO):
    """A file that refuses to read more at once than a central directory: the archive itself says how large that is."""

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(number)
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `LARGEST_DIRECTORY` bytes.

        Raises:
            RunReadError: more are requested, and there.
        """
        remaining = max(os.fstat(self.fileno()).st_size - self.tell(), 0)
        length = remaining if size is None or size < 0 else min(size, remaining)
        if length > LARGEST_DIRECTORY:
            raise RunReadError(f"{self._path}: its directory takes more than {LARGEST_DIRECTORY >> 20} MiB.")
        return super().read(length) or b""


def _checked(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipFile:
    """The archive, if it holds nothing but samples files, each once, and none encrypted.

    Raises:
        RunReadError: it holds something else.
    """
    seen = set()
    for info in archive.infolist():
        name = info.filename
        if NAME.fullmatch(name) is None:
            raise RunReadError(f"{path}: holds {name!a}, which is not a samples file.")
        if name in seen:
            raise RunReadError(f"{path}: holds {name} more than once.")
        if info.flag_bits & _ENCRYPTED:
            raise RunReadError(f"{path}: {name} is encrypted.")
        if info.compress_type not in _METHODS:
            raise RunReadError(f"{path}: {name} is compressed by method {info.compress_type}; only deflate is read.")
        seen.add(name)
    return archive


_LINK = "a symbolic link, and links are not followed: put the file itself there"


def _open_regular(folder: Path, name: str) -> int:
    """A regular file in the folder, opened. The folder must not be a link, which could lead to another run."""
    if os.open not in os.supports_dir_fd:  # Windows cannot refuse a link when opening it
        path = folder / name
        if path.resolve(strict=True) != folder.parent.resolve() / folder.name / name:
            raise OSError(errno.ELOOP, _LINK)
        return _regular(os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), path)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if folder.name == FOLDER else 0))
    try:
        return _regular(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened), folder / name)
    except OSError as error:
        raise OSError(errno.ELOOP, _LINK) if error.errno == errno.ELOOP else error from None
    finally:
        os.close(opened)


def _regular(number: int, path: Path) -> int:
    """The open file, if it is a regular one."""
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise RunReadError(f"{path}: not a regular file.")
    return number


def _reason(error: Exception) -> str:
    return f"{getattr(error, 'strerror', None) or str(error) or type(error).__name__}; it cannot be read."
