"""Files as untrusted input: bounds of numbers, names and sizes; what lies beyond them is damage, and is refused."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from collbench.characters import in_one_line
from collbench.errors import PlanError, RunReadError

T = TypeVar("T")

#: Instead of what Python says of it.
TOO_DEEP = "nested too deeply"

#: A plan or site file has at most so many bytes, and so many dots in a line: `tomllib` takes time by the square of the
#: parts of a key (5 s for the worst file that these allow).
_LARGEST_TOML, _MOST_DOTS = 1 << 20, 1000


def refuse_irregular(path: Path) -> None:
    """Look at the path before it is read: reading a pipe that nobody writes to never ends, and nothing is read twice.

    Raises:
        OSError: it is a pipe, a device or a socket. Folders, and what is not there, have messages of their own.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "not a regular file, but a pipe or a device. Name a file", str(path))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file that somebody wrote by hand; `what` it is, for messages.

    Raises:
        PlanError: it cannot be read, is larger than any such file, or not TOML.
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
    except RecursionError as error:
        raise PlanError(f"{where}: not TOML: {TOO_DEEP}.") from error
    except ValueError as error:  # also a number of too many digits
        raise PlanError(f"{where}: not TOML: {error}.") from error


def read_whole(path: Path, largest: int) -> bytes:
    """A regular file of at most `largest` bytes.

    Raises:
        RunReadError: it is not a regular file, or larger.
        OSError: it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise RunReadError(f"{path}: not a regular file.")
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise RunReadError(f"{path}: larger than {largest >> 20} MiB, more than any run needs.")
    return content


def is_plain(content: bytes) -> bool:
    """Whether no text in this JSON can hold a character that must be escaped. Quick, and never wrongly true."""
    return content.isascii() and b"\\" not in content and b"\x7f" not in content


def decode_plain(content: bytes) -> Any:
    """A JSON document; control characters in its texts and keys are escaped.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: not JSON, or nested too deeply.
    """
    try:
        document = msgspec.json.decode(content)
        return document if is_plain(content) else _plain(document)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error


def decode_as(content: bytes, kind: type[T]) -> T:
    """A JSON document of this type, otherwise as `decode_plain`."""
    if is_plain(content):
        try:
            return msgspec.json.decode(content, type=kind)
        except RecursionError as error:
            raise msgspec.DecodeError(TOO_DEEP) from error
    return msgspec.convert(decode_plain(content), kind)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return in_one_line(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {in_one_line(name): _plain(item) for name, item in value.items()}
    return value


#: Operations, bytes moved, elements.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]

#: Bytes as a kernel reports them: up to the largest number that it has.
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

#: No run has more ranks or launches.
Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Launch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]

#: Operations in a sample.
Burst = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]

#: Cores, watts, seconds of a plan: never negative.
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]

#: What a check of a program measured: a residual, a share.
Figure = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]

#: A value that identifies a case. An image may be named with its registry, its tag and its digest.
Name = Annotated[str, msgspec.Meta(max_length=512)]
