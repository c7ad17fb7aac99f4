"""Which rank uses which GPU: a pure function of what every rank sees, so that all ranks come to the same answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from collbench.bindings.spec import Roles
from collbench.errors import RequestError


@dataclass(frozen=True)
class Seat:
    """What a rank sees: its machine, the GPUs that it may use in CUDA's order, and the one that a launcher planned.

    `why` is the reason where it sees none.
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


def seat(seats: tuple[Seat, ...], roles: Roles, share: bool) -> Seating:
    """A GPU for every rank that needs one. A parameter server needs none where it is nothing else.

    Raises:
        RequestError: a rank sees no GPU, or two would use the same one, and `share` does not allow it.
    """
    everybody = frozenset(range(len(seats)))
    workers = everybody - roles.servers if len(roles.servers) == 1 else everybody
    if not roles.all_work:
        try:
            return Seating(_assigned(seats, workers, share))
        except RequestError as error:
            if len(roles.servers) < 2:
                raise
            ranks = ", ".join(map(str, sorted(roles.servers)))
            raise RequestError(
                f"{error} Ranks {ranks} are the server in turn, so each needs a GPU as a worker; a run with one root "
                "(-r) needs a GPU less."
            ) from error
    try:
        return Seating(_assigned(seats, everybody, share))
    except RequestError as error:
        if workers == everybody or len(seats) == 1:
            raise
        return Seating(_assigned(seats, workers, share), refused=str(error).rstrip("."))


def _assigned(seats: tuple[Seat, ...], needing: frozenset[int], share: bool) -> tuple[str | None, ...]:
    found = tuple(_gpu_of(rank, seats, needing) if rank in needing else None for rank in range(len(seats)))
    uses = Counter((one.kernel_id, gpu) for one, gpu in zip(seats, found, strict=True) if gpu is not None)
    twice = [place for place, times in uses.items() if times > 1]
    if twice and not share:
        machine, gpu = twice[0]
        ranks = [str(r) for r, one in enumerate(seats) if (one.kernel_id, found[r]) == (machine, gpu)]
        there = len({g for one in seats if one.kernel_id == machine for g in one.visible})
        raise RequestError(
            f"ranks {' and '.join(ranks)} on {seats[int(ranks[0])].host} would use one GPU ({gpu}): "
            f"{sum(one.kernel_id == machine for one in seats)} ranks and {there} GPU{'s' if there > 1 else ''}. "
            "Start fewer ranks; or, to test function and not to measure, add --share-gpu (share_gpu = true in a plan)."
        )
    return found


def _gpu_of(rank: int, seats: tuple[Seat, ...], needing: frozenset[int]) -> str:
    mine = seats[rank]
    if mine.planned is not None:
        if mine.planned not in mine.visible:
            seen = ", ".join(mine.visible) or "none"
            raise RequestError(f"rank {rank} was planned on GPU {mine.planned}, and sees {seen}.")
        return mine.planned
    if not mine.visible:
        why = mine.why or "no CUDA device is visible"
        raise RequestError(f"rank {rank} on {mine.host} has no GPU to use: {why}. See: collbench doctor")
    before = sum(
        other in needing and (seats[other].kernel_id, seats[other].visible) == (mine.kernel_id, mine.visible)
        for other in range(rank)
    )
    return mine.visible[before % len(mine.visible)]
