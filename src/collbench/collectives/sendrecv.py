"""sendrecv: a ring; every rank sends its buffer to the next rank and receives the previous one's."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import MpiArguments, NcclDialectArguments, TorchDialectArguments
from collbench.collectives.row import Blocks, C, Collective, Prepared, whole
from collbench.errors import Unsupported


def neighbours(rank: int, ranks: int) -> tuple[int, int]:
    """(next, previous) on the ring."""
    return (rank + 1) % ranks, (rank - 1) % ranks


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Sendrecv, or MPI_Sendrecv_replace in place."""
    after, before = neighbours(a.rank, a.ranks)
    if a.in_place:
        python = partial(a.comm.Sendrecv_replace, a.spec(a.recv), after, 0, before, 0)
        call = C("MPI_Sendrecv_replace", a.recv, a.count, a.datatype, after, 0, before, 0, a.comm, a.status)
        return Prepared(a.recv, a.recv, python, (call,), in_place=True)
    python = partial(a.comm.Sendrecv, a.spec(a.send), after, 0, a.spec(a.recv), before, 0)
    sent, received = (a.send, a.count, a.datatype, after, 0), (a.recv, a.count, a.datatype, before, 0)
    return Prepared(a.send, a.recv, python, (C("MPI_Sendrecv", *sent, *received, a.comm, a.status),))


def nccl(a: NcclDialectArguments) -> Prepared:
    """The pair ncclSend and ncclRecv in one group."""
    if a.in_place:
        raise Unsupported("NCCL's sends and receives have no in-place form")
    after, before = neighbours(a.rank, a.ranks)
    return Prepared(a.send, a.recv, *a.grouped(a.send_to(a.send, after), a.recv_from(a.recv, before)))


def torch(a: TorchDialectArguments) -> Prepared:
    """A send and a receive of torch.distributed at the same time."""
    a.out_of_place_only("isend")
    if a.ranks == 1:
        raise Unsupported("torch.distributed cannot send to its own rank; use 2 ranks or more")
    after, before = neighbours(a.rank, a.ranks)
    return Prepared(a.send, a.recv, a.exchange(a.send, after, a.recv, before))


ROW = Collective(
    name="sendrecv", title="Sendrecv", summary="send to the next rank, receive from the previous one",
    blocks=lambda rank, ranks, root: Blocks(1, 1), bus_factor=whole,
    meaning=lambda rank, inputs, root, reduce: inputs[neighbours(rank, len(inputs))[1]][:],
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch},
)  # fmt: skip
