"""The readings of yardsticks around launches: `yardsticks.jsonl` beside the records of a run. Untrusted where read."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from collbench.errors import RunReadError, RunWriteError
from collbench.schema.case import Where
from collbench.schema.store import lines_of
from collbench.schema.untrusted import Amount, Launch, Name, decode_as

FILE = "yardsticks.jsonl"

#: The most cells of a launch, and yardsticks of a reading.
MOST = 64

#: No line is longer (bytes).
LONGEST = 1 << 20

Moment = Literal["before", "after"]

#: Why a value is null: ranks are on another machine or on cores that are not known; the part in C is missing; this
#: process may not use a core; the cores are too few; the time limit; anything else that a thread needs and did not get.
Reason = Literal["elsewhere", "not_built", "core_refused", "too_few_cores", "late", "failed"]

_Value = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
_Cores = Annotated[str, msgspec.Meta(max_length=1 << 16)]


class YardstickReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the cores of a launch were like just before or after it.

    `launch` and `sequence` are its block and its place in the experiment, of several worlds at once those of the first;
    `cells` where each of them runs. `cores` in the kernel's list format; empty where they are not known. `monotonic` is
    this machine's CLOCK_MONOTONIC, `wall` seconds since 1970. `values` by yardstick; `reason` says why the first of
    those that are None is so.
    """

    launch: Launch
    sequence: Launch
    cells: Annotated[tuple[Where, ...], msgspec.Meta(min_length=1, max_length=MOST)]
    cores: _Cores
    moment: Moment
    monotonic: Amount
    wall: Amount
    values: Annotated[dict[Name, _Value | None], msgspec.Meta(max_length=MOST)]
    reason: Reason | None = None

    def __post_init__(self) -> None:
        if (None in self.values.values()) != (self.reason is not None):
            raise ValueError("a reason is there where a value is null, and only there")


def append(directory: Path, reading: YardstickReading) -> None:
    """Add a line to the readings of a run; a last line that was cut off is taken away.

    Raises:
        RunWriteError: the file is no regular one, or cannot be written; then it is as before.
    """
    path = directory / FILE
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        with io.FileIO(number, "r+") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise RunWriteError(f"{path}: not a regular file.")
            size = os.fstat(number).st_size
            last = os.pread(number, LONGEST, max(size - LONGEST, 0))
            _write(file, size - len(last.rpartition(b"\n")[2]), msgspec.json.encode(reading) + b"\n")
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror or error}.") from error


def _write(file: io.FileIO, end: int, line: bytes) -> None:
    """The line from `end` on, which is then the file's last; nothing of it where that fails."""
    file.truncate(end)
    file.seek(end)
    try:
        rest = memoryview(line)
        while rest:  # what does not fit in one write tells why in the next
            rest = rest[file.write(rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(end)
        raise


def read_readings(directory: Path) -> tuple[YardstickReading, ...]:
    """All readings of a run, in order, without a last line that was cut off; none where it has none.

    Raises:
        RunReadError: not a regular file, or a line that is not a reading (the message has its number).
    """
    path, found = directory / FILE, []
    for number, line, complete in lines_of(path, LONGEST):
        if not complete:
            break
        try:
            found.append(decode_as(line, YardstickReading))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RunReadError(f"{path} line {number}: {error}") from error
    return tuple(found)
