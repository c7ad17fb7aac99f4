"""scatter: one block of the root to each rank, in rank order."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Blocks, C, Collective, Prepared, ring_once


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Scatter."""
    at_root = a.rank == a.root
    send = a.send if at_root else None
    in_place = a.in_place and at_root
    target = a.IN_PLACE if in_place else a.recv
    python = partial(a.comm.Scatter, a.spec(send), a.spec(target), a.root)
    call = C("MPI_Scatter", send, a.count, a.datatype, target, a.count, a.datatype, a.root, a.comm)
    return Prepared(send, a.send[a.root : a.root + 1] if in_place else a.recv, python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclScatter; before NCCL 2.28 sends and receives in one group, as in nccl-tests.

    In place the root's block is not moved.
    """
    at_root = a.rank == a.root
    stays = a.in_place and at_root
    block, send = a.send[a.root : a.root + 1] if stays else a.recv, a.send if at_root else None
    if (direct := a.direct("ncclScatter", send, block, a.count, a.datatype, a.root)) is not None:
        return Prepared(send, block, *direct, in_place=a.in_place)
    others = [rank for rank in range(a.ranks) if not (stays and rank == a.root)] if at_root else []
    sent = [a.send_to(a.send[rank : rank + 1], rank) for rank in others]
    step = a.grouped(*sent, *([] if stays else [a.recv_from(block, a.root)]))
    return Prepared(send, block, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.scatter from views of one tensor."""
    a.out_of_place_only("scatter")
    send = a.send if a.rank == a.root else None
    blocks = None if send is None else list(send.unbind(0))
    return Prepared(send, a.recv, partial(a.dist.scatter, a.recv[0], blocks, a.root))


ROW = Collective(
    name="scatter", title="Scatter", summary="one block of the root to each rank",
    blocks=lambda rank, ranks, root: Blocks(ranks if rank == root else 0, 1), bus_factor=ring_once,
    meaning=lambda rank, inputs, root, reduce: inputs[root][rank : rank + 1],
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, split=True, rooted=True,
)  # fmt: skip
