"""The mpi dialect with data on a GPU and communication in host memory: every buffer has a twin on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE, Device, DeviceBlocks, device_buffers
from collbench.bindings.host_buffers import as_parts, numpy_dtype
from collbench.bindings.mpi.arguments import HostMpiArguments
from collbench.bindings.spec import Buffer
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, C, Collective, Part, Prepared, Step, part
from collbench.schema.dtypes import DTYPES

#: The parts of an operation, in their order.
TO_HOST, COMMUNICATION, TO_DEVICE = "device to host", "communication", "host to device"


def host_blocks(
    device: Device | None, case: CollectiveCase, blocks: int, count: int, pageable: Callable[[], Array]
) -> Array:
    """[blocks, count] in host memory of the kind that the case asks for; a rank without a GPU has the pageable kind."""
    if device is None or case.staging != "pinned":
        return pageable()
    raw = device.pinned(blocks * count * DTYPES[case.dtype])
    return raw.view(numpy_dtype(case.dtype)).reshape(blocks, count)


class StagedArguments(HostMpiArguments):
    """`MpiArguments` in host memory; on a rank with a device every buffer has a twin there."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int, device: Device | None) -> None:
        super().__init__(mpi, case, row, count)
        self._case, self._device = case, device
        self._twins: list[tuple[Array, DeviceBlocks]] = []

    def buffer(self, blocks: int) -> Array:
        """[blocks, count] in host memory."""
        found = host_blocks(
            self._device, self._case, blocks, self.count, lambda: super(StagedArguments, self).buffer(blocks)
        )
        if self._device is not None:
            memory = self._device.allocate(found.nbytes)
            self._twins.append((found, DeviceBlocks(self._device, memory, blocks, self.count, self.dtype)))
        return found

    def twin(self, view: Array) -> DeviceBlocks:
        """The same blocks on the device, of a buffer or a slice of one."""
        for whole, twin in self._twins:
            if view.nbytes == 0:  # NumPy gives no address inside an empty array
                return DeviceBlocks(twin.device, twin.memory, len(view), self.count, self.dtype)
            offset = view.ctypes.data - whole.ctypes.data
            if offset >= 0 and offset + view.nbytes <= whole.nbytes:
                first = offset // twin.block_size if twin.block_size else 0
                return twin[first : first + view.shape[0]]
        raise AssertionError("a row made a buffer without the arguments")


def staged_parts(prepared: Prepared, arguments: StagedArguments, device: Device | None) -> tuple[Part, ...]:
    """The row's call between the copies that this rank's input and result need."""
    given = [] if prepared.input is None or device is None else [prepared.input]
    received = [] if prepared.untouched or device is None else list(as_parts(prepared.output))
    out = [(view.ctypes.data, arguments.twin(view).address, view.nbytes, DEVICE_TO_HOST) for view in given]
    back = [(arguments.twin(view).address, view.ctypes.data, view.nbytes, HOST_TO_DEVICE) for view in received]
    return (
        copying(TO_HOST, device, out),
        Part(COMMUNICATION, prepared.python, prepared.c),
        copying(TO_DEVICE, device, back),
    )


def copying(name: str, device: Device | None, copies: list[tuple[int, int, int, int]]) -> Part:
    """Copies (target, source, bytes, kind) as a part that is complete when it ends; empty ones are left out."""
    copies = [copy for copy in copies if copy[2] > 0]
    if device is None or not copies:
        return part(name)
    return part(name, *(copy_step(device, *copy) for copy in copies), wait_step(device))


def copy_step(device: Device, target: int, source: int, size: int, kind: int) -> Step:
    """A copy between two addresses, in the stream."""
    what = (target, source, size, kind)
    return Step(partial(device.copy, *what), (C("cudaMemcpyAsync", *what, device.stream),))


def wait_step(device: Device) -> Step:
    """Until everything in the stream is done."""
    return Step(device.synchronize, (C("cudaStreamSynchronize", device.stream),))


def buffers_of(
    prepared: Prepared, arguments: StagedArguments, device: Device | None
) -> tuple[Buffer | None, tuple[Buffer, ...]]:
    """Where the input is written and the result appears: on the device, or on a rank without one on the host."""
    if device is None:
        return device_buffers(prepared)
    given = None if prepared.input is None else arguments.twin(prepared.input)
    return device_buffers(replace(prepared, input=given, output=tuple(map(arguments.twin, as_parts(prepared.output)))))
