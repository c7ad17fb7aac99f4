"""The nccl dialect: what a row gets from NCCL."""

from __future__ import annotations

import contextlib
import ctypes
from functools import cached_property, partial
from typing import Any

from collbench.bindings.gpu.device import Device, DeviceBlocks, no_room, refuse_dtype
from collbench.bindings.gpu.nccl_library import DATATYPE, OP, Communicator, Nccl
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import C, Collective, Step
from collbench.errors import LibraryError, Unsupported
from collbench.schema.dtypes import DTYPES


class NcclArguments:
    """See `collbench.collectives.dialects.NcclDialectArguments`."""

    def __init__(
        self,
        nccl: Nccl,
        comm: Communicator,
        device: Device,
        case: CollectiveCase,
        row: Collective,
        count: int,
        rank: int,
    ) -> None:
        refuse_dtype(tuple(DATATYPE), case.dtype, "NCCL")
        self.rank, self.ranks, self.root = rank, case.ranks, case.root or 0
        self.count, self.in_place = count, case.in_place
        self.comm, self.stream = comm, device.stream
        self.datatype, self.op = DATATYPE[case.dtype], OP[case.op or "sum"]
        self._nccl, self._device, self._case = nccl, device, case
        self._blocks = row.blocks(rank, case.ranks, self.root)

    def buffer(self, blocks: int) -> DeviceBlocks:
        """Device memory [blocks, count]; known to the communicator beforehand where the case says so."""
        size = blocks * self.count * DTYPES[self._case.dtype]
        known = self._case.registered and size > 0
        memory = Registered(self._nccl, self.comm, self._device, size) if known else self._device.allocate(size)
        return DeviceBlocks(self._device, memory, blocks, self.count, self._case.dtype)

    @cached_property
    def send(self) -> Any:
        """[blocks.send, count]."""
        return self.buffer(self._blocks.send)

    @cached_property
    def recv(self) -> Any:
        """[blocks.recv, count]."""
        return self.buffer(self._blocks.recv)

    def send_to(self, blocks: DeviceBlocks, peer: int) -> Step:
        """ncclSend."""
        numbers = (len(blocks) * self.count, self.datatype, peer)
        python = partial(self.comm.send, blocks.address, *numbers, self.stream)
        return Step(python, (C("ncclSend", blocks, *numbers, self.comm, self.stream),))

    def recv_from(self, blocks: DeviceBlocks, peer: int) -> Step:
        """ncclRecv."""
        numbers = (len(blocks) * self.count, self.datatype, peer)
        python = partial(self.comm.recv, blocks.address, *numbers, self.stream)
        return Step(python, (C("ncclRecv", blocks, *numbers, self.comm, self.stream),))

    def grouped(self, *steps: Step) -> Step:
        """Between ncclGroupStart and ncclGroupEnd, which is called after a failure too.

        A group that stays open takes in every later call of this thread, and none of them is ever launched.
        """
        start, end = self._nccl.group_start, self._nccl.group_end
        pythons = tuple(step.python for step in steps)

        def python() -> None:
            start()
            try:
                for one in pythons:
                    one()
            except BaseException:
                with contextlib.suppress(RuntimeError):  # it repeats the error
                    end()
                raise
            end()

        close = C("ncclGroupEnd")
        calls = (C(call.function, *call.arguments, after_error=close) for step in steps for call in step.c)
        return Step(python, (C("ncclGroupStart"), *calls, close))


class Registered:
    """Device memory from NCCL itself, that a communicator knows beforehand, until it is let go. `Memory`."""

    def __init__(self, nccl: Nccl, comm: Communicator, device: Device, size: int) -> None:
        self._device, self._size = device, size
        self._nccl, self._owner, self._comm = nccl, comm, ctypes.c_void_p(comm.address)
        self._pointer, self._handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("ncclMemAlloc", ctypes.byref(self._pointer), ctypes.c_size_t(size))
        self.address = self._pointer.value or 0
        self._call("ncclCommRegister", self._comm, self._pointer, ctypes.c_size_t(size), ctypes.byref(self._handle))

    def _call(self, function: str, *arguments: Any) -> None:
        code = self._nccl.call(function, *arguments)
        if code is None:
            version = ".".join(map(str, self._nccl.version))
            raise Unsupported(f"NCCL {version} registers no buffers ({function}); 2.19 and later do")
        if code and self._device.free()[0] < self._size:
            raise MemoryError(no_room(self._device, self._size))
        if code:
            raise LibraryError(f"{function} returned error {code}")

    def __del__(self) -> None:
        if self._handle and not self._owner.freed:
            self._nccl.call("ncclCommDeregister", self._comm, self._handle)
        if self._pointer:
            self._nccl.call("ncclMemFree", self._pointer)
