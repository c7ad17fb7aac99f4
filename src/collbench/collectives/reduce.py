"""reduce: every rank contributes a buffer, the root gets the reduction of all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce, whole


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """The reduction of all inputs, on the root."""
    return reduce(blocks[:] for blocks in inputs) if rank == root else None


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Reduce."""
    at_root = a.rank == a.root
    recv = a.recv if at_root else None
    in_place = a.in_place and at_root
    source = a.IN_PLACE if in_place else a.send
    return Prepared(
        input=recv if in_place else a.send,
        output=recv,
        python=partial(a.comm.Reduce, a.spec(source), a.spec(recv), a.op, a.root),
        c=(C("MPI_Reduce", source, recv, a.count, a.datatype, a.op, a.root, a.comm),),
        in_place=a.in_place,
    )


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclReduce; the other ranks' result is a null pointer."""
    recv = a.recv if a.rank == a.root else None
    source = recv if a.in_place and recv is not None else a.send
    numbers = (a.count, a.datatype, a.op, a.root)
    return Prepared(
        input=source,
        output=recv,
        python=partial(a.comm.reduce, source.address, 0 if recv is None else recv.address, *numbers, a.stream),
        c=(C("ncclReduce", source, recv, *numbers, a.comm, a.stream),),
        in_place=a.in_place,
    )


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.reduce, which works in place and may overwrite the buffers of the other ranks too."""
    return Prepared(
        input=a.send,
        output=a.send if a.rank == a.root else None,
        python=partial(a.dist.reduce, a.send, a.root, a.op),
        in_place=True,
    )


ROW = Collective(
    name="reduce",
    title="Reduce",
    summary="reduce over all ranks, result on the root",
    blocks=lambda rank, ranks, root: Blocks(1, int(rank == root)),
    bus_factor=whole,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
    reduces=True,
    rooted=True,
)
