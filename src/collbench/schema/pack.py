"""The samples files of a run packed into one archive, so that a run is three files: for repositories and transfers.

Whatever interrupts it, every samples file is whole in the folder or in the archive, and packing again completes it: the
archive is written beside, synced, compared with the files member by member, and takes its name; then the files go.
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
from collbench.schema.sample_files import ARCHIVE, FOLDER, NAME, SampleFiles
from collbench.schema.samples import largest_file
from collbench.schema.store import locked, read_manifest

#: No samples file that is read is larger (bytes).
LARGEST = largest_file(1 << 20, 1 << 62)

#: Its own name while it is not complete. Nothing reads it.
_HALF = f"{ARCHIVE}.part"

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Packed:
    """So many samples files, which took `before` bytes of the disk; the archive that holds them now takes `after`."""

    files: int
    before: int
    after: int


def pack(directory: Path) -> Packed | None:
    """Pack the samples files of a run; an archive that is there takes in what came since. None: there are no files.

    The same samples files give the same bytes (with one version of zlib): members are in the order of their names, and
    of one time.

    Raises:
        RunReadError: not a run; something in the folder or in the archive is no samples file, or cannot be read.
        RunWriteError: another program writes the run, or the archive cannot be written. No sample is lost.
    """
    read_manifest(directory)
    with _alone(directory):
        files = _listed(directory / FOLDER)
        half = directory / _HALF
        try:
            half.unlink(missing_ok=True)  # of one that was killed
            if files:
                with SampleFiles(directory) as samples:
                    names = tuple(sorted({*samples.members(), *files}))
                    _write(half, names, samples)
                    _verify(directory, names, samples)
                half.replace(directory / ARCHIVE)
                _sync(directory)
            return _cleared(directory, files)
        except OSError as error:
            raise RunWriteError(f"pack {directory}: {error.strerror or error}. No sample is lost.") from error
        finally:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """While no other program writes the run."""
    try:
        records = locked((directory / "records.jsonl").open("r+b", buffering=0))
    except BlockingIOError as error:
        raise RunWriteError(f"{directory}: another program is writing this run. Wait for it, or end it.") from error
    except OSError as error:
        raise RunWriteError(f"{directory / 'records.jsonl'}: {error.strerror}. Nothing was packed.") from error
    with records:
        yield


def _listed(folder: Path) -> dict[str, int]:
    """The files in the folder by their names in records, with the bytes that each takes of the disk.

    Raises:
        RunReadError: something else is in it, or it is no folder.
    """
    found = {}
    try:
        if folder.is_symlink():
            raise RunReadError(f"{folder}: is a link; only a folder is packed.")
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{FOLDER}/{entry.name}"
                if NAME.fullmatch(name) is None or not entry.is_file(follow_symlinks=False):
                    raise RunReadError(f"{folder.parent / name}: is no samples file. Move it away, and pack again.")
                found[name] = 512 * entry.stat(follow_symlinks=False).st_blocks
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunReadError(f"{folder}: {error.strerror}.") from error
    return found


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
    """Whether readers find in the new archive what is in the files, byte by byte.

    Raises:
        RunReadError, RunWriteError: they do not.
    """
    with SampleFiles(directory, _HALF) as written:
        same = written.members() == names
        for name in names if same else ():
            with samples.open(name, LARGEST) as source, written.open_member(name, LARGEST) as member:
                pairs = zip_longest(_pieces(source, name), _pieces(member, name))
                same = same and all(one == other for one, other in pairs)
    if not same:
        raise RunWriteError(f"pack {directory}: the archive does not hold what was written to it. No sample is lost.")


def _pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The content, in pieces of `_AT_ONCE` bytes but for the last one."""
    try:
        piece = b""
        while more := file.read(_AT_ONCE - len(piece)):
            piece += more
            if len(piece) == _AT_ONCE:
                yield piece
                piece = b""
        if piece:
            yield piece
    except Exception as error:  # of a damaged member zipfile and zlib raise errors of many kinds
        raise RunReadError(f"{name}: {error}") from error


def _cleared(directory: Path, files: dict[str, int]) -> Packed | None:
    """Remove what was packed."""
    archive, folder = directory / ARCHIVE, directory / FOLDER
    if not archive.exists() or not folder.is_dir():
        return None
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in files:
            os.unlink(Path(name).name, dir_fd=above)
    finally:
        os.close(above)
    folder.rmdir()
    _sync(directory)
    return Packed(len(files), sum(files.values()), 512 * archive.stat().st_blocks) if files else None


def _sync(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
