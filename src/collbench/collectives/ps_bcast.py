"""ps_bcast: the parameter server (the root) sends its buffer to every worker. Choi et al. 2021."""

from __future__ import annotations

from functools import partial

from collbench.collectives.dialects import (
    MpiArguments,
    ServedArguments,
    TorchDialectArguments,
    TorchServedArguments,
    nccl_step,
)
from collbench.collectives.row import GPUS, LINK, Blocks, C, Collective, Part, Prepared, in_turn, part, server_link


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Bcast from the server."""
    sent, received = (a.send, None) if a.rank == a.root else (None, a.recv)
    buffer = received if sent is None else sent
    python = partial(a.comm.Bcast, a.spec(buffer), a.root)
    return Prepared(sent, received, python, (C("MPI_Bcast", buffer, a.count, a.datatype, a.root, a.comm),))


def nccl(a: ServedArguments) -> Prepared:
    """As in the paper: the server sends to the chief's host memory, the chief copies, and ncclBroadcast follows."""
    if a.serving:
        return Prepared(a.send, None, parts=(part(LINK, a.link_send(a.send)), part(GPUS)))
    buffer = a.recv
    broadcast = nccl_step(a, "ncclBroadcast", a.comm.broadcast, buffer, buffer, a.count, a.datatype, 0)
    if not a.chief:
        return Prepared(None, buffer, parts=(part(LINK), part(GPUS, broadcast, a.wait())))
    landing = a.landing(1)
    parts = (part(LINK, a.link_recv(landing)), part(GPUS, a.copy_in(buffer, landing), broadcast, a.wait()))
    return Prepared(None, buffer, parts=parts)


def torch(a: TorchDialectArguments) -> Prepared:
    """torch.distributed.broadcast from the server."""
    sent, received = (a.send, None) if a.rank == a.root else (None, a.recv)
    return Prepared(sent, received, partial(a.dist.broadcast, received if sent is None else sent, a.root))


def torch_served(a: TorchServedArguments) -> Prepared:
    """As `nccl`, in torch: a message of the server over gloo, then a broadcast among the workers."""
    if a.serving:
        return Prepared(a.send, None, parts=(Part(LINK, partial(a.link.send, a.send, a.chief_rank), None), part(GPUS)))
    broadcast = partial(a.dist.broadcast, a.recv, a.chief_rank)
    if not a.chief:
        return Prepared(None, a.recv, parts=(part(LINK), Part(GPUS, in_turn(broadcast, a.wait), None)))
    landing = a.landing(1)
    copy = partial(a.recv.copy_, landing, non_blocking=True)
    link = Part(LINK, partial(a.link.recv, landing, a.root), None)
    return Prepared(None, a.recv, parts=(link, Part(GPUS, in_turn(copy, broadcast, a.wait), None)))


ROW = Collective(
    name="ps_bcast", title="Parameter-server Broadcast",
    summary="the server's buffer to every worker (the root is the server)",
    blocks=lambda rank, ranks, root: Blocks(1, 0) if rank == root else Blocks(0, 1), bus_factor=server_link,
    meaning=lambda rank, inputs, root, reduce: None if rank == root else inputs[root][:],
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch, "torch served": torch_served}, rooted=True, has_in_place=False,
    min_ranks=2, has_server=True,
)  # fmt: skip
