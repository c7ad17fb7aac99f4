"""The children of a process of this machine, as proc(5) shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Fields of /proc/PID/stat from the state on: state, number of threads, time of the start, and status for wait(2).
_STATE, _THREADS, _STARTED, _STATUS = 0, 17, 19, 49


@dataclass(frozen=True)
class Child:
    """A child process. `ended`: with all its threads, and its parent has not waited for it yet (a zombie).

    `status` is then what wait(2) will tell; 0 also where this user may not know it. `started` (clock ticks since boot)
    distinguishes it from a later process of the same number.
    """

    number: int
    ended: bool
    status: int
    started: int


def children(number: int) -> Iterator[Child]:
    """The children of a process; none where it is gone, or where the kernel does not list them."""
    with contextlib.suppress(OSError):
        for listed in Path(f"/proc/{number}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                yield from filter(None, map(_child, listed.read_text(encoding="ascii").split()))


def descendants(number: int) -> list[Child]:
    """The children of a process, their children, and so on."""
    found = list(children(number))
    for child in found:  # which becomes longer meanwhile
        found.extend(children(child.number))
    return found


def runs(child: Child) -> bool:
    """Whether a process that was seen before is there, whatever its parent is now."""
    now = _child(str(child.number))
    return now is not None and now.started == child.started and not now.ended


def _child(number: str) -> Child | None:
    """None: it is gone meanwhile."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    ended = fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1  # a leader whose threads still run is a zombie too
    return Child(int(number), ended, int(fields[_STATUS]) if ended else 0, int(fields[_STARTED]))


def command_line(number: int) -> bytes:
    """The words of its command, each with a NUL behind it; empty where it is gone or has ended."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""
