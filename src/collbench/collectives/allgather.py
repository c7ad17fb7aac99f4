"""allgather: every rank contributes a block, every rank gets all blocks in rank order."""

from __future__ import annotations

from functools import partial

import numpy as np

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments, nccl_step
from collbench.collectives.row import Blocks, C, Collective, Prepared, ring_once


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Allgather."""
    source = a.IN_PLACE if a.in_place else a.send
    python = partial(a.comm.Allgather, a.spec(source), a.spec(a.recv))
    call = C("MPI_Allgather", source, a.count, a.datatype, a.recv, a.count, a.datatype, a.comm)
    return Prepared(a.recv[a.rank : a.rank + 1] if a.in_place else a.send, a.recv, python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclAllGather; in place the input is the rank's own block of the result."""
    source = a.recv[a.rank : a.rank + 1] if a.in_place else a.send
    step = nccl_step(a, "ncclAllGather", a.comm.all_gather, source, a.recv, a.count, a.datatype)
    return Prepared(source, a.recv, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.all_gather_single, called all_gather_into_tensor before torch 2.13."""
    a.out_of_place_only("all_gather_single")
    function = a.function("all_gather_single", "all_gather_into_tensor")
    return Prepared(a.send, a.recv, partial(function, a.recv, a.send))


ROW = Collective(
    name="allgather", title="Allgather", summary="collect a block from every rank on every rank",
    blocks=lambda rank, ranks, root: Blocks(1, ranks), bus_factor=ring_once,
    meaning=lambda rank, inputs, root, reduce: np.concatenate([blocks[:] for blocks in inputs]),
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, split=True,
)  # fmt: skip
