"""One case on one rank: prepare, check, warm up, take samples, check again, send them to rank 0.

Rank 0 makes every decision for all ranks, so that they make the same collective calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from collbench.bindings.agreement import first_rank
from collbench.bindings.spec import Operation, Seen, Session, World, allgather, merged
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import CollbenchError, LibraryError, LostRankError, Unsupported
from collbench.machine.waiting import ContentionMeter, Waited, now
from collbench.run import check, contention, facts_of_ranks
from collbench.run.driver import TimedCall, agree_on_driver
from collbench.run.failures import Failure, cause, raise_on_all
from collbench.run.results import Measured, calls_of, device_seconds, fill_results, gathered
from collbench.run.samples import left_early
from collbench.run.sampling import Method, Sampling, Watch, sample
from collbench.run.turns import Turns, sampled_in_turns
from collbench.schema.choices import DTYPES
from collbench.schema.record import ClockError, GpuState, Record, ResultCheck, Work
from collbench.schema.summary import Seconds

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


def measure(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch, turns: Turns | None = None
) -> Measured:
    """Measure one case. Collective: all ranks call it with the same arguments.

    Returns:
        On rank 0 the record and the samples in ns, [ranks, n] or above 64 ranks [1, n]; elsewhere a record without
        numbers, and None.

    Raises:
        Interrupted: a rank was told to stop; raised on all ranks.
        Exception: an error that this rank alone knows of, so the job must be aborted.
    """
    try:
        return _measured(case, row, session, method, watch, turns)
    except Refused as refusal:
        return Record(case=case.identity, launch=0, status="failed", reason=str(refusal)), None


def _measured(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch, turns: Turns | None
) -> Measured:
    doing = f"{case.collective} {case.size} B on {case.backend}"
    watch.beat(f"{doing}: preparing")
    prepared = _prepare(case, row, session, method, watch)
    if isinstance(prepared, Failure):
        return Record(case=case.identity, launch=0, status=prepared.status, reason=prepared.reason), None
    timed_call = agree_on_driver(
        prepared, case.driver, method.gate, session, calls_of(case, method), max(case.graph, 1)
    )
    watch.beat(f"{doing}: checking")
    wrong, where = check_result(timed_call, case, row, method, watch)
    if wrong:
        return _wrong(case, row, wrong, f"before timing: {where}"), None
    seen = Seen() if prepared.observe is None else prepared.observe(timed_call.once)
    timing = _time(timed_call, method, watch, doing, turns)
    watch.beat(f"{doing}: checking again")
    wrong, where = check_result(timed_call, case, row, method, watch)
    if wrong:
        return _wrong(case, row, wrong, f"after timing: {where}"), None
    found = gathered(timing.sampling.times(timing.sampling.stamps), session.world)
    if first_rank(session.world, seen != Seen()) is not None:  # most libraries say nothing
        seen = merged(session.world.gather(seen) or ())
    if found is None:
        return Record(case=case.identity, launch=0, status="ok"), None
    blank = _record(case, row, timed_call, timing, method, seen, wrong)
    return fill_results(blank, found, tuple(stage.name for stage in prepared.call.stages), method)


@dataclass(frozen=True)
class _Timing:
    """The samples of a case, the time on devices, and what else was observed meanwhile."""

    sampling: Sampling
    device: Seconds | None
    contended: bool | None
    notes: tuple[str, ...]
    gpus: tuple[GpuState, ...]
    clock_error: ClockError | None


def _time(timed_call: TimedCall, method: Method, watch: Watch, doing: str, turns: Turns | None) -> _Timing:
    session = timed_call.session
    simulated = session.clock is not time.monotonic_ns
    meter = ContentionMeter(session.clock, Waited if simulated else now)
    gpu_before = facts_of_ranks.look(session)
    meter.start()
    sampling = sample(timed_call, method, watch, doing, _in_turns(method, watch, doing, turns, meter))
    meter.stop()
    contended, notes = contention.contended(meter.passed, session.world)
    gpus = facts_of_ranks.between(gpu_before, facts_of_ranks.look(session), session.world)
    watch.beat(f"{doing}: timing on the device")
    device = device_seconds(timed_call, sampling)
    trouble = session.trouble()  # outside the library's calls; a short case is over before the watchdog asks for it
    lost = None if trouble is None else LostRankError(f"rank {session.world.rank}: {doing}: {trouble}.")
    raise_on_all(session, lost)
    clock_error = None if sampling.clocks is None else sampling.clocks.error
    return _Timing(sampling, device, contended, notes, gpus, clock_error)


def _in_turns(
    method: Method, watch: Watch, doing: str, turns: Turns | None, meter: ContentionMeter
) -> Callable[[Sampling], bool] | None:
    """What samples in the world's turns, where it has any."""
    if turns is None:
        return None
    quota = any(one.cpu_quota is not None for one in method.confinement)
    return lambda sampling: sampled_in_turns(sampling, turns, watch, doing, quota, meter)


def _record(
    case: CollectiveCase,
    row: Collective,
    timed_call: TimedCall,
    timing: _Timing,
    method: Method,
    seen: Seen,
    wrong: int | None,
) -> Record:
    """The record of a measured case, without what is computed from the samples."""
    return Record(
        case=case.identity,
        launch=0,
        status="ok",
        work=_work(case, row),
        check=ResultCheck(wrong=wrong),
        driver=timed_call.driver,
        gate=timing.sampling.gate.kind,
        cadence=method.cadence,
        clock=timing.sampling.clock,
        clock_error=timing.clock_error,
        in_place=timed_call.operation.in_place,
        transport=seen.transport or timed_call.session.transport,
        algorithm=seen.algorithm,
        protocol=seen.protocol,
        confinement=method.confinement,
        contended=timing.contended,
        oversubscribed=method.oversubscribed,
        notes=(
            *timing.sampling.notes,
            *timing.notes,
            *seen.notes,
            *facts_of_ranks.cramped(method.ranks),
            *method.siblings,
        ),
        burst=timed_call.burst * timed_call.operations,
        device=timing.device,
        gpus=timing.gpus,
        shared_gpu=facts_of_ranks.is_shared(method.ranks),
    )


def _prepare(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch
) -> Operation | Failure:
    """The operation, or why a rank has none. Collective."""
    failure: Failure | None = None
    try:
        if case.ranks < row.min_ranks:
            raise Unsupported(f"{row.name} needs {row.min_ranks} ranks or more")
        if case.in_place and not row.has_in_place:
            raise Unsupported(f"{row.name} has no in-place form")
        operation = session.prepare(case, row, block_count(case, row))
        if method.cadence == "streaming" and not operation.call.streams:
            raise Unsupported(f"cadence streaming: {row.name} on {case.backend} completes every call before it returns")
    except Unsupported as unsupported:
        failure = Failure("skipped", str(unsupported))
    except MemoryError as error:
        failure = Failure("failed", f"out of memory ({error})", session.world.rank)
    except LibraryError as error:
        failure = Failure.of(session, error)
    except CollbenchError as error:
        failure = Failure("failed", str(error), session.world.rank)
    return cause(session, failure, watch) or operation


def _wrong(case: CollectiveCase, row: Collective, wrong: int, where: str) -> Record:
    return Record(
        case=case.identity,
        launch=0,
        status="failed",
        reason=f"wrong result {where}",
        work=_work(case, row),
        check=ResultCheck(wrong=wrong),
    )


def _work(case: CollectiveCase, row: Collective) -> Work:
    count = block_count(case, row)
    size = row.size(count, DTYPES[case.dtype], case.ranks)
    return Work(amount=size, count=count, bus_factor=row.bus_factor(case.ranks))
