"""Backend `mpi-staged`: data on GPUs, copied to host memory, communicated by any MPI, and copied back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from collbench.bindings.gpu.assignment import DeviceMpiBackend, DeviceMpiSession
from collbench.bindings.gpu.device import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Device,
    DeviceBlocks,
    buffer_of,
    copy_step,
    host_blocks,
    wait_step,
)
from collbench.bindings.mpi import HostMpiArguments, native_call
from collbench.bindings.spec import Buffer, Operation, as_parts, binder_of, first_of, make_call, operation_of
from collbench.collectives.row import Array, Collective, CollectiveCase, Part, Prepared, part

#: The parts of an operation, in their order.
TO_HOST, COMMUNICATION, TO_DEVICE = "device to host", "communication", "host to device"


class StagedArguments(HostMpiArguments):
    """`MpiArguments` in host memory; on a rank with a device every buffer has a twin there."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int, device: Device | None) -> None:
        super().__init__(mpi, case, row, count)
        self._case, self._device = case, device
        self._twins: list[tuple[Array, DeviceBlocks]] = []

    def buffer(self, blocks: int) -> Array:
        pageable = partial(super().buffer, blocks)
        array = host_blocks(self._device, self._case, blocks, self.count, pageable)
        if self._device is not None:
            memory = self._device.allocate(array.nbytes)
            self._twins.append((array, DeviceBlocks(self._device, memory, blocks, self.count, self.dtype)))
        return array

    def twin(self, view: Array) -> DeviceBlocks:
        """The same blocks on the device, of a buffer or a slice of one."""
        for whole, twin in self._twins:
            if view.nbytes == 0:  # NumPy gives no address inside an empty array
                return DeviceBlocks(twin.device, twin.memory, len(view), self.count, self.dtype)
            offset = view.ctypes.data - whole.ctypes.data
            if offset >= 0 and offset + view.nbytes <= whole.nbytes:
                first = offset // twin.block_size if twin.block_size else 0
                return twin[first : first + view.shape[0]]
        raise AssertionError("a binder used a buffer that its arguments did not make")

    def access(self, view: Array) -> Buffer:
        return buffer_of(view if self._device is None else self.twin(view))


def staged_parts(prepared: Prepared, arguments: StagedArguments, device: Device | None) -> tuple[Part, ...]:
    """The row's call between the copies that this rank's input and result need."""
    sent = [] if prepared.input is None or device is None else [prepared.input]
    received = [] if prepared.untouched or device is None else list(as_parts(prepared.output))
    out = [(view.ctypes.data, arguments.twin(view).address, view.nbytes, DEVICE_TO_HOST) for view in sent]
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


class StagedSession(DeviceMpiSession):
    """One rank, with a GPU or as parameter server without one."""

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        self.assigned.refuse(row)
        device = self.device
        arguments = StagedArguments(self._mpi, case, row, count, device)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        if row.moves_data:
            prepared = replace(prepared, parts=staged_parts(prepared, arguments, device))
        symbols = first_of(partial(native_call, self._mpi), None if device is None else device.native)
        call = make_call(prepared, symbols, (arguments,))
        return operation_of(prepared, call, arguments.blocks_held, arguments.access)


class MpiStagedBackend(DeviceMpiBackend):
    """See the module."""

    name = "mpi-staged"
    summary = "MPI on host memory, with copies from and to the GPUs"
    axes: frozenset[str] = frozenset({"staging"})
    session = StagedSession


BACKEND = MpiStagedBackend()
