"""Collectives with a server on nccl: messages over MPI between the server's host memory and the chief's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from collbench.bindings.gpu.device import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Device,
    DeviceBlocks,
    copy_step,
    host_blocks,
    wait_step,
)
from collbench.bindings.gpu.nccl import Communicator, Nccl, NcclArguments
from collbench.bindings.host_buffers import HostArguments, page_aligned
from collbench.bindings.mpi.arguments import LARGEST_COUNT
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, C, Collective, Step
from collbench.errors import Unsupported
from collbench.schema.choices import DTYPES

#: Tag of the messages between server and chief.
TAG = 27

#: MPI's datatypes by item size: messages between server and chief are not reduced.
_CARRIED = {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T", 8: "UINT64_T"}


def chief_of(root: int) -> int:
    """The first worker, where `root` is the server."""
    return int(root == 0)


class ServerLink:
    """Messages between the server and the chief, as either of them."""

    def __init__(self, mpi: Any, case: CollectiveCase, count: int, rank: int) -> None:
        if max(1, case.ranks - 1) * count > LARGEST_COUNT:
            raise Unsupported(
                f"{count} elements of each worker in one message; MPI's int counts end at {LARGEST_COUNT}"
            )
        server = case.root or 0
        self._other = chief_of(server) if rank == server else server
        self._mpi, self._world, self._itemsize = mpi, mpi.COMM_WORLD, DTYPES[case.dtype]

    def send(self, blocks: Array) -> Step:
        """MPI_Send."""
        return self._pass(self._world.Send, "MPI_Send", blocks)

    def recv(self, blocks: Array) -> Step:
        """MPI_Recv."""
        return self._pass(self._world.Recv, "MPI_Recv", blocks, self._mpi.Status())

    def _pass(self, python: Callable[..., object], function: str, blocks: Array, *status: Any) -> Step:
        datatype = getattr(self._mpi, _CARRIED[self._itemsize])
        raw = blocks.view(f"u{self._itemsize}")
        call = C(function, raw, raw.size, datatype, self._other, TAG, self._world, *status)
        return Step(partial(python, [raw, datatype], self._other, TAG), (call,))


class ServerArguments(HostArguments):
    """See `collbench.collectives.dialects.ServedArguments`: of the server, which has host memory and its link."""

    serving, chief = True, False

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int, rank: int) -> None:
        super().__init__(case, row, count, rank)
        link = ServerLink(mpi, case, count, rank)
        self.link_send, self.link_recv = link.send, link.recv


class WorkerArguments(NcclArguments):
    """See `collbench.collectives.dialects.ServedArguments`: of a worker. `rank` is the world's."""

    serving = False

    def __init__(
        self,
        mpi: Any,
        nccl: Nccl,
        comm: Communicator,
        device: Device,
        case: CollectiveCase,
        row: Collective,
        count: int,
        rank: int,
    ) -> None:
        super().__init__(nccl, comm, device, case, row, count, rank)
        self.chief = rank == chief_of(self.root)
        self.blocks_held = 0
        link = ServerLink(mpi, case, count, rank)
        self.link_send, self.link_recv = link.send, link.recv

    def _pageable(self, blocks: int) -> Array:
        return page_aligned(blocks, self.count, self._case.dtype)

    def landing(self, blocks: int) -> Array:
        """Pinned or pageable, as the case says."""
        self.blocks_held += blocks
        return host_blocks(self._device, self._case, blocks, self.count, partial(self._pageable, blocks))

    def copy_in(self, target: DeviceBlocks, source: Array) -> Step:
        """Host memory to device memory."""
        return copy_step(self._device, target.address, source.ctypes.data, source.nbytes, HOST_TO_DEVICE)

    def copy_out(self, target: Array, source: DeviceBlocks) -> Step:
        """Device memory to host memory."""
        return copy_step(self._device, target.ctypes.data, source.address, target.nbytes, DEVICE_TO_HOST)

    def wait(self) -> Step:
        """Until everything in the stream is done."""
        return wait_step(self._device)
