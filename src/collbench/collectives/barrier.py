"""barrier: no rank leaves before every rank has entered. Moves no data, so it has a time and no bandwidth."""

from __future__ import annotations

from collbench.collectives.dialects import MpiArguments, TorchDialectArguments
from collbench.collectives.row import Blocks, C, Collective, Prepared


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Barrier."""
    return Prepared(None, None, a.comm.Barrier, (C("MPI_Barrier", a.comm),))


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.barrier."""
    return Prepared(None, None, a.dist.barrier)


ROW = Collective(
    name="barrier", title="Barrier", summary="wait until every rank has entered",
    blocks=lambda rank, ranks, root: Blocks(0, 0), bus_factor=lambda ranks: 0.0,
    meaning=lambda rank, inputs, root, reduce: None,
    dialects={"mpi": mpi, "torch": torch}, moves_data=False, has_in_place=False,
)  # fmt: skip
