"""ps_gather: every worker sends its buffer to the parameter server (the root). Choi et al. 2021.

The server contributes no block of its own. The size is one worker's buffer.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from collbench.collectives.dialects import (
    MpiArguments,
    ServedArguments,
    TorchDialectArguments,
    TorchServedArguments,
    nccl_step,
)
from collbench.collectives.row import GPUS, LINK, Blocks, C, Collective, Part, Prepared, in_turn, part, server_link


def mpi(a: MpiArguments) -> Prepared:
    """MPI_Gather, as in the paper. The server passes MPI_IN_PLACE: its own block of the result stays empty."""
    if a.rank != a.root:
        call = C("MPI_Gather", a.send, a.count, a.datatype, None, a.count, a.datatype, a.root, a.comm)
        return Prepared(a.send, None, partial(a.comm.Gather, a.spec(a.send), None, a.root), (call,))
    places = a.buffer(a.ranks)
    call = C("MPI_Gather", a.IN_PLACE, a.count, a.datatype, places, a.count, a.datatype, a.root, a.comm)
    python = partial(a.comm.Gather, a.IN_PLACE, a.spec(places), a.root)
    return Prepared(None, (places[: a.root], places[a.root + 1 :]), python, (call,))


def nccl(a: ServedArguments) -> Prepared:
    """As in the paper: ncclAllGather among the workers, the chief copies to host memory and sends to the server."""
    if a.serving:
        return Prepared(None, a.recv, parts=(part(GPUS), part(LINK, a.link_recv(a.recv))))
    gathered = a.buffer(a.ranks - 1)
    gather = nccl_step(a, "ncclAllGather", a.comm.all_gather, a.send, gathered, a.count, a.datatype)
    if not a.chief:
        return Prepared(a.send, None, parts=(part(GPUS, gather, a.wait()), part(LINK)))
    landing = a.landing(a.ranks - 1)
    parts = (part(GPUS, gather, a.copy_out(landing, gathered), a.wait()), part(LINK, a.link_send(landing)))
    return Prepared(a.send, None, parts=parts)


def torch(a: TorchDialectArguments) -> Prepared:
    """Point to point: torch.distributed.gather would make the server contribute a block."""
    if a.rank != a.root:
        return Prepared(a.send, None, partial(a.dist.send, a.send[0], a.root))
    workers = [rank for rank in range(a.ranks) if rank != a.root]

    def collect() -> None:
        pending = [a.dist.irecv(part, worker) for part, worker in zip(a.recv.unbind(0), workers, strict=True)]
        for request in pending:
            request.wait()

    return Prepared(None, a.recv, collect)


def torch_served(a: TorchServedArguments) -> Prepared:
    """As `nccl`, in torch: an all-gather among the workers, then a message to the server over gloo."""
    if a.serving:
        return Prepared(None, a.recv, parts=(part(GPUS), Part(LINK, partial(a.link.recv, a.recv, a.chief_rank), None)))
    gathered = a.buffer(a.ranks - 1)
    gather = partial(a.function("all_gather_single", "all_gather_into_tensor"), gathered, a.send)
    if not a.chief:
        return Prepared(a.send, None, parts=(Part(GPUS, in_turn(gather, a.wait), None), part(LINK)))
    landing = a.landing(a.ranks - 1)
    copy = partial(landing.copy_, gathered, non_blocking=True)
    gpus = Part(GPUS, in_turn(gather, copy, a.wait), None)
    return Prepared(a.send, None, parts=(gpus, Part(LINK, partial(a.link.send, landing, a.root), None)))


ROW = Collective(
    name="ps_gather", title="Parameter-server Gather",
    summary="every worker's buffer to the server (the root is the server)",
    blocks=lambda rank, ranks, root: Blocks(0, ranks - 1) if rank == root else Blocks(1, 0), bus_factor=server_link,
    meaning=lambda rank, inputs, root, reduce: (
        np.concatenate([i[:] for i in (*inputs[:root], *inputs[root + 1 :])]) if rank == root else None
    ),
    dialects={"mpi": mpi, "nccl": nccl, "torch": torch, "torch served": torch_served}, rooted=True, has_in_place=False,
    min_ranks=2, has_server=True,
)  # fmt: skip
