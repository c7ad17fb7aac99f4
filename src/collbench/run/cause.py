"""Why a case cannot be measured, agreed on by all ranks; a call that fails on one may hold the others for ever."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.bindings.spec import Session
from collbench.run.sampling import Watch
from collbench.schema.record import Status


@dataclass(frozen=True)
class Failure:
    """What went wrong on a rank; without `rank` it would on any.

    `inside`: in a call of the library in which other ranks may be waiting. `lost`: it only says that a rank is gone,
    which may have failed for a reason of its own.
    """

    status: Status
    text: str
    rank: int | None = None
    inside: bool = False
    lost: bool = False

    @property
    def reason(self) -> str:
        """For the record."""
        return self.text if self.rank is None else f"rank {self.rank}: {self.text}"

    @staticmethod
    def of(session: Session, error: Exception) -> Failure:
        """An error of the library on this rank."""
        lost = session.is_lost_rank(error)
        return Failure("failed", session.explained(error), session.world.rank, inside=True, lost=lost)


def cause(session: Session, failure: Failure | None, watch: Watch) -> Failure | None:
    """The failure of the first rank that has one of its own; None where there is none. Collective.

    While this rank waits for the others, `watch` ends the process if they do not come out of their calls. When they
    have, what the library used for the call is not used again.
    """
    if failure is not None and failure.inside:
        watch.failed(failure.text, failure.lost)
    world, nobody = session.world, session.world.size
    own = failure is not None and not failure.lost
    inside = failure is not None and failure.inside
    lowest, _ = world.extremes([world.rank if holds else nobody for holds in (own, failure is not None, inside)])
    watch.failed(None)
    if lowest[2] < nobody:
        session.start_over()
    source = int(lowest[0] if lowest[0] < nobody else lowest[1])
    agreed: Failure | None = None if source == nobody else world.tell(failure, source)
    return agreed
