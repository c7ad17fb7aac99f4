"""Which rank uses which GPU: a pure function of what every rank sees, so that all ranks come to the same answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from collbench.bindings.spec import Roles
from collbench.errors import RequestError


@dataclass(frozen=True)
class Seat:
    """What a rank sees: its machine, the GPUs that it may use in CUDA's order, and the one that a launcher planned.

    `why`: the reason where it sees none.
    """

    host: str
    kernel_id: str
    visible: tuple[str, ...]
    planned: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Seating:
    """The GPU of every rank. `refused`: why cases in which every rank needs one cannot be measured."""

    gpus: tuple[str | None, ...]
    refused: str | None = None


def assign(seats: tuple[Seat, ...], roles: Roles, share: bool) -> Seating:
    """A GPU for every rank that needs one. A parameter server needs none where it is nothing else.

    Raises:
        RequestError: a rank sees no GPU, or two would use the same one, and `share` does not allow it.
    """
    every_rank = frozenset(range(len(seats)))
    workers = every_rank - roles.servers if len(roles.servers) == 1 else every_rank
    if not roles.all_work:
        try:
            return Seating(_assigned(seats, workers, share))
        except RequestError as error:
            if len(roles.servers) < 2:
                raise
            ranks = ", ".join(map(str, sorted(roles.servers)))
            raise RequestError(
                f"{error} Ranks {ranks} are the server in turn, so each needs a GPU as a worker; a run with one root "
                "(-r) needs one GPU less."
            ) from error
    try:
        return Seating(_assigned(seats, every_rank, share))
    except RequestError as error:
        if workers == every_rank or len(seats) == 1:
            raise
        return Seating(_assigned(seats, workers, share), refused=str(error).rstrip("."))


def _assigned(seats: tuple[Seat, ...], needing: frozenset[int], share: bool) -> tuple[str | None, ...]:
    gpus = tuple(_gpu_of(rank, seats, needing) if rank in needing else None for rank in range(len(seats)))
    uses = Counter((seat.kernel_id, gpu) for seat, gpu in zip(seats, gpus, strict=True) if gpu is not None)
    shared = [place for place, ranks in uses.items() if ranks > 1]
    if shared and not share:
        machine, gpu = shared[0]
        users = [rank for rank, seat in enumerate(seats) if (seat.kernel_id, gpus[rank]) == shared[0]]
        neighbours = [seat for seat in seats if seat.kernel_id == machine]
        visible = len({gpu for seat in neighbours for gpu in seat.visible})
        raise RequestError(
            f"ranks {' and '.join(map(str, users))} on {seats[users[0]].host} would use one GPU ({gpu}): "
            f"{len(neighbours)} ranks and {visible} GPU{'s' if visible > 1 else ''}. "
            "Start fewer ranks; or, to test function and not to measure, add --share-gpu (share_gpu = true in a plan)."
        )
    return gpus


def _gpu_of(rank: int, seats: tuple[Seat, ...], needing: frozenset[int]) -> str:
    seat = seats[rank]
    if seat.planned is not None:
        if seat.planned not in seat.visible:
            visible = ", ".join(seat.visible) or "none"
            raise RequestError(f"rank {rank} was planned on GPU {seat.planned}, and sees {visible}.")
        return seat.planned
    if not seat.visible:
        why = seat.why or "no CUDA device is visible"
        raise RequestError(f"rank {rank} on {seat.host} has no GPU to use: {why}. See: collbench doctor")
    alike = [
        other
        for other in range(rank)
        if other in needing and (seats[other].kernel_id, seats[other].visible) == (seat.kernel_id, seat.visible)
    ]
    return seat.visible[len(alike) % len(seat.visible)]
