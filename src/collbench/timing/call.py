"""What a backend hands to the timing loop."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: How often a blocked thread looks again (s).
_NAP = 0.02

#: Values of the flag: make no further call; the thread that makes them is blocked.
_HALTED, _BLOCKED = 1, 2


class Halt:
    """Not set at first. `flag` is an int32 that the native loop reads before each call of the library."""

    def __init__(self) -> None:
        self.flag = bytearray(4)

    @property
    def is_set(self) -> bool:
        """Whether the library is being shut down."""
        return bool(self.flag[0])

    def set(self) -> None:
        """From now on, a thread that checks the flag blocks. Whoever sets it must end the process."""
        self.flag[0] = _HALTED

    def wait_for_caller(self, limit: float) -> bool:
        """After `set`: wait up to `limit` seconds until the thread that calls the library is blocked; whether it is.

        It may have checked just before the flag was set, and be about to call. A thread inside a call that waits for
        another rank never blocks here; only shutting the library down lets it out.
        """
        deadline = time.monotonic() + limit
        while self.flag[0] != _BLOCKED and time.monotonic() < deadline:
            time.sleep(_NAP / 10)
        return self.flag[0] == _BLOCKED

    def block_if_set(self) -> None:
        """Return at once, or, once set, not before the process ends: the caller would free what is still in use."""
        if self.is_set:
            self.flag[0] = _BLOCKED
        while self.is_set:
            time.sleep(_NAP)


#: A C function's address, then its arguments as machine words.
Words = tuple[int, ...]


@dataclass(frozen=True)
class Native:
    """One call of a C function. `explain` turns the error code that it returns into the library's words.

    `after_error` is called once if this one fails.
    """

    words: Words
    explain: Callable[[int], str] | None = None
    after_error: Native | None = None

    def __call__(self) -> int:
        """Make the call now, outside the loop; returns its error code."""
        address, *arguments = self.words
        return int(ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(arguments))(address)(*arguments))


@dataclass(frozen=True)
class Stage:
    """A part of an operation: a Python callable, and the C calls that do the same, one after the other.

    `native` is None where there is no C form, and empty where this rank has nothing to do. `name` says what the part
    does, where an operation has several.
    """

    python: Callable[[], object]
    native: tuple[Native, ...] | None = None
    name: str = ""


@dataclass(frozen=True)
class Stopwatch:
    """Times work on the device, between two events of the device's own clock.

    `start` and `stop` are issued around the work; after its completion `read` returns the milliseconds between them.
    Where there is a C form, `native_read` writes them to `cell` (float32 [1]).
    """

    start: Stage
    stop: Stage
    read: Callable[[], float]
    native_read: Native | None = None
    cell: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Call:
    """One operation: its stages, and what completes it on this rank.

    Without `completion` the last stage returns when this rank's part is complete. With it, stages only issue work, and
    many operations may be issued before one completion; the completion is part of every sample. `why_not_native` says
    why there is no C form. `keep` holds whatever must stay alive while the words are in use. `halt` is checked before
    every call, and before the loop returns.
    """

    stages: tuple[Stage, ...]
    completion: Stage | None = None
    stopwatch: Stopwatch | None = None
    why_not_native: str | None = None
    keep: tuple[object, ...] = ()
    halt: Halt = field(default_factory=Halt)

    @property
    def has_native(self) -> bool:
        """Whether every stage and the completion have a C form."""
        if self.completion is not None and self.completion.native is None:
            return False
        return all(stage.native is not None for stage in self.stages)

    @property
    def streams(self) -> bool:
        """Whether operations can be issued back to back and completed once."""
        return self.completion is not None and len(self.stages) == 1


def whole(python: Callable[[], object], *native: Native, why_not_native: str | None = None) -> Call:
    """An operation of one stage that is complete when it returns; without `native` it has no C form."""
    return Call((Stage(python, native or None),), why_not_native=why_not_native)


@dataclass(frozen=True)
class Messages:
    """Messages of 8 bytes between two ranks, by which hosts compare their clocks: `send` and `receive` block.

    `cell` is the int64 [1] that is sent, and into which is received. The native forms are the same as words of C calls,
    `explain` turns their error codes into the library's text, and `keep` is what they need alive.
    """

    cell: NDArray[np.int64]
    send: Callable[[int], object]
    receive: Callable[[int], object]
    native_send: Callable[[int], Words | None] = lambda rank: None
    native_receive: Callable[[int], Words | None] = lambda rank: None
    explain: Callable[[int], str] | None = None
    keep: object = None


@dataclass(frozen=True)
class Signals:
    """What a backend provides for gates: a barrier, and a broadcast of the root's 8 bytes, in Python and as words.

    `start` is the int64 [1] that `announce` broadcasts, in nanoseconds of the ranks' clock; `announces` is true on the
    root. `relax` is called while a rank spins: a library whose own threads finish the broadcast needs the core for
    them. `explain` turns an error code of the words into the library's text. Without `messages` ranks on several hosts
    have no common time.
    """

    barrier: Callable[[], object]
    announce: Callable[[], object]
    start: NDArray[np.int64]
    announces: bool
    relax: Callable[[], object] | None = None
    native_barrier: Words | None = None
    native_announce: Words | None = None
    explain: Callable[[int], str] | None = None
    messages: Messages | None = None
