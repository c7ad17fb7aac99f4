"""allreduce: every rank contributes a buffer, every rank gets the reduction of all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce, ring_twice


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """The reduction of all inputs, on every rank."""
    return reduce(blocks[:] for blocks in inputs)


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Allreduce."""
    source = a.IN_PLACE if a.in_place else a.send
    return Prepared(
        input=a.recv if a.in_place else a.send,
        output=a.recv,
        python=partial(a.comm.Allreduce, a.spec(source), a.spec(a.recv), a.op),
        c=(C("MPI_Allreduce", source, a.recv, a.count, a.datatype, a.op, a.comm),),
        in_place=a.in_place,
    )


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclAllReduce."""
    source = a.recv if a.in_place else a.send
    numbers = (a.count, a.datatype, a.op)
    return Prepared(
        input=source,
        output=a.recv,
        python=partial(a.comm.all_reduce, source.address, a.recv.address, *numbers, a.stream),
        c=(C("ncclAllReduce", source, a.recv, *numbers, a.comm, a.stream),),
        in_place=a.in_place,
    )


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.all_reduce, which works in place."""
    return Prepared(input=a.recv, output=a.recv, python=partial(a.dist.all_reduce, a.recv, a.op), in_place=True)


ROW = Collective(
    name="allreduce",
    title="Allreduce",
    summary="reduce over all ranks, result on every rank",
    blocks=lambda rank, ranks, root: Blocks(1, 1),
    bus_factor=ring_twice,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
    reduces=True,
)
