"""Parameter-server flows and staged calls, step by step, as the paper's table has them (Choi et al. 2021)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.double.device import STREAM, DoubleDevice

from collbench import collectives
from collbench.backends import mpi_staged
from collbench.backends.mpi_cuda import CudaMpiArguments
from collbench.backends.nccl import ServerArguments, WorkerArguments, chief_of
from collbench.bindings.gpu.device import DeviceBlocks
from collbench.bindings.gpu.nccl import DATATYPE
from collbench.bindings.spec import HostBuffer, operation_of
from collbench.collectives.row import CollectiveCase, Part, Prepared
from collbench.schema.axes import Op
from collbench.timing.loop import Call

COUNT = 4
Flow = list[tuple[str, list[str]]]


class Comm:
    """A communicator that writes down its Python calls."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.address = 0xC0
        self.said: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.said.append(name)


def made_mpi(rank: int) -> Any:
    """As much of mpi4py.MPI as a row asks for."""
    names = ("FLOAT", "UINT8_T", "UINT16_T", "UINT32_T", "UINT64_T", "SUM", "IN_PLACE")
    return SimpleNamespace(
        COMM_WORLD=Comm(rank), DATATYPE_NULL=None, Status=object, **{name: name for name in names}
    )  # fmt: skip


def case(collective: str, ranks: int, root: int, in_place: bool = False) -> CollectiveCase:
    op: Op | None = "sum" if collectives.get(collective).reduces else None
    return CollectiveCase(
        collective=collective, backend="x", driver="native", thread_level="single", size=16, dtype="float32",
        op=op, root=root if collectives.get(collective).rooted else None, ranks=ranks, in_place=in_place,
        staging="pinned",
    )  # fmt: skip


def steps(parts: tuple[Part, ...]) -> Flow:
    """Names of the parts and of their C calls."""
    return [(part.name, [call.function for call in part.c or ()]) for part in parts]


def kinds(parts: tuple[Part, ...]) -> list[int]:
    """Directions of the copies: 1 into the device, 2 out of it."""
    return [call.arguments[3] for part in parts for call in part.c or () if call.function == "cudaMemcpyAsync"]


def on_nccl(collective: str, rank: int, root: int, ranks: int = 4) -> tuple[Prepared, Any]:
    mpi, row, one = made_mpi(rank), collectives.get(collective), case(collective, ranks, root)
    arguments: Any
    if rank == root:
        arguments = ServerArguments(mpi, one, row, COUNT, rank)
    else:
        nccl: Any = SimpleNamespace(version=(2, 30, 0))
        comm: Any = Comm(rank)
        arguments = WorkerArguments(mpi, nccl, comm, DoubleDevice("GPU-0"), one, row, COUNT, rank)
    return row.dialects["nccl"](arguments), arguments


LINK, GPUS, WAIT = "server link", "gpus", "cudaStreamSynchronize"


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize(
    ("collective", "server", "chief", "worker"),
    [
        ("ps_bcast", [(LINK, ["MPI_Send"]), (GPUS, [])],
         [(LINK, ["MPI_Recv"]), (GPUS, ["cudaMemcpyAsync", "ncclBroadcast", WAIT])],
         [(LINK, []), (GPUS, ["ncclBroadcast", WAIT])]),
        ("ps_gather", [(GPUS, []), (LINK, ["MPI_Recv"])],
         [(GPUS, ["ncclAllGather", "cudaMemcpyAsync", WAIT]), (LINK, ["MPI_Send"])],
         [(GPUS, ["ncclAllGather", WAIT]), (LINK, [])]),
    ],
)  # fmt: skip
def test_parts_and_calls_on_nccl(collective: str, root: int, server: Flow, chief: Flow, worker: Flow) -> None:
    assert chief_of(root) == (1 if root == 0 else 0)
    for rank in range(4):
        expected = server if rank == root else chief if rank == chief_of(root) else worker
        assert steps(on_nccl(collective, rank, root)[0].parts) == expected


def test_the_messages_of_ps_on_nccl() -> None:
    """Server and chief name each other, the same tag and the same number of elements; the copy goes the right way."""
    for collective, blocks, sender, kind in (("ps_bcast", 1, 0, 1), ("ps_gather", 3, 1, 2)):
        of_rank = {rank: on_nccl(collective, rank, 0)[0].parts for rank in (0, 1)}
        calls = {rank: next(c for part in parts for c in part.c or () if c.function.startswith("MPI_"))
                 for rank, parts in of_rank.items()}  # fmt: skip
        assert calls[sender].function == "MPI_Send"
        assert calls[1 - sender].function == "MPI_Recv"
        assert [calls[rank].arguments[3] for rank in (0, 1)] == [1, 0]
        assert calls[0].arguments[1] == calls[1].arguments[1] == blocks * COUNT
        assert calls[0].arguments[4] == calls[1].arguments[4]
        assert kinds(of_rank[1]) == [kind]
        assert kinds(of_rank[0]) == []


