"""The samples files of a run: in its folder `samples/`, or members of `samples.zip`. Both are untrusted.

A file in the folder takes precedence over the member of the same name, so that a run can be read while it is packed,
and records can be added to a packed run.

Whenever packing is interrupted, every samples file is complete in the folder or in the archive, and packing again
finishes: the archive is written under a temporary name, synced, compared with the files and renamed; then they go.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING

from collbench.errors import RunReadError, RunWriteError
from collbench.schema.files import locked, write_synced
from collbench.schema.manifest import read_manifest
from collbench.schema.record import Record
from collbench.units import format_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Above this many ranks a run keeps the samples instead of a row for each rank, and machines instead of ranks.
ALL_RANKS_LIMIT = 64

MOST_VALUES = 1 << 27  # most values that are read from a file: 1 GiB as int64

LONGEST = 1 << 62  # no operation takes longer (ns): more than a century

#: By how much a record's median may differ from that of its samples, which are whole nanoseconds (s; share).
ROUNDING, RELATIVE = 1e-9, 1e-6

#: Bytes of a samples file besides its values: the longest header of NumPy's first format.
LONGEST_HEADER = (1 << 16) + 10

_PIECE = 1 << 20  # read or compared at a time: values, or bytes


def largest_file(ranks: int, n: int) -> int:
    """Most bytes of a samples file of so many ranks and samples; never more than are read."""
    return LONGEST_HEADER + 8 * min(ranks * n, MOST_VALUES)


def rows_of(ranks: int) -> tuple[tuple[int], ...]:
    """How many rows a samples file of so many ranks may have."""
    return ((ranks,),) if ranks <= ALL_RANKS_LIMIT else ((ranks,), (1,))


def decode_samples(file: IO[bytes], what: str, record: Record) -> NDArray[np.int64]:
    return decode_values(file, what, record.case.where.ranks, 0 if record.samples is None else record.samples.n)


def decode_values(file: IO[bytes], what: str, ranks: int, n: int) -> NDArray[np.int64]:
    """Samples [ranks, n] in nanoseconds from an open samples file.

    Above 64 ranks they may be [1, n], the samples themselves. The header is compared with the record before memory is
    allocated.

    Raises RunReadError: not the array that the record describes; `what` names the file in the message.
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
    for begin in range(0, size, _PIECE):
        piece = samples[begin : begin + _PIECE]
        content = b"".join(_read(file, len(piece) * dtype.itemsize))
        if len(content) < len(piece) * dtype.itemsize:
            raise RunReadError(f"{what}: ends before its last sample.")
        piece[...] = np.frombuffer(content, dtype)
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


def _read(file: IO[bytes], size: int) -> Iterator[bytes]:
    """The next bytes of a file, `size` in all, or fewer at its end: one call may read less."""
    while size and (part := file.read(size)):
        yield part
        size -= len(part)


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


ARCHIVE, FOLDER = "samples.zip", "samples"  # where the samples files of a run are: packed, and otherwise

#: The name of a samples file, in records and in the archive.
NAME = re.compile(rf"{FOLDER}/([A-Za-z0-9_-]{{1,200}}\.npy)")

#: Most bytes of an archive's central directory: enough for a million members with the names that collbench gives.
LARGEST_DIRECTORY = 96 << 20


