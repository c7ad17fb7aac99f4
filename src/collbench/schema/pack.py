"""Packs the samples files of a run into one archive, so that a run is a few files: for repositories and transfers.

Whenever it is interrupted, every samples file is complete in the folder or in the archive, and packing again finishes:
the archive is written under a temporary name, synced, compared with the files and renamed; then the files are removed.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO

from collbench.errors import RunReadError, RunWriteError
from collbench.schema.sample_files import ARCHIVE, FOLDER, NAME, SampleFiles, largest_file
from collbench.schema.store import locked, read_manifest

#: The largest samples file that is read (bytes).
LARGEST = largest_file(1 << 20, 1 << 62)

#: The archive's name while it is incomplete. Nothing reads it.
_PARTIAL = f"{ARCHIVE}.part"

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Packed:
    """How many samples files were packed; bytes on disk of the files before, and of the archive after."""

    files: int
    before: int
    after: int


def pack(directory: Path) -> Packed | None:
    """Pack the samples files of a run, into the archive of an earlier call too. None where there are no files.

    The same samples files give the same bytes (with one version of zlib): members are sorted, and have one date.

    Raises:
        RunReadError: not a run; the folder or the archive holds something else, or cannot be read.
        RunWriteError: another program is writing the run, or the archive cannot be written. No sample is lost.
    """
    read_manifest(directory)
    with _lock(directory):
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


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Keep other programs from writing the run."""
    try:
        records = locked((directory / "records.jsonl").open("r+b", buffering=0))
    except BlockingIOError as error:
        raise RunWriteError(f"{directory}: another program is writing this run. Wait for it, or end it.") from error
    except OSError as error:
        raise RunWriteError(f"{directory / 'records.jsonl'}: {error.strerror}. Nothing was packed.") from error
    with records:
        yield


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes on disk of each file in the folder, by the name that records have for it.

    Raises:
        RunReadError: something else is in it, or it is not a folder.
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
                with samples.open(name, LARGEST) as source, archive.open(member, "w") as target:
                    for content in _pieces(source, name):
                        target.write(content)
        file.flush()
        os.fsync(file.fileno())


def _verify(directory: Path, names: tuple[str, ...], samples: SampleFiles) -> None:
    """Compare what readers find in the new archive with the files, byte by byte.

    Raises:
        RunReadError, RunWriteError: it differs, or cannot be read.
    """
    with SampleFiles(directory, _PARTIAL) as written:
        same = written.members() == names
        for name in names if same else ():
            with samples.open(name, LARGEST) as source, written.open_member(name, LARGEST) as member:
                pairs = zip_longest(_pieces(source, name), _pieces(member, name))
                same = same and all(expected == actual for expected, actual in pairs)
    if not same:
        raise RunWriteError(f"pack {directory}: the archive does not hold what was written to it. No sample is lost.")


def _pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The content in pieces of `_AT_ONCE` bytes; the last one may be shorter."""
    try:
        piece = b""
        while more := file.read(_AT_ONCE - len(piece)):
            piece += more
            if len(piece) == _AT_ONCE:
                yield piece
                piece = b""
        if piece:
            yield piece
    except Exception as error:  # zipfile and zlib raise errors of many kinds
        raise RunReadError(f"{name}: {error}") from error


def _remove_packed(directory: Path, sizes: dict[str, int]) -> Packed | None:
    archive, folder = directory / ARCHIVE, directory / FOLDER
    if not archive.exists() or not folder.is_dir():
        return None
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in sizes:
            os.unlink(Path(name).name, dir_fd=opened)
    finally:
        os.close(opened)
    folder.rmdir()
    _sync(directory)
    if not sizes:
        return None
    return Packed(len(sizes), sum(sizes.values()), 512 * archive.stat().st_blocks)


def _sync(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
