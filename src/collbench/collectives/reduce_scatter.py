"""reduce_scatter: every rank contributes one block per rank, rank r gets the reduction of all blocks r."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments, nccl_step
from collbench.collectives.row import Blocks, C, Collective, Prepared, ring_once


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Reduce_scatter_block; in place the result takes the first block of the input."""
    source, target = (a.IN_PLACE, a.send) if a.in_place else (a.send, a.recv)
    python = partial(a.comm.Reduce_scatter_block, a.spec(source), a.spec(target), a.op)
    call = C("MPI_Reduce_scatter_block", source, target, a.count, a.datatype, a.op, a.comm)
    return Prepared(a.send, target[:1], python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclReduceScatter; in place the result is the rank's own block of the input."""
    target = a.send[a.rank : a.rank + 1] if a.in_place else a.recv
    step = nccl_step(a, "ncclReduceScatter", a.comm.reduce_scatter, a.send, target, a.count, a.datatype, a.op)
    return Prepared(a.send, target, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.reduce_scatter_single, called reduce_scatter_tensor before torch 2.13."""
    a.out_of_place_only("reduce_scatter_single")
    function = a.function("reduce_scatter_single", "reduce_scatter_tensor")
    return Prepared(a.send, a.recv, partial(function, a.recv, a.send, a.op))


ROW = Collective(
    name="reduce_scatter", title="Reduce_scatter", summary="reduce over all ranks, a block of the result to each rank",
    blocks=lambda rank, ranks, root: Blocks(ranks, 1), bus_factor=ring_once,
    meaning=lambda rank, inputs, root, reduce: reduce(blocks[rank : rank + 1] for blocks in inputs),
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, split=True, reduces=True,
)  # fmt: skip
