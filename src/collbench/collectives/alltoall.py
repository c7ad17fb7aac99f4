"""alltoall: every rank has a block for every rank; rank r ends with block r of every rank, in rank order."""

from __future__ import annotations

from functools import partial

import numpy as np

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Blocks, C, Collective, Prepared, ring_once
from collbench.errors import Unsupported


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Alltoall."""
    source = a.IN_PLACE if a.in_place else a.send
    python = partial(a.comm.Alltoall, a.spec(source), a.spec(a.recv))
    call = C("MPI_Alltoall", source, a.count, a.datatype, a.recv, a.count, a.datatype, a.comm)
    return Prepared(a.recv if a.in_place else a.send, a.recv, python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclAlltoAll; before NCCL 2.28 a send to and a receive from every rank in one group, as in nccl-tests."""
    if a.in_place:
        raise Unsupported("NCCL's all-to-all has no in-place form")
    if (step := a.direct("ncclAlltoAll", a.send, a.recv, a.count, a.datatype)) is not None:
        return Prepared(a.send, a.recv, *step)
    sent = [a.send_to(a.send[rank : rank + 1], rank) for rank in range(a.ranks)]
    received = [a.recv_from(a.recv[rank : rank + 1], rank) for rank in range(a.ranks)]
    return Prepared(a.send, a.recv, *a.grouped(*sent, *received))


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.all_to_all_single."""
    a.out_of_place_only("all_to_all_single")
    return Prepared(a.send, a.recv, partial(a.dist.all_to_all_single, a.recv, a.send))


ROW = Collective(
    name="alltoall", title="All-to-All Personalized Exchange",
    summary="every rank sends a block of its own to every rank",
    blocks=lambda rank, ranks, root: Blocks(ranks, ranks), bus_factor=ring_once,
    meaning=lambda rank, inputs, root, reduce: np.concatenate([blocks[rank : rank + 1] for blocks in inputs]),
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, split=True,
)  # fmt: skip
