"""The children of a process of this machine, as proc(5) shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Fields of /proc/PID/stat from the state on: the state, the number of threads, and the status for wait(2).
_STATE, _THREADS, _STATUS = 0, 17, 49


@dataclass(frozen=True)
class Child:
    """A child process. `ended`: with all its threads, and its parent has not waited for it yet (a zombie).

    `status` is then what wait(2) will tell; 0 also where this user may not know it.
    """

    number: int
    ended: bool
    status: int


def children(number: int) -> Iterator[Child]:
    """The children of a process; none where it is gone, or where the kernel does not list them."""
    with contextlib.suppress(OSError):
        for listed in Path(f"/proc/{number}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                yield from filter(None, map(_child, listed.read_text(encoding="ascii").split()))


def _child(number: str) -> Child | None:
    """None: it is gone meanwhile."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    ended = fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1  # a leader whose threads still run is a zombie too
    return Child(int(number), ended, int(fields[_STATUS]) if ended else 0)


def command_line(number: int) -> bytes:
    """The words of its command, each with a NUL behind it; empty where it is gone or has ended."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""
