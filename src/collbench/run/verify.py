"""Whether the call that is timed gives the right result, on every rank."""

from __future__ import annotations

from collbench.bindings.spec import World, allgather
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import LibraryError
from collbench.run import check
from collbench.run.cause import Failure, cause
from collbench.run.driver import TimedCall
from collbench.run.samples import left_early
from collbench.run.sampling import Method, Watch
from collbench.schema.dtypes import DTYPES

#: How late the last rank enters when a barrier is checked (ns).
BARRIER_DELAY = 100_000

#: Most ranks with a wrong result that a reason names.
MOST_NAMED = 64


class Refused(Exception):
    """The library does not have the operation at all; raised on all ranks."""


def _perform(timed_call: TimedCall, watch: Watch) -> None:
    """Make the call once.

    A call that only issues work fails at once: NCCL then knows that it has no algorithm. All ranks hear of it, unless
    it failed on this rank alone, and the others wait. A call that performs the operation blocks the other ranks, so
    that its error aborts the job.
    """
    if timed_call.operation.call.completion is None:
        timed_call.once()
        return
    session, failure = timed_call.session, None
    try:
        timed_call.once()
    except (LibraryError, RuntimeError) as error:
        failure = Failure.of(session, error)
    agreed = cause(session, failure, watch)
    if agreed is not None:
        raise Refused(agreed.reason)


def check_result(
    timed_call: TimedCall, case: CollectiveCase, row: Collective, method: Method, watch: Watch
) -> tuple[int | None, str]:
    """Run the operation once on known input; wrong elements over all ranks (None: checks are off), and where.

    It uses the driver that is timed: a check of another one would prove nothing about the numbers.
    """
    operation, world = timed_call.operation, timed_call.session.world
    sent, expected = check.expectation_of(row, case, world.rank)
    check.prepare_buffers(operation.input, operation.output, sent)
    if method.check != 0 and not row.moves_data:
        return _checked_barrier(timed_call, method)
    _perform(timed_call, watch)
    if method.check == 0:
        return None, ""
    tolerance = check.tolerance_of(case.dtype, case.op, case.ranks)
    wrong = 0 if expected is None else check.count_wrong_parts(operation.output, expected, tolerance)
    everywhere = int(world.total([wrong])[0])
    return everywhere, _places(wrong, world, case, row) if everywhere else ""


def _places(wrong: int, world: World, case: CollectiveCase, row: Collective) -> str:
    """Which ranks have how many wrong elements. Collective."""
    ranks = [(r, n) for r, n in enumerate(allgather(world, wrong)) if n]
    places = [f"rank {r}: {n} of {_received(case, row, r)} elements" for r, n in ranks[:MOST_NAMED]]
    return ", ".join(places) + (f", and on {len(ranks) - MOST_NAMED} more ranks" if len(ranks) > MOST_NAMED else "")


def _received(case: CollectiveCase, row: Collective, rank: int) -> int:
    """Elements that a rank receives."""
    return row.blocks(rank, case.ranks, case.root or 0).recv * block_count(case, row)


def _checked_barrier(timed_call: TimedCall, method: Method) -> tuple[int | None, str]:
    """How many ranks left a barrier before the last one entered; None where no clock shows it.

    On synchronised clocks by more than they may differ, and the last one enters that much later.
    """
    session, early, clocks, bound = timed_call.session, 0, method.clocks, 0
    for last in (session.world.size - 1, 0):
        if clocks is not None:
            clocks.begin()
            session.signals.barrier()
            bound = clocks.bound
        if session.world.rank == last:
            until = session.clock() + BARRIER_DELAY + 4 * bound
            while session.clock() < until:
                pass
        stamps = timed_call.once()
        if clocks is not None:
            clocks.synchronise()
            stamps = clocks.common(stamps)
        early += left_early(stamps, session.world, 2 * bound)
    if method.clock == "local":
        return None, ""
    return early, f"{early} ranks left before the last one entered"


def block_count(case: CollectiveCase, row: Collective) -> int:
    """Elements of a block."""
    return row.count(case.size, DTYPES[case.dtype], case.ranks)