class SampleFiles(contextlib.AbstractContextManager["SampleFiles"]):
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

        Raises RunReadError: as `read_file`.
        """
        if record.samples is None or record.samples.file is None:
            return None
        return self.read_file(record.samples.file, record.case.where.ranks, record.samples.n)

    def read_file(self, name: str, ranks: int, n: int) -> NDArray[np.int64]:
        """Samples [ranks, n] of the file that a record names, as `decode_values`.

        Raises RunReadError: the file is missing, or not a regular file; its name leads out of the run; the
        archive is damaged; the record describes other samples.
        """
        with self.open(name, largest_file(ranks, n)) as file:
            what = f"{self._path}: {name}" if isinstance(file, zipfile.ZipExtFile) else str(self.directory / name)
            try:
                samples = decode_values(file, what, ranks, n)
                while file.read(1 << 16):  # a member's checksum is compared at its end
                    pass
            except RunReadError:
                raise
            except Exception as error:  # zipfile and zlib raise errors of many kinds
                raise RunReadError(f"{what}: {_reason(error)}") from error
        return samples

    def open(self, name: str, largest: int) -> IO[bytes]:
        """A samples file of at most `largest` bytes, to be read and closed by the caller.

        Raises RunReadError: as `read_file`, for the name, the archive and the size.
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
        archive = self._opened_archive()
        if archive is None or (info := archive.NameToInfo.get(name)) is None:
            raise RunReadError(f"{self._path}: does not contain {name}.")
        if info.file_size > largest:
            raise RunReadError(f"{self._path}: {name}: {info.file_size} bytes; at most {largest} are read.")
        try:
            return archive.open(info)
        except Exception as error:  # zipfile raises errors of many kinds
            raise RunReadError(f"{self._path}: {name}: {_reason(error)}") from error

    def members(self) -> tuple[str, ...]:
        """The names of the samples files in the archive; none where there is no archive.

        Raises RunReadError: the archive is damaged.
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

    def __exit__(self, *_: object) -> None:
        self.close()


class _BoundedReads(io.FileIO):
    """A file that refuses to read more at once than a central directory: the archive itself says how large that is."""

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(number)
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `LARGEST_DIRECTORY` bytes. Raises RunReadError: more are requested, and there."""
        remaining = max(os.fstat(self.fileno()).st_size - self.tell(), 0)
        length = remaining if size is None or size < 0 else min(size, remaining)
        if length > LARGEST_DIRECTORY:
            raise RunReadError(f"{self._path}: its directory takes more than {LARGEST_DIRECTORY >> 20} MiB.")
        return super().read(length) or b""


def _checked(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipFile:
    """The archive, if it holds nothing but samples files, each once, and none encrypted.

    Raises RunReadError: it holds something else.
    """
    names = set()
    for info in archive.infolist():
        name, method = info.filename, info.compress_type
        if NAME.fullmatch(name) is None:
            raise RunReadError(f"{path}: holds {name!a}, which is not a samples file.")
        if name in names:
            raise RunReadError(f"{path}: holds {name} more than once.")
        if info.flag_bits & 1:
            raise RunReadError(f"{path}: {name} is encrypted.")
        if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RunReadError(f"{path}: {name} is compressed by method {method}; only deflate is read.")
        names.add(name)
    return archive


_LINK = "a symbolic link, and links are not followed: put the file itself there"


def _open_regular(folder: Path, name: str) -> int:
    """A regular file in the folder, opened. The folder must not be a link, which could lead to another run."""
    if os.open not in os.supports_dir_fd:  # Windows cannot refuse a link when opening it
        path = folder / name
        if path.resolve(strict=True) != folder.parent.resolve() / folder.name / name:
            raise OSError(errno.ELOOP, _LINK)
        return _regular(os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), path)
    with _opened(folder, os.O_NOFOLLOW if folder.name == FOLDER else 0) as opened:
        try:
            return _regular(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened), folder / name)
        except OSError as error:
            raise OSError(errno.ELOOP, _LINK) if error.errno == errno.ELOOP else error from None


@contextlib.contextmanager
def _opened(folder: Path, flags: int = 0) -> Iterator[int]:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | flags)
    try:
        yield number
    finally:
        os.close(number)


