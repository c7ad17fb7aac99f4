"""bcast: the root's buffer, copied to every rank."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments, nccl_step
from collbench.collectives.row import Blocks, C, Collective, Prepared, whole


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Bcast: one buffer on every rank, so always in place."""
    at_root = a.rank == a.root
    python = partial(a.comm.Bcast, a.spec(a.recv), a.root)
    call = C("MPI_Bcast", a.recv, a.count, a.datatype, a.root, a.comm)
    return Prepared(a.recv if at_root else None, a.recv, python, (call,), in_place=True, untouched=at_root)


def nccl(a: NcclDialectArguments) -> Prepared:
    """ncclBroadcast, which has an out-of-place form on the root."""
    at_root = a.rank == a.root
    source = a.send if at_root and not a.in_place else a.recv
    step = nccl_step(a, "ncclBroadcast", a.comm.broadcast, source, a.recv, a.count, a.datatype, a.root)
    return Prepared(source if at_root else None, a.recv, *step, in_place=a.in_place)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.broadcast, in place as MPI's."""
    python = partial(a.dist.broadcast, a.recv, a.root)
    return Prepared(a.recv if a.rank == a.root else None, a.recv, python, in_place=True)


ROW = Collective(
    name="bcast", title="Broadcast", summary="copy the root's buffer to every rank",
    blocks=lambda rank, ranks, root: Blocks(int(rank == root), 1), bus_factor=whole,
    meaning=lambda rank, inputs, root, reduce: inputs[root][:],
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch}, rooted=True,
)  # fmt: skip
