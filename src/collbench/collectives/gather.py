"""gather: every rank contributes a block, the root gets all blocks in rank order."""

from __future__ import annotations

from functools import partial

import numpy as np

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Blocks, C, Collective, Prepared, ring_once


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Gather."""
    at_root = a.rank == a.root
    recv = a.recv if at_root else None
    in_place = a.in_place and at_root
    source = a.IN_PLACE if in_place else a.send
    python = partial(a.comm.Gather, a.spec(source), a.spec(recv), a.root)
    call = C("MPI_Gather", source, a.count, a.datatype, recv, a.count, a.datatype, a.root, a.comm)
    return Prepared(a.recv[a.root : a.root + 1] if in_place else a.send, recv, python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclGather; before NCCL 2.28 sends and receives in one group, as in nccl-tests.

    In place the root's block is not moved.
    """
    at_root = a.rank == a.root
    stays = a.in_place and at_root
    block, recv = a.recv[a.root : a.root + 1] if stays else a.send, a.recv if at_root else None
    if (direct := a.direct("ncclGather", block, recv, a.count, a.datatype, a.root)) is not None:
        return Prepared(block, recv, *direct, in_place=a.in_place)
    others = [rank for rank in range(a.ranks) if not (stays and rank == a.root)] if at_root else []
    received = [a.recv_from(a.recv[rank : rank + 1], rank) for rank in others]
    step = a.grouped(*([] if stays else [a.send_to(block, a.root)]), *received)
    return Prepared(block, recv, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.gather into views of one tensor."""
    a.out_of_place_only("gather")
    recv = a.recv if a.rank == a.root else None
    blocks = None if recv is None else list(recv.unbind(0))
    return Prepared(a.send, recv, partial(a.dist.gather, a.send[0], blocks, a.root))


ROW = Collective(
    name="gather", title="Gather", summary="collect a block from every rank on the root",
    blocks=lambda rank, ranks, root: Blocks(1, ranks if rank == root else 0), bus_factor=ring_once,
    meaning=lambda rank, inputs, root, reduce: np.concatenate([i[:] for i in inputs]) if rank == root else None,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, split=True, rooted=True,
)  # fmt: skip
