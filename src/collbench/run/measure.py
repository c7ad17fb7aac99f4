"""One case on one rank: prepare, check, warm up, sample until enough, check again, tell rank 0.

Every decision is taken on rank 0 and told to all, so that ranks never part ways between two collective calls.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.backends.parts.interface import Operation, Session, allgather
from collbench.collectives.row import Collective
from collbench.errors import CollbenchError, Unsupported
from collbench.run import check, contention
from collbench.run.confinement import distinct
from collbench.run.form import Form, agree_on_form
from collbench.run.samples import left_early, out_times, valid_samples
from collbench.run.sampling import Method, Watch, sample
from collbench.schema.case import DTYPES, Case
from collbench.schema.record import Check, Ranks, Record, Samples, Work
from collbench.schema.summary import summarise

#: A barrier is checked with its last rank coming this late (ns).
BARRIER_DELAY = 100_000


def measure(
    case: Case, row: Collective, session: Session, method: Method, watch: Watch, launch: int = 0
) -> tuple[Record, NDArray[np.int64] | None]:
    """Measure one case. Collective: all ranks call it with the same arguments.

    Returns:
        On rank 0 the record and the samples [ranks, n] in ns; elsewhere a record without numbers, and None.

    Raises:
        Interrupted: a rank was told to stop; raised on all ranks.
        Exception: whatever a rank met alone in the middle; the others cannot know, so the job must be aborted.
    """
    doing = f"{case.collective} {case.bytes} B on {case.backend}"
    watch.beat(f"{doing}: preparing")
    operation, status, reason = _prepare(case, row, session)
    if operation is None:
        return Record(case=case, launch=launch, status=status, reason=reason), None
    form = agree_on_form(operation, case.driver, method.gate, session)
    watch.beat(f"{doing}: checking")
    wrong, places = _checked(form, case, row, method)
    if wrong:
        return _wrong(case, row, launch, wrong, f"before timing, {places}"), None
    real = session.clock is time.monotonic_ns
    before = contention.now() if real else contention.Waited()
    began = session.clock()
    timed = sample(form, method, watch, doing)
    contended, held_up = contention.since(before, (session.clock() - began) * 1e-9, session.world)
    watch.beat(f"{doing}: checking again")
    wrong, places = _checked(form, case, row, method)
    if wrong:
        return _wrong(case, row, launch, wrong, f"after timing, {places}"), None
    gathered = session.world.gather(timed.stamps)
    if gathered is None:
        return Record(case=case, launch=launch, status="ok"), None
    blank = Record(
        case=case,
        launch=launch,
        status="ok",
        work=_work(case, row),
        check=Check(wrong=wrong),
        driver=form.driver,
        gate=timed.gate.kind,
        cadence=method.cadence,
        clock=method.clock,
        in_place=operation.in_place,
        transport=session.transport,
        confinement=distinct(tuple(rank.confinement for rank in method.ranks)),
        contended=contended,
        oversubscribed=method.oversubscribed,
        notes=(*timed.notes, *held_up),
    )
    return _with_numbers(blank, out_times(gathered, method.clock), method)


def _prepare(case: Case, row: Collective, session: Session) -> tuple[Operation | None, Any, str | None]:
    """The operation, or None with status and reason, the same on all ranks."""
    operation, outcome = None, None
    try:
        if case.ranks < row.min_ranks:
            raise Unsupported(f"{row.name} needs {row.min_ranks} ranks or more")
        if case.in_place and not row.has_in_place:
            raise Unsupported(f"{row.name} has no in-place form")
        operation = session.prepare(case, row, row.count(case.bytes, DTYPES[case.dtype], case.ranks))
    except Unsupported as reason:
        outcome = ("skipped", str(reason))
    except MemoryError as error:
        outcome = ("failed", f"rank {session.world.rank}: out of memory ({error})")
    except CollbenchError as error:
        outcome = ("failed", f"rank {session.world.rank}: {error}")
    first = next((found for found in allgather(session.world, outcome) if found is not None), None)
    return (operation, "ok", None) if first is None else (None, *first)


def _checked(form: Form, case: Case, row: Collective, method: Method) -> tuple[int | None, str]:
    """Run the operation once on known input; wrong elements over all ranks (None: checks are off), and where.

    It runs in the form that is timed: a check of another form would prove nothing of the number.
    """
    operation, world = form.operation, form.session.world
    given, expected = check.expectation_of(row, case, world.rank)
    check.prepare_buffers(operation.input, operation.output, given)
    if method.check != 0 and not row.moves_data:
        return _checked_barrier(form, method)
    form.once()
    if method.check == 0:
        return None, ""
    wrong = 0 if expected is None else check.count_wrong_parts(operation.output, expected)
    everywhere = allgather(world, wrong)
    places = ", ".join(f"rank {r}: {n} of {expected_size(case, row, r)}" for r, n in enumerate(everywhere) if n)
    return sum(everywhere), f"elements that are not what {row.name} means: {places}"


def expected_size(case: Case, row: Collective, rank: int) -> int:
    """Elements that a rank receives."""
    count = row.count(case.bytes, DTYPES[case.dtype], case.ranks)
    return row.blocks(rank, case.ranks, case.root or 0).recv * count


def _checked_barrier(form: Form, method: Method) -> tuple[int | None, str]:
    """A barrier holds when nobody leaves before the last has come; that takes a common clock to see."""
    clock, world, early = form.session.clock, form.session.world, 0
    for straggler in (world.size - 1, 0):
        if world.rank == straggler:
            until = clock() + BARRIER_DELAY
            while clock() < until:
                pass
        early += left_early(allgather(world, form.once()))
    return (None, "") if method.clock == "local" else (early, f"{early} ranks left before the last had come")


def _wrong(case: Case, row: Collective, launch: int, wrong: int, where: str) -> Record:
    return Record(
        case=case,
        launch=launch,
        status="failed",
        reason=f"wrong result {where}",
        work=_work(case, row),
        check=Check(wrong=wrong),
    )


def _work(case: Case, row: Collective) -> Work:
    count = row.count(case.bytes, DTYPES[case.dtype], case.ranks)
    size = row.size(count, DTYPES[case.dtype], case.ranks)
    return Work(bytes=size, count=count, bus_factor=row.bus_factor(case.ranks))


def _with_numbers(blank: Record, matrix: NDArray[np.int64], method: Method) -> tuple[Record, NDArray[np.int64]]:
    """The record with everything that follows from the samples."""
    valid = valid_samples(matrix)
    n = matrix.shape[1]
    samples = Samples(n=n, invalid=n - len(valid), warmup=method.warmup)
    if len(valid) == 0:
        reason = f"all {n} samples were late at the gate: too few cores, or a busy machine. Use --gate barrier"
        return msgspec.structs.replace(blank, status="failed", reason=reason, samples=samples), matrix
    kept = matrix[:, matrix.max(axis=0) > 0]
    ranks = Ranks(
        p50=tuple(float(median) * 1e-9 for median in np.quantile(kept, 0.5, axis=1)),
        binding=tuple(rank.binding for rank in method.ranks),
        container=tuple(rank.container for rank in method.ranks),
    )
    return msgspec.structs.replace(blank, samples=samples, seconds=summarise(valid), ranks=ranks), matrix
