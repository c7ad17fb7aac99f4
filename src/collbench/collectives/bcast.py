"""bcast: the root's buffer, copied to every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, TorchArguments
from collbench.collectives.row import Array, Blocks, Collective, Prepared, whole


def meaning(inputs: Sequence[Array], root: int, reduce: Callable[[Sequence[Array]], Array]) -> Sequence[Array | None]:
    """The root's input, on every rank."""
    return [inputs[root]] * len(inputs)


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Bcast: one buffer on every rank, so always in place."""
    return Prepared(
        input=a.recv if a.rank == a.root else None,
        output=a.recv,
        python=partial(a.comm.Bcast, a.spec(a.recv), a.root),
        c=("MPI_Bcast", (a.recv, a.count, a.datatype, a.root, a.comm)),
        in_place=True,
    )


def torch(a: TorchArguments) -> Prepared:
    """torch.distributed.broadcast, in place as MPI's."""
    return Prepared(
        input=a.recv if a.rank == a.root else None,
        output=a.recv,
        python=partial(a.dist.broadcast, a.recv, a.root),
        in_place=True,
    )


ROW = Collective(
    name="bcast",
    title="Broadcast",
    summary="copy the root's buffer to every rank",
    blocks=lambda rank, ranks, root: Blocks(int(rank == root), 1),
    bus_factor=whole,
    meaning=meaning,
    dialects={"mpi": mpi, "torch": torch},
    rooted=True,
)
