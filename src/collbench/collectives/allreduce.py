"""allreduce: every rank contributes a buffer, every rank gets the reduction of all."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments, nccl_step
from collbench.collectives.row import Blocks, C, Collective, Prepared, ring_twice


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Allreduce."""
    source = a.IN_PLACE if a.in_place else a.send
    python = partial(a.comm.Allreduce, a.spec(source), a.spec(a.recv), a.op)
    call = C("MPI_Allreduce", source, a.recv, a.count, a.datatype, a.op, a.comm)
    return Prepared(a.recv if a.in_place else a.send, a.recv, python, (call,), a.in_place)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclAllReduce."""
    source = a.recv if a.in_place else a.send
    step = nccl_step(a, "ncclAllReduce", a.comm.all_reduce, source, a.recv, a.count, a.datatype, a.op)
    return Prepared(source, a.recv, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.all_reduce, which works in place."""
    return Prepared(a.recv, a.recv, partial(a.dist.all_reduce, a.recv, a.op), in_place=True)


ROW = Collective(
    name="allreduce", title="Allreduce", summary="reduce over all ranks, result on every rank",
    blocks=lambda rank, ranks, root: Blocks(1, 1), bus_factor=ring_twice,
    meaning=lambda rank, inputs, root, reduce: reduce(blocks[:] for blocks in inputs),
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, reduces=True,
)  # fmt: skip
