"""Buffers in host memory, and how much of it is free."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, Collective
from collbench.machine import cgroup
from collbench.schema.axes import DTYPES

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
    limits = [_meminfo_available(), cgroup.memory_left()]
    return min((limit for limit in limits if limit is not None), default=None)


def _meminfo_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


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
