"""gather: every rank contributes a block, the root gets all blocks in rank order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce, ring_once


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """All inputs one after the other, on the root."""
    return np.concatenate([blocks[:] for blocks in inputs]) if rank == root else None


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Gather."""
    at_root = a.rank == a.root
    recv = a.recv if at_root else None
    in_place = a.in_place and at_root
    source = a.IN_PLACE if in_place else a.send
    return Prepared(
        input=a.recv[a.root : a.root + 1] if in_place else a.send,
        output=recv,
        python=partial(a.comm.Gather, a.spec(source), a.spec(recv), a.root),
        c=(C("MPI_Gather", source, a.count, a.datatype, recv, a.count, a.datatype, a.root, a.comm),),
        in_place=a.in_place,
    )


def nccl(a: NcclDialectArguments) -> Prepared:
    """Sends and receives in one group, as in nccl-tests; in place the root's block is not moved."""
    at_root = a.rank == a.root
    stays = a.in_place and at_root
    own = a.recv[a.root : a.root + 1] if stays else a.send
    others = [rank for rank in range(a.ranks) if not (stays and rank == a.root)] if at_root else []
    received = [a.recv_from(a.recv[rank : rank + 1], rank) for rank in others]
    step = a.grouped(*([] if stays else [a.send_to(own, a.root)]), *received)
    output = a.recv if at_root else None
    return Prepared(input=own, output=output, python=step.python, c=step.c, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.gather into views of one tensor."""
    a.out_of_place_only("gather")
    at_root = a.rank == a.root
    parts = list(a.recv.unbind(0)) if at_root else None
    return Prepared(
        input=a.send,
        output=a.recv if at_root else None,
        python=partial(a.dist.gather, a.send[0], parts, a.root),
    )


ROW = Collective(
    name="gather",
    title="Gather",
    summary="collect a block from every rank on the root",
    blocks=lambda rank, ranks, root: Blocks(1, ranks if rank == root else 0),
    bus_factor=ring_once,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
    split=True,
    rooted=True,
)
