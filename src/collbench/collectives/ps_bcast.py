"""ps_bcast: the parameter server (the root) sends its buffer to every worker. Choi et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collbench.collectives.dialects import MpiArguments, ServedArguments, TorchDialectArguments, TorchServedArguments
from collbench.collectives.row import (
    Array,
    Blocks,
    C,
    CallStep,
    Collective,
    Input,
    Part,
    Prepared,
    Reduce,
    in_turn,
    part,
    server_link,
)

#: The parts of an operation: messages between server and chief, and the work on the workers' GPUs.
LINK, GPUS = "server link", "gpus"


def meaning(rank: int, inputs: Sequence[Input], root: int, reduce: Reduce) -> Array | None:
    """The server's input, on every worker."""
    return None if rank == root else inputs[root][:]


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Bcast from the server."""
    serving = a.rank == a.root
    buffer = a.send if serving else a.recv
    return Prepared(
        input=buffer if serving else None,
        output=None if serving else buffer,
        python=partial(a.comm.Bcast, a.spec(buffer), a.root),
        c=(C("MPI_Bcast", buffer, a.count, a.datatype, a.root, a.comm),),
    )


def nccl(a: ServedArguments) -> Prepared:
    """As in the paper: the server sends to the chief's host memory, the chief copies, and ncclBroadcast follows."""
    if a.serving:
        return Prepared(a.send, None, parts=(part(LINK, a.link_send(a.send)), part(GPUS)))
    buffer, numbers = a.recv, (a.count, a.datatype, 0)
    broadcast = CallStep(
        partial(a.comm.broadcast, buffer.address, buffer.address, *numbers, a.stream),
        (C("ncclBroadcast", buffer, buffer, *numbers, a.comm, a.stream),),
    )
    if not a.chief:
        return Prepared(None, buffer, parts=(part(LINK), part(GPUS, broadcast, a.wait())))
    landing = a.landing(1)
    parts = (part(LINK, a.link_recv(landing)), part(GPUS, a.copy_in(buffer, landing), broadcast, a.wait()))
    return Prepared(None, buffer, parts=parts)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.broadcast from the server."""
    serving = a.rank == a.root
    buffer = a.send if serving else a.recv
    return Prepared(
        input=buffer if serving else None,
        output=None if serving else buffer,
        python=partial(a.dist.broadcast, buffer, a.root),
    )


def torch_served(a: TorchServedArguments) -> Prepared:
    """As `nccl`, in torch: a message of the server over gloo, then a broadcast among the workers."""
    if a.serving:
        return Prepared(a.send, None, parts=(Part(LINK, partial(a.link.send, a.send, a.chief_rank), None), part(GPUS)))
    broadcast = partial(a.dist.broadcast, a.recv, a.chief_rank)
    if not a.chief:
        return Prepared(None, a.recv, parts=(part(LINK), Part(GPUS, in_turn(broadcast, a.wait), None)))
    landing = a.landing(1)
    copy = partial(a.recv.copy_, landing, non_blocking=True)
    parts = (
        Part(LINK, partial(a.link.recv, landing, a.root), None),
        Part(GPUS, in_turn(copy, broadcast, a.wait), None),
    )
    return Prepared(None, a.recv, parts=parts)


ROW = Collective(
    name="ps_bcast",
    title="Parameter-server Broadcast",
    summary="the server's buffer to every worker (the root is the server)",
    blocks=lambda rank, ranks, root: Blocks(1, 0) if rank == root else Blocks(0, 1),
    bus_factor=server_link,
    meaning=meaning,
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch, "torch served": torch_served},
    rooted=True,
    has_in_place=False,
    min_ranks=2,
    has_server=True,
)
