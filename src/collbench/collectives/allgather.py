"""allgather: every rank contributes a block, every rank gets all blocks in rank order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce, ring_once


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """All inputs one after the other, on every rank."""
    return np.concatenate([blocks[:] for blocks in inputs])


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Allgather."""
    source = a.IN_PLACE if a.in_place else a.send
    return Prepared(
        input=a.recv[a.rank : a.rank + 1] if a.in_place else a.send,
        output=a.recv,
        python=partial(a.comm.Allgather, a.spec(source), a.spec(a.recv)),
        c=(C("MPI_Allgather", source, a.count, a.datatype, a.recv, a.count, a.datatype, a.comm),),
        in_place=a.in_place,
    )


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclAllGather; in place the input is the rank's own block of the result."""
    source = a.recv[a.rank : a.rank + 1] if a.in_place else a.send
    numbers = (a.count, a.datatype)
    return Prepared(
        input=source,
        output=a.recv,
        python=partial(a.comm.all_gather, source.address, a.recv.address, *numbers, a.stream),
        c=(C("ncclAllGather", source, a.recv, *numbers, a.comm, a.stream),),
        in_place=a.in_place,
    )


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.all_gather_single, called all_gather_into_tensor before torch 2.13."""
    a.out_of_place_only("all_gather_single")
    function = a.function("all_gather_single", "all_gather_into_tensor")
    return Prepared(input=a.send, output=a.recv, python=partial(function, a.recv, a.send))


ROW = Collective(
    name="allgather",
    title="Allgather",
    summary="collect a block from every rank on every rank",
    blocks=lambda rank, ranks, root: Blocks(1, ranks),
    bus_factor=ring_once,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
    split=True,
)
