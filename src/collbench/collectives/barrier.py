"""barrier: no rank leaves before every rank has entered. Moves no data, so it has a time and no bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.collectives.dialects import MpiArguments, TorchDialectArguments
from collbench.collectives.row import Array, Blocks, C, Collective, Input, Prepared, Reduce


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """No data, on any rank."""
    return None


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Barrier."""
    return Prepared(input=None, output=None, python=a.comm.Barrier, c=(C("MPI_Barrier", a.comm),))


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.barrier."""
    return Prepared(input=None, output=None, python=a.dist.barrier)


ROW = Collective(
    name="barrier",
    title="Barrier",
    summary="wait until every rank has entered",
    blocks=lambda rank, ranks, root: Blocks(0, 0),
    bus_factor=lambda ranks: 0.0,
    meaning=meaning,
    dialects={"mpi": mpi, "torch": torch},
    moves_data=False,
    has_in_place=False,
)
