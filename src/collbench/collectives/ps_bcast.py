"""ps_bcast: the parameter server (the root) sends its buffer to every worker. Choi et al. 2021."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, TorchArguments
from collbench.collectives.row import Array, Blocks, Collective, Prepared, server_link


def meaning(inputs: Sequence[Array], root: int, reduce: Callable[[Sequence[Array]], Array]) -> Sequence[Array | None]:
    """The server's input, on every worker."""
    return [None if rank == root else inputs[root] for rank in range(len(inputs))]


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Bcast from the server."""
    serving = a.rank == a.root
    buffer = a.send if serving else a.recv
    return Prepared(
        input=buffer if serving else None,
        output=None if serving else buffer,
        python=partial(a.comm.Bcast, a.spec(buffer), a.root),
        c=("MPI_Bcast", (buffer, a.count, a.datatype, a.root, a.comm)),
    )


def torch(a: TorchArguments) -> Prepared:
    """torch.distributed.broadcast from the server."""
    serving = a.rank == a.root
    buffer = a.send if serving else a.recv
    return Prepared(
        input=buffer if serving else None,
        output=None if serving else buffer,
        python=partial(a.dist.broadcast, buffer, a.root),
    )


ROW = Collective(
    name="ps_bcast",
    title="Parameter-server Broadcast",
    summary="the server's buffer to every worker (the root is the server)",
    blocks=lambda rank, ranks, root: Blocks(1, 0) if rank == root else Blocks(0, 1),
    bus_factor=server_link,
    meaning=meaning,
    dialects={"mpi": mpi, "torch": torch},
    rooted=True,
    has_in_place=False,
    min_ranks=2,
    has_server=True,
)
