"""Why a case cannot be measured, agreed on by all ranks; a call that fails on one may hold the others for ever."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.bindings.spec import Session, allgather
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
    failures = [one for one in allgather(session.world, failure) if one is not None]
    watch.failed(None)
    if any(one.inside for one in failures):
        session.start_over()
    return next((one for one in failures if not one.lost), failures[0] if failures else None)