def test_the_broadcast_among_workers_starts_at_the_chief() -> None:
    prepared, arguments = on_nccl("ps_bcast", 3, 0)
    call = next(c for part in prepared.parts for c in part.c or () if c.function == "ncclBroadcast")
    assert call.arguments[2:5] == (COUNT, DATATYPE["float32"], 0)
    assert call.arguments[5] is arguments.comm
    assert call.arguments[6] == STREAM
    assert isinstance(prepared.output, DeviceBlocks)


def staged(collective: str, rank: int, root: int, in_place: bool = False) -> tuple[tuple[Part, ...], Any, Any]:
    row, one = collectives.get(collective), case(collective, 3, root, in_place)
    device = None if row.has_server and rank == root else DoubleDevice("GPU-0")
    arguments = mpi_staged.StagedArguments(made_mpi(rank), one, row, COUNT, device)
    prepared = row.dialects["mpi"](arguments)
    operation = operation_of(prepared, Call(()), 0, arguments.access)
    return mpi_staged.staged_parts(prepared, arguments, device), operation.input, operation.output


OUT, BACK, MPI = "device to host", "host to device", "communication"
COPY = ["cudaMemcpyAsync", "cudaStreamSynchronize"]


@pytest.mark.parametrize(
    ("collective", "rank", "before", "call", "after"),
    [
        ("ps_bcast", 0, [], "MPI_Bcast", []),
        ("ps_bcast", 1, [], "MPI_Bcast", COPY),
        ("ps_gather", 0, [], "MPI_Gather", []),
        ("ps_gather", 2, COPY, "MPI_Gather", []),
        ("allreduce", 0, COPY, "MPI_Allreduce", COPY),
        ("bcast", 0, COPY, "MPI_Bcast", []),
        ("bcast", 1, [], "MPI_Bcast", COPY),
        ("reduce", 0, COPY, "MPI_Reduce", COPY),
        ("reduce", 1, COPY, "MPI_Reduce", []),
        ("gather", 1, COPY, "MPI_Gather", []),
        ("scatter", 1, [], "MPI_Scatter", COPY),
    ],
)
def test_staged(collective: str, rank: int, before: list[str], call: str, after: list[str]) -> None:
    parts, given, received = staged(collective, rank, 0)
    assert steps(parts) == [(OUT, before), (MPI, [call]), (BACK, after)]
    assert kinds(parts) == [2] * bool(before) + [1] * bool(after)
    where = HostBuffer if collective.startswith("ps_") and rank == 0 else DeviceBlocks
    assert all(isinstance(buffer, where) for buffer in (given, *received) if buffer is not None)


def test_staged_copies_are_of_what_the_call_uses() -> None:
    """In place, allgather sends this rank's block of the result, and takes the whole back."""
    parts, *_ = staged("allgather", 1, 0, in_place=True)
    out, back = (part.c[0].arguments for part in (parts[0], parts[2]) if part.c)
    block = COUNT * 4
    assert out[2] == block
    assert back[2] == 3 * block
    assert out[0] - back[1] == block  # host: the second block
    assert out[1] - back[0] == block  # device: the same block


def test_cuda_aware_mpi_gets_device_memory_from_workers_and_host_memory_from_the_server() -> None:
    row = collectives.get("ps_bcast")
    for rank, kind in ((0, np.ndarray), (1, DeviceBlocks)):
        device = None if rank == 0 else DoubleDevice("GPU-0")
        arguments = CudaMpiArguments(made_mpi(rank), case("ps_bcast", 3, 0), row, COUNT, device)
        arguments.spec = lambda buffer: buffer  # type: ignore[method-assign]
        prepared = row.dialects["mpi"](arguments)
        assert prepared.c is not None
        assert [call.function for call in prepared.c] == ["MPI_Bcast"]
        assert isinstance(prepared.c[0].arguments[0], kind)


def test_device_memory_is_no_array() -> None:
    device = DoubleDevice("GPU-0")
    blocks = DeviceBlocks(device, device.allocate(32), 2, 4, "float32")
    with pytest.raises(TypeError, match="device memory"):
        np.asarray(blocks)
    assert (blocks[1:2].address, len(blocks[1:2]), blocks[1:2].block_size) == (blocks.address + 16, 1, 16)
