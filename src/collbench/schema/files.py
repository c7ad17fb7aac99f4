"""Files as untrusted input, and how the files of runs are written and locked.

What lies beyond the bounds of numbers, names and sizes is damage, and is refused.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import msgspec

from collbench.errors import PlanError, RunReadError, RunWriteError, in_one_line

T = TypeVar("T")

TOO_DEEP = "nested too deeply"  # instead of what Python says of it

#: A plan or site file has at most so many bytes, and so many dots in a line: `tomllib` takes time by the square of the
#: parts of a key (5 s for the worst file that these allow).
_LARGEST_TOML, _MOST_DOTS = 1 << 20, 1000


def refuse_irregular(path: Path) -> None:
    """Look at the path before it is read: reading a pipe that nobody writes to never ends, and nothing is read twice.

    Raises OSError: it is a pipe, a device or a socket. Folders, and what is not there, have messages of their own.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "not a regular file, but a pipe or a device. Name a file", str(path))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file that somebody wrote by hand; `what` it is, for messages.

    Raises PlanError: it cannot be read, is larger than any such file, or not TOML.
    """
    import tomllib

    where = f"{what} {path}"
    try:
        refuse_irregular(path)
        with path.open("rb") as file:
            content = file.read(_LARGEST_TOML + 1)
        if len(content) > _LARGEST_TOML:
            raise PlanError(f"{where}: larger than {_LARGEST_TOML >> 20} MiB.")
        for number, line in enumerate(content.splitlines(), 1):
            if line.count(b".") > _MOST_DOTS:
                raise PlanError(f"{where}: line {number}: more than {_MOST_DOTS} dots.")
        return tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise PlanError(f"{where}: {error.strerror}.") from error
    except (RecursionError, ValueError) as error:  # also a number of too many digits
        why = TOO_DEEP if isinstance(error, RecursionError) else error
        raise PlanError(f"{where}: not TOML: {why}.") from error


def read_whole(path: Path, largest: int) -> bytes:
    """A regular file of at most `largest` bytes.

    Raises RunReadError: it is not a regular file, or larger; OSError: it cannot be read.
    """
    require_regular(path)
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise RunReadError(f"{path}: larger than {largest >> 20} MiB, more than any run needs.")
    return content


def is_plain(content: bytes) -> bool:
    """Whether no text in this JSON can hold a character that must be escaped. Quick, and never wrongly true."""
    return content.isascii() and 0x5C not in content and 0x7F not in content  # numbers are found at once


def decode_plain(content: bytes) -> Any:
    """A JSON document; control characters in its texts and keys are escaped.

    Raises msgspec.DecodeError, UnicodeDecodeError: not JSON, or nested too deeply.
    """
    try:
        document = msgspec.json.decode(content)
        return document if is_plain(content) else escaped(document)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error


def decode_as(content: bytes, kind: type[T]) -> T:
    """A JSON document of this type, otherwise as `decode_plain`."""
    if is_plain(content):
        try:
            return msgspec.json.decode(content, type=kind)
        except RecursionError as error:
            raise msgspec.DecodeError(TOO_DEEP) from error
    return msgspec.convert(decode_plain(content), kind, str_keys=True)


def escaped(value: Any) -> Any:
    """Lists, tables and texts of JSON with the control characters in texts and keys escaped."""
    if isinstance(value, str):
        return in_one_line(value)
    if isinstance(value, list):
        return [escaped(item) for item in value]
    if isinstance(value, dict):
        return {in_one_line(name): escaped(item) for name, item in value.items()}
    return value


Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]  # operations, bytes moved, elements

#: Bytes as a kernel reports them: up to the largest number that it has.
ByteCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

#: No run has more ranks or launches.
Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
LaunchNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]

Burst = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]  # operations in a sample

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]  # cores, watts, seconds of a plan: never negative

#: What a check of a program measured: a residual, a share.
FigureValue = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]

#: A value that identifies a case. An image may be named with its registry, its tag and its digest.
ShortText = Annotated[str, msgspec.Meta(max_length=512)]

#: What file systems without locks answer.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


def locked(records: BinaryIO) -> BinaryIO:
    """The records of a run, which no other program writes while this one does; the lock goes with the process.

    Raises RunWriteError: another program is writing them.
    """
    import fcntl  # Unix has it; a run is read on any system

    try:
        fcntl.flock(records.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        records.close()
        directory = Path(records.name).parent
        raise RunWriteError(f"{directory}: another program is writing this run. Wait for it, or end it.") from error
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


def write_whole(file: BinaryIO, content: bytes) -> None:
    """Write all of it, unbuffered. What does not fit in one write tells why in the next."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def write_synced(path: Path, content: bytes | memoryview, mode: Literal["xb", "wb"] = "xb") -> None:
    """Write a file, by default one that does not exist; it is on disk, whole, when this returns, or not at all."""
    try:
        with path.open(mode) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise
    except OSError:
        path.unlink(missing_ok=True)  # half a manifest would pass for a damaged run
        raise


def require_regular(path: Path) -> None:
    """Refuse a file of a run that is a folder, a pipe or a device. Raises RunReadError: it is."""
    if path.exists() and not path.is_file():
        raise RunReadError(f"{path}: not a regular file.")


def lines_of(path: Path, longest: int) -> Iterator[tuple[int, bytes, bool]]:
    """The lines of a file of a run with their numbers, from 1, and whether each is complete; none where it is missing.

    Raises RunReadError: it is not a regular file, or a line has `longest` bytes or more.
    """
    try:
        require_regular(path)
        with path.open("rb", buffering=1 << 20) as file:  # a call for each few records would cost as much
            for number, line in enumerate(iter(partial(file.readline, longest), b""), 1):
                if len(line) == longest:
                    raise RunReadError(f"{path} line {number}: longer than {longest >> 20} MiB; this is no record.")
                yield number, line, line.endswith(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunReadError(f"{path}: {error.strerror}.") from error
