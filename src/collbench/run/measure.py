"""One case on one rank: prepare, check, warm up, sample until enough, check again, tell rank 0.

Every decision is taken on rank 0 and told to all, so that ranks never part ways between two collective calls.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Operation, Seen, Session, allgather, merged
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import CollbenchError, LibraryError, LostRankError, Unsupported
from collbench.machine.confinement import distinct
from collbench.run import check, contention, gpu_state
from collbench.run.driver import TimedCall, agree_on_driver
from collbench.run.failures import raise_on_all
from collbench.run.results import calls_of, device_seconds, fill_results
from collbench.run.samples import left_early
from collbench.run.sampling import Method, Watch, sample
from collbench.schema.dtypes import DTYPES
from collbench.schema.record import Record, ResultCheck, Work

#: A barrier is checked with its last rank coming this late (ns).
BARRIER_DELAY = 100_000


def measure(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch, launch: int = 0
) -> tuple[Record, NDArray[np.int64] | None]:
    """Measure one case. Collective: all ranks call it with the same arguments.

    Returns:
        On rank 0 the record and the samples [ranks, n] in ns; elsewhere a record without numbers, and None.

    Raises:
        Interrupted: a rank was told to stop; raised on all ranks.
        Exception: whatever a rank met alone in the middle; the others cannot know, so the job must be aborted.
    """
    try:
        return _measured(case, row, session, method, watch, launch)
    except Refused as refusal:
        return Record(case=case.identity, launch=launch, status="failed", reason=str(refusal)), None


def _measured(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch, launch: int
) -> tuple[Record, NDArray[np.int64] | None]:
    doing = f"{case.collective} {case.size} B on {case.backend}"
    watch.beat(f"{doing}: preparing")
    operation, status, reason = _prepare(case, row, session, method)
    if operation is None:
        return Record(case=case.identity, launch=launch, status=status, reason=reason), None
    burst = calls_of(case, method)
    form = agree_on_driver(operation, case.driver, method.gate, session, burst, max(case.graph, 1))
    watch.beat(f"{doing}: checking")
    wrong, places = _checked(form, case, row, method)
    if wrong:
        return _wrong(case, row, launch, wrong, f"before timing, {places}"), None
    seen = operation.observe(form.once) if operation.observe is not None else Seen()
    real = session.clock is time.monotonic_ns
    before = contention.now() if real else contention.Waited()
    gpu_before = gpu_state.look(session)
    began = session.clock()
    timed = sample(form, method, watch, doing)
    contended, held_up = contention.since(before, (session.clock() - began) * 1e-9, session.world)
    gpus = gpu_state.between(gpu_before, gpu_state.look(session), session.world)
    watch.beat(f"{doing}: timing on the device")
    device = device_seconds(form, timed)
    raise_on_all(session, _trouble(session, doing))
    watch.beat(f"{doing}: checking again")
    wrong, places = _checked(form, case, row, method)
    if wrong:
        return _wrong(case, row, launch, wrong, f"after timing, {places}"), None
    gathered = session.world.gather((timed.stamps, seen))
    if gathered is None:
        return Record(case=case.identity, launch=launch, status="ok"), None
    told = merged([one for _, one in gathered])
    blank = Record(
        case=case.identity,
        launch=launch,
        status="ok",
        work=_work(case, row),
        check=ResultCheck(wrong=wrong),
        driver=form.driver,
        gate=timed.gate.kind,
        cadence=method.cadence,
        clock=method.clock,
        in_place=operation.in_place,
        transport=told.transport or session.transport,
        algorithm=told.algorithm,
        protocol=told.protocol,
        confinement=distinct(tuple(rank.confinement for rank in method.ranks)),
        contended=contended,
        oversubscribed=method.oversubscribed,
        notes=(*timed.notes, *held_up, *told.notes, *gpu_state.cramped(method.ranks)),
        burst=burst * max(case.graph, 1),
        device=device,
        gpus=gpus,
        shared_gpu=gpu_state.is_shared(method.ranks),
    )
    stamps = [one for one, _ in gathered]
    return fill_results(blank, stamps, tuple(stage.name for stage in operation.call.stages), method)


def _trouble(session: Session, doing: str) -> LostRankError | None:
    """What the library met behind the back of the operations; a short case is over before the watchdog asks."""
    found = session.trouble()
    return None if found is None else LostRankError(f"rank {session.world.rank}: {doing}: {found}.")


def _prepare(
    case: CollectiveCase, row: Collective, session: Session, method: Method
) -> tuple[Operation | None, Any, str | None]:
    """The operation, or None with status and reason, the same on all ranks."""
    operation, outcome = None, None
    try:
        if case.ranks < row.min_ranks:
            raise Unsupported(f"{row.name} needs {row.min_ranks} ranks or more")
        if case.in_place and not row.has_in_place:
            raise Unsupported(f"{row.name} has no in-place form")
        operation = session.prepare(case, row, row.count(case.size, DTYPES[case.dtype], case.ranks))
        if method.cadence == "streaming" and not operation.call.streams:
            raise Unsupported(f"cadence streaming: {row.name} on {case.backend} completes every call before it returns")
    except Unsupported as reason:
        outcome = ("skipped", str(reason))
    except MemoryError as error:
        outcome = ("failed", f"rank {session.world.rank}: out of memory ({error})")
    except CollbenchError as error:
        outcome = ("failed", f"rank {session.world.rank}: {error}")
    first = next((found for found in allgather(session.world, outcome) if found is not None), None)
    return (operation, "ok", None) if first is None else (None, *first)


class Refused(Exception):
    """The library does not perform the operation at all; raised on all ranks."""


def _perform(form: TimedCall) -> None:
    """Run the operation once.

    A library that a call is handed to answers at once: NCCL knows then that it has no algorithm. All ranks hear of it.
    One that performs the operation in the call keeps the other ranks in it, so that its error ends the job.
    """
    if form.operation.call.completion is None:
        form.once()
        return
    reason = None
    try:
        form.once()
    except (LibraryError, RuntimeError) as error:
        reason = f"rank {form.session.world.rank}: {error}"
    first = next((found for found in allgather(form.session.world, reason) if found is not None), None)
    if first is not None:
        raise Refused(first)


def _checked(form: TimedCall, case: CollectiveCase, row: Collective, method: Method) -> tuple[int | None, str]:
    """Run the operation once on known input; wrong elements over all ranks (None: checks are off), and where.

    It runs in the form that is timed: a check of another form would prove nothing of the number.
    """
    operation, world = form.operation, form.session.world
    given, expected = check.expectation_of(row, case, world.rank)
    check.prepare_buffers(operation.input, operation.output, given)
    if method.check != 0 and not row.moves_data:
        return _checked_barrier(form, method)
    _perform(form)
    if method.check == 0:
        return None, ""
    tolerance = check.tolerance_of(case.dtype, case.op, case.ranks)
    wrong = 0 if expected is None else check.count_wrong_parts(operation.output, expected, tolerance)
    everywhere = allgather(world, wrong)
    places = ", ".join(f"rank {r}: {n} of {expected_size(case, row, r)}" for r, n in enumerate(everywhere) if n)
    return sum(everywhere), f"elements that are not what {row.name} means: {places}"


def expected_size(case: CollectiveCase, row: Collective, rank: int) -> int:
    """Elements that a rank receives."""
    count = row.count(case.size, DTYPES[case.dtype], case.ranks)
    return row.blocks(rank, case.ranks, case.root or 0).recv * count


def _checked_barrier(form: TimedCall, method: Method) -> tuple[int | None, str]:
    """A barrier holds when nobody leaves before the last has come; that takes a common clock to see."""
    clock, world, early = form.session.clock, form.session.world, 0
    for straggler in (world.size - 1, 0):
        if world.rank == straggler:
            until = clock() + BARRIER_DELAY
            while clock() < until:
                pass
        early += left_early(allgather(world, form.once()))
    return (None, "") if method.clock == "local" else (early, f"{early} ranks left before the last had come")


def _wrong(case: CollectiveCase, row: Collective, launch: int, wrong: int, where: str) -> Record:
    return Record(
        case=case.identity,
        launch=launch,
        status="failed",
        reason=f"wrong result {where}",
        work=_work(case, row),
        check=ResultCheck(wrong=wrong),
    )


def _work(case: CollectiveCase, row: Collective) -> Work:
    count = row.count(case.size, DTYPES[case.dtype], case.ranks)
    size = row.size(count, DTYPES[case.dtype], case.ranks)
    return Work(amount=size, count=count, bus_factor=row.bus_factor(case.ranks))
