"""scatter: one block of the root to each rank, in rank order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce, ring_once


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """Block r of the root's input, on rank r."""
    return inputs[root][rank : rank + 1]


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Scatter."""
    at_root = a.rank == a.root
    send = a.send if at_root else None
    in_place = a.in_place and at_root
    target = a.IN_PLACE if in_place else a.recv
    return Prepared(
        input=send,
        output=a.send[a.root : a.root + 1] if in_place else a.recv,
        python=partial(a.comm.Scatter, a.spec(send), a.spec(target), a.root),
        c=(C("MPI_Scatter", send, a.count, a.datatype, target, a.count, a.datatype, a.root, a.comm),),
        in_place=a.in_place,
    )


def nccl(a: NcclDialectArguments) -> Prepared:
    """Sends and receives in one group, as in nccl-tests; in place the root's block is not moved."""
    at_root = a.rank == a.root
    stays = a.in_place and at_root
    own = a.send[a.root : a.root + 1] if stays else a.recv
    others = [rank for rank in range(a.ranks) if not (stays and rank == a.root)] if at_root else []
    sent = [a.send_to(a.send[rank : rank + 1], rank) for rank in others]
    step = a.grouped(*sent, *([] if stays else [a.recv_from(own, a.root)]))
    given = a.send if at_root else None
    return Prepared(input=given, output=own, python=step.python, c=step.c, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.scatter from views of one tensor."""
    a.out_of_place_only("scatter")
    at_root = a.rank == a.root
    parts = list(a.send.unbind(0)) if at_root else None
    return Prepared(
        input=a.send if at_root else None,
        output=a.recv,
        python=partial(a.dist.scatter, a.recv[0], parts, a.root),
    )


ROW = Collective(
    name="scatter",
    title="Scatter",
    summary="one block of the root to each rank",
    blocks=lambda rank, ranks, root: Blocks(ranks if rank == root else 0, 1),
    bus_factor=ring_once,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
    split=True,
    rooted=True,
)