def _regular(number: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise RunReadError(f"{path}: not a regular file.")
    return number


def _reason(error: Exception) -> str:
    return f"{getattr(error, 'strerror', None) or str(error) or type(error).__name__}; it cannot be read."


def save_samples(path: Path, samples: NDArray[np.int64]) -> None:
    """Write samples [ranks, n] (above 64 ranks: [1, n], the largest) as the narrowest signed integer."""
    import numpy as np

    if len(samples) > ALL_RANKS_LIMIT:
        samples = largest(samples)
    fits = int(samples.min()) > -(2**31) and int(samples.max()) < 2**31
    narrow = samples.astype(np.int32 if fits else np.int64)
    content = io.BytesIO()
    np.save(content, narrow, allow_pickle=False)
    write_synced(path, content.getbuffer(), "wb")  # not by NumPy, which forgets why a write failed


def largest(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """[1, n]: per sample the largest value over the ranks; a late sample stays negative."""
    import numpy as np

    sign = np.where((samples < 0).any(axis=0), -1, 1)
    signed: NDArray[np.int64] = np.abs(samples).max(axis=0) * sign
    return signed[np.newaxis]


LARGEST_FILE = largest_file(1 << 20, 1 << 62)  # the largest samples file that is read (bytes)

#: The archive's name while it is incomplete. Nothing reads it.
_PARTIAL = f"{ARCHIVE}.part"


@dataclass(frozen=True)
class Packed:
    """How many samples files were packed; bytes on disk of the files before, and of the archive after."""

    files: int
    before: int
    after: int


def pack(directory: Path) -> Packed | None:
    """Pack the samples files of a run, into the archive of an earlier call too. None where there are no files.

    The same samples files give the same bytes (with one version of zlib): members are sorted, and have one date.

    Raises RunReadError: not a run; the folder or the archive holds something else, or cannot be read; RunWriteError:
    another program is writing the run, or the archive cannot be written. No sample is lost.
    """
    read_manifest(directory)
    path = directory / "records.jsonl"
    try:
        records = locked(path.open("r+b", buffering=0))  # no other program writes the run meanwhile
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror}. Nothing was packed.") from error
    with records:
        sizes = _sizes(directory / FOLDER)
        partial = directory / _PARTIAL
        try:
            partial.unlink(missing_ok=True)  # left by a call that was killed
            if sizes:
                with SampleFiles(directory) as samples:
                    names = tuple(sorted({*samples.members(), *sizes}))
                    _write(partial, names, samples)
                    _verify(directory, names, samples)
                partial.replace(directory / ARCHIVE)
                _sync(directory)
            return _remove_packed(directory, sizes)
        except OSError as error:
            raise RunWriteError(f"pack {directory}: {error.strerror or error}. No sample is lost.") from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes on disk of each file in the folder, by the name that records have for it.

    Raises RunReadError: something else is in it, or it is not a folder.
    """
    sizes = {}
    try:
        if folder.is_symlink():
            raise RunReadError(f"{folder}: is a link; only a folder is packed.")
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{FOLDER}/{entry.name}"
                if NAME.fullmatch(name) is None or not entry.is_file(follow_symlinks=False):
                    raise RunReadError(f"{folder.parent / name}: not a samples file. Move it away, and pack again.")
                sizes[name] = 512 * entry.stat(follow_symlinks=False).st_blocks
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunReadError(f"{folder}: {error.strerror}.") from error
    return sizes


def _write(path: Path, names: tuple[str, ...], samples: SampleFiles) -> None:
    with path.open("xb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                member = zipfile.ZipInfo(name)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                with samples.open(name, LARGEST_FILE) as source, archive.open(member, "w") as target:
                    for content in _pieces(source, name):
                        target.write(content)
        file.flush()
        os.fsync(file.fileno())


def _verify(directory: Path, names: tuple[str, ...], samples: SampleFiles) -> None:
    """Compare what readers find in the new archive with the files, byte by byte.

    Raises RunReadError, RunWriteError: it differs, or cannot be read.
    """
    with SampleFiles(directory, _PARTIAL) as written:
        same = written.members() == names
        for name in names if same else ():
            with samples.open(name, LARGEST_FILE) as source, written.open_member(name, LARGEST_FILE) as member:
                pairs = zip_longest(_pieces(source, name), _pieces(member, name))
                same = same and all(expected == actual for expected, actual in pairs)
    if not same:
        raise RunWriteError(f"pack {directory}: the archive does not hold what was written to it. No sample is lost.")


def _pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The content in pieces of `_PIECE` bytes; the last one may be shorter."""
    try:
        while piece := b"".join(_read(file, _PIECE)):
            yield piece
    except Exception as error:  # zipfile and zlib raise errors of many kinds
        raise RunReadError(f"{name}: {error}") from error


def _remove_packed(directory: Path, sizes: dict[str, int]) -> Packed | None:
    archive, folder = directory / ARCHIVE, directory / FOLDER
    if not archive.exists() or not folder.is_dir():
        return None
    with _opened(folder, os.O_NOFOLLOW) as number:
        for name in sizes:
            os.unlink(Path(name).name, dir_fd=number)
    folder.rmdir()
    _sync(directory)
    return Packed(len(sizes), sum(sizes.values()), 512 * archive.stat().st_blocks) if sizes else None


def _sync(directory: Path) -> None:
    with _opened(directory) as number:
        os.fsync(number)
