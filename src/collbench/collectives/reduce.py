"""reduce: every rank contributes a buffer, the root gets the reduction of all."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments, nccl_step
from collbench.collectives.row import Blocks, C, Collective, Prepared, whole


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Reduce."""
    at_root = a.rank == a.root
    recv = a.recv if at_root else None
    in_place = a.in_place and at_root
    source = a.IN_PLACE if in_place else a.send
    python = partial(a.comm.Reduce, a.spec(source), a.spec(recv), a.op, a.root)
    call = C("MPI_Reduce", source, recv, a.count, a.datatype, a.op, a.root, a.comm)
    return Prepared(recv if in_place else a.send, recv, python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclReduce; the other ranks' result is a null pointer."""
    recv = a.recv if a.rank == a.root else None
    source = recv if a.in_place and recv is not None else a.send
    step = nccl_step(a, "ncclReduce", a.comm.reduce, source, recv, a.count, a.datatype, a.op, a.root)
    return Prepared(source, recv, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.reduce, which works in place and may overwrite the buffers of the other ranks too."""
    output = a.send if a.rank == a.root else None
    return Prepared(a.send, output, partial(a.dist.reduce, a.send, a.root, a.op), in_place=True)


ROW = Collective(
    name="reduce", title="Reduce", summary="reduce over all ranks, result on the root",
    blocks=lambda rank, ranks, root: Blocks(1, int(rank == root)), bus_factor=whole,
    meaning=lambda rank, inputs, root, reduce: reduce(blocks[:] for blocks in inputs) if rank == root else None,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, reduces=True, rooted=True,
)  # fmt: skip
