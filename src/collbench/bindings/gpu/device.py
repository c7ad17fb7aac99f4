"""What a backend asks of a GPU, whichever package answers, and the buffers that rows get from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from collbench.bindings.operations import HostBuffer, as_parts, numpy_dtype
from collbench.bindings.spec import Buffer
from collbench.collectives.row import Array, C, CallStep, CollectiveCase, Prepared
from collbench.errors import Unsupported
from collbench.schema.axes import DTYPES
from collbench.schema.manifest import Gpu
from collbench.timing.loop import Native, Stage, Stopwatch
from collbench.units import format_bytes

#: cudaMemcpyKind, of the CUDA runtime's driver_types.h.
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class Memory(Protocol):
    """Device memory, freed with this object."""

    @property
    def address(self) -> int:
        """Where it begins, in the device's address space."""


class Device(Protocol):
    """One GPU, with a stream of its own in which everything happens in order."""

    @property
    def facts(self) -> Gpu:
        """What the manifest says of this GPU."""

    @property
    def stream(self) -> int:
        """The stream's handle, a cudaStream_t."""

    def allocate(self, size: int) -> Memory:
        """`size` bytes.

        Raises:
            MemoryError: less is free; the message says how much.
        """

    def free(self) -> tuple[int, int]:
        """(free, total) bytes of its memory."""

    def pinned(self, size: int) -> Array:
        """Page-locked host memory, uint8 [size].

        Raises:
            MemoryError: the system cannot page-lock that much.
        """

    def native(self, call: C) -> Native | None:
        """A call of the CUDA runtime as words; None where it does not have the function."""

    def copy(self, target: int, source: int, size: int, kind: int) -> None:
        """Enqueue a copy of `size` bytes between two addresses; returns at once where the memory is page-locked."""

    def synchronize(self) -> None:
        """Wait until everything enqueued is done."""

    def read(self, address: int, into: Array) -> None:
        """Copy device memory to the host at once, outside the stream: what is still enqueued is not waited for."""

    def write(self, address: int, values: Array) -> None:
        """Copy contiguous host memory to the device, outside the stream. Complete on return."""

    def array(self, address: int, count: int, dtype: str, keep: object) -> Any:
        """[count] elements at an address as an array of this package (CuPy); bfloat16 as uint16."""

    def stopwatch(self) -> Stopwatch:
        """Two events of the stream."""

    def capture(self, issue: Callable[[], object], times: int) -> Stage:
        """A graph of what `issue` enqueues when called `times` times, as a stage that launches it.

        Raises:
            Unsupported: something in it cannot be captured.
        """


class DeviceBlocks:
    """[blocks, count] elements in device memory: can be sliced along the blocks, and accessed by copies alone."""

    def __init__(self, device: Device, memory: Memory, blocks: int, count: int, dtype: str, offset: int = 0) -> None:
        self.device, self.memory = device, memory
        self.shape = (blocks, count)
        self.name = dtype
        self.offset = offset  # in bytes

    @property
    def address(self) -> int:
        """Of the first element."""
        return self.memory.address + self.offset

    @property
    def size(self) -> int:
        return self.shape[0] * self.block_size

    @property
    def block_size(self) -> int:
        return self.shape[1] * DTYPES[self.name]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, blocks: slice) -> DeviceBlocks:
        first, stop, _ = blocks.indices(self.shape[0])
        offset = self.offset + first * self.block_size
        return DeviceBlocks(self.device, self.memory, max(stop - first, 0), self.shape[1], self.name, offset)

    def __array__(self, *_: object) -> Array:
        raise TypeError("this is device memory; copy it to the host first")

    def array(self) -> Any:
        """The same memory as an array of the GPU package."""
        return self.device.array(self.address, self.shape[0] * self.shape[1], self.name, self.memory)


class DeviceBuffer:
    """`Buffer` over device memory, by copies outside the stream.

    In the stream they would come after an operation that was not waited for, and a missing wait would go unnoticed.
    """

    def __init__(self, blocks: DeviceBlocks) -> None:
        self._blocks = blocks
        self.shape = blocks.shape
        self.dtype = numpy_dtype(blocks.name)

    def _address(self, block: int, start: int) -> int:
        return self._blocks.address + block * self._blocks.block_size + start * self.dtype.itemsize

    def load(self, block: int, start: int, stop: int) -> Array:
        values = np.empty(stop - start, self.dtype)
        self._blocks.device.read(self._address(block, start), values)
        return values

    def store(self, block: int, start: int, values: Array) -> None:
        self._blocks.device.write(self._address(block, start), np.ascontiguousarray(values, self.dtype))


def device_buffers(prepared: Prepared) -> tuple[Buffer | None, tuple[Buffer, ...]]:
    """Where a row's input is written and its result appears: on the device, or on a rank without one on the host."""
    source = None if prepared.input is None else _buffer(prepared.input)
    return source, tuple(_buffer(blocks) for blocks in as_parts(prepared.output))


def _buffer(blocks: DeviceBlocks | Array) -> Buffer:
    return DeviceBuffer(blocks) if isinstance(blocks, DeviceBlocks) else HostBuffer(blocks)


def no_room(device: Device, size: int) -> str:
    """The message of a MemoryError."""
    free, total = device.free()
    return (
        f"{device.facts.name} {device.facts.uuid}: {format_bytes(size)} are asked for, {format_bytes(free)} of "
        f"{format_bytes(total)} are free"
    )


def refuse_dtype(supported: tuple[str, ...], dtype: str, who: str) -> None:
    """Raises `Unsupported` unless the dtype is known."""
    if dtype not in supported:
        raise Unsupported(f"{who} has no {dtype} (it has {', '.join(supported)})")


def host_blocks(
    device: Device | None, case: CollectiveCase, blocks: int, count: int, pageable: Callable[[], Array]
) -> Array:
    """[blocks, count] in pinned or pageable host memory, as the case says; on a rank without a GPU always pageable."""
    if device is None or case.staging != "pinned":
        return pageable()
    raw = device.pinned(blocks * count * DTYPES[case.dtype])
    return raw.view(numpy_dtype(case.dtype)).reshape(blocks, count)


def copy_step(device: Device, target: int, source: int, size: int, kind: int) -> CallStep:
    """A copy between two addresses, in the stream."""
    what = (target, source, size, kind)
    return CallStep(partial(device.copy, *what), (C("cudaMemcpyAsync", *what, device.stream),))


def wait_step(device: Device) -> CallStep:
    """Until everything in the stream is done."""
    return CallStep(device.synchronize, (C("cudaStreamSynchronize", device.stream),))
