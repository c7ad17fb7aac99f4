"""From a case to an operation: buffers in host memory, and how much of it is free; every C call as machine words."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from collbench.bindings.spec import Backend
from collbench.collectives.row import Array, Binder, C, Collective, CollectiveCase, Part, Prepared
from collbench.errors import Unsupported
from collbench.machine import cgroup
from collbench.schema.axes import DTYPES
from collbench.timing.loop import Call, Halt, Native, Stage, Stopwatch

PAGE = 4096

#: How much of what is free the buffers may take; the rest is the library's.
USABLE_SHARE = 0.95


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def page_aligned(blocks: int, count: int, dtype: str) -> Array:
    """Uninitialised [blocks, count] that begins on a page, as MPI benchmarks in C allocate."""
    size = blocks * count * DTYPES[dtype]
    raw = np.empty(size + PAGE, np.uint8)
    offset = -raw.ctypes.data % PAGE
    return raw[offset : offset + size].view(numpy_dtype(dtype)).reshape(blocks, count)


def available_bytes() -> int | None:
    """What can be allocated without swapping, within the cgroup's limit; None where the kernel does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    free = cgroup.memory_left()
    return min((*limits, *(() if free is None else (free,))), default=None)


class HostArguments:
    """The part of `Arguments` that every backend with host buffers shares: NumPy buffers, allocated when asked for."""

    def __init__(self, case: CollectiveCase, row: Collective, count: int, rank: int) -> None:
        self.rank = rank
        self.ranks = case.ranks
        self.root = case.root or 0
        self.count = count
        self.in_place = case.in_place
        self.blocks_held = 0
        self.dtype = case.dtype
        self._blocks = row.blocks(rank, case.ranks, self.root)

    def buffer(self, blocks: int) -> Array:
        """[blocks, count] on a page boundary."""
        self.blocks_held += blocks
        return page_aligned(blocks, self.count, self.dtype)

    @cached_property
    def send(self) -> Array:
        return self.buffer(self._blocks.send)

    @cached_property
    def recv(self) -> Array:
        return self.buffer(self._blocks.recv)


class HostBuffer:
    """`Buffer` over a NumPy array [blocks, count]."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape: tuple[int, int] = (array.shape[0], array.shape[1])
        self.dtype = array.dtype

    def load(self, block: int, start: int, stop: int) -> Array:
        view: Array = self.array[block, start:stop]
        return view

    def store(self, block: int, start: int, values: Array) -> None:
        self.array[block, start : start + len(values)] = values


def as_parts(output: Any) -> tuple[Any, ...]:
    """A row's output as a tuple of arrays of its dialect."""
    if output is None:
        return ()
    return output if isinstance(output, tuple) else (output,)


def on_host(array: Array | None) -> HostBuffer | None:
    return None if array is None else HostBuffer(array)


def binder_of(backend: Backend, row: Collective, dialect: str = "", title: str = "") -> Binder:
    """What makes a backend's call of a row: its own binder, else the row's for the dialect (`title` in messages).

    Raises:
        Unsupported: there is neither.
    """
    binder = backend.binders.get(row.name) or row.dialects.get(dialect)
    if binder is None:
        raise Unsupported(f"{row.name} has no {title or backend.name} form")
    return binder


class Symbols(Protocol):
    """The C functions of a library, or of several."""

    def native(self, call: C) -> Native | None:
        """The call as words; None where no library here has the function."""


def make_call(
    prepared: Prepared,
    symbols: Symbols,
    keep: tuple[object, ...],
    completion: Stage | None = None,
    stopwatch: Stopwatch | None = None,
    halt: Halt | None = None,
) -> Call:
    """The call of a prepared row, in both forms. `halt`: the session's, where it may take its library down."""
    missing = [call.function for part in prepared.all_parts for call in part.c or () if symbols.native(call) is None]
    reason = f"{missing[0]} was not found in the library" if missing else None
    stages = tuple(stage_of(part, symbols) for part in prepared.all_parts)
    return Call(stages, completion, stopwatch, reason, (prepared, *keep), halt or Halt())


def stage_of(part: Part, symbols: Symbols) -> Stage:
    """A part with its C calls as words."""
    if part.c is None:
        return Stage(part.python, None, part.name)
    calls = []
    for call in part.c:
        if (native := symbols.native(call)) is None:
            return Stage(part.python, None, part.name)
        after = None if call.after_error is None else symbols.native(call.after_error)
        calls.append(native if call.after_error is None else replace(native, after_error=after))
    return Stage(part.python, tuple(calls), part.name)


class AllOf:
    """Several libraries as one: a function is taken from the first that has it. None is one that is not used."""

    def __init__(self, *libraries: Symbols | None) -> None:
        self._libraries = tuple(library for library in libraries if library is not None)

    def native(self, call: C) -> Native | None:
        calls = (library.native(call) for library in self._libraries)
        return next((native for native in calls if native is not None), None)
