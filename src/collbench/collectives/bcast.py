"""bcast: the root's buffer, copied to every rank."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce, whole


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """The root's input, on every rank."""
    return inputs[root][:]


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Bcast: one buffer on every rank, so always in place."""
    return Prepared(
        input=a.recv if a.rank == a.root else None,
        output=a.recv,
        python=partial(a.comm.Bcast, a.spec(a.recv), a.root),
        c=(C("MPI_Bcast", a.recv, a.count, a.datatype, a.root, a.comm),),
        in_place=True,
        untouched=a.rank == a.root,
    )


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclBroadcast, which has an out-of-place form on the root."""
    at_root = a.rank == a.root
    source = a.send if at_root and not a.in_place else a.recv
    numbers = (a.count, a.datatype, a.root)
    return Prepared(
        input=source if at_root else None,
        output=a.recv,
        python=partial(a.comm.broadcast, source.address, a.recv.address, *numbers, a.stream),
        c=(C("ncclBroadcast", source, a.recv, *numbers, a.comm, a.stream),),
        in_place=a.in_place,
    )


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.broadcast, in place as MPI's."""
    return Prepared(
        input=a.recv if a.rank == a.root else None,
        output=a.recv,
        python=partial(a.dist.broadcast, a.recv, a.root),
        in_place=True,
    )


ROW = Collective(
    name="bcast",
    title="Broadcast",
    summary="copy the root's buffer to every rank",
    blocks=lambda rank, ranks, root: Blocks(int(rank == root), 1),
    bus_factor=whole,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
    rooted=True,
)
