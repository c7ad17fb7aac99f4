"""What a backend hands to the timing loop."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collbench.timing.halt import Halt

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
