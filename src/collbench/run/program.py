"""One case of a program: run it on its ranks, check its result, and make a record of each measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from collbench import workloads
from collbench.bindings.agreement import first_value
from collbench.bindings.spec import Session, World, allgather
from collbench.run import contention, cores
from collbench.run.child import ProgramFailed, ProgramSkipped
from collbench.run.contention import OwnTime
from collbench.run.execution import Executed, executed
from collbench.run.peers import Peers, WrongResult
from collbench.run.results import Measured
from collbench.run.sampling import Method, Watch
from collbench.run.spread import ranks_of
from collbench.schema.plan import Plan
from collbench.schema.record import CpuTime, Record, ResultCheck, Samples
from collbench.schema.summary import summarise
from collbench.units import format_duration
from collbench.workloads.case import ProgramCase
from collbench.workloads.program import Measure

#: Times of fewer steps of what their program prints cannot show a difference of 1 %.
FEWEST_STEPS = 100


def measure_program(
    case: ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch,
    doing: Callable[[str], None] = lambda what: None, turns: Path | None = None,
) -> tuple[Measured, ...]:  # fmt: skip
    """Run the program of a case. Returns on rank 0 for each measure a record, and its samples [ranks, n] in ns.

    On the other ranks as many records, without numbers. Collective.

    `doing` is told what is executed next. `turns` has the pipes of a program whose world takes turns with others.

    There are `plan.iters` samples. Without them there are `plan.floor`, because their number is set at the start; a
    program that is executed for each sample gets more, up to `plan.cap`, until the time budget is spent.

    Raises:
        Interrupted: a rank was told to stop.
    """
    program = workloads.get(case.case.workload)
    missing = first_value(session.world, program.missing(program.choice(case.case)))
    if missing is not None:
        return _without_times(case, "skipped", missing)
    before, began = contention.now(), session.clock()
    facts = session.world.bcast(method.ranks)  # of the few ranks that programs have
    peers = Peers(session.world, watch, session.failures, cores.threads_of(facts, session.world.rank))
    try:
        done = executed(program, case, plan, peers, doing, turns)
    except ProgramSkipped as error:
        return _without_times(case, "skipped", str(error))
    except WrongResult as error:
        return _without_times(case, "failed", str(error), ResultCheck(wrong=error.wrong))
    except ProgramFailed as error:
        return _without_times(case, "failed", str(error))
    sharing = cores.sharing(facts, session.world.rank)
    own = _own_time(session.world, done, sharing, program.files or program.distributed)
    contended, notes = contention.since(before, (session.clock() - began) * 1e-9, session.world, own)
    by_rank = session.world.gather(done)
    if by_rank is None:
        return tuple((Record(case=identity, launch=0, status="ok"), None) for identity in case.identities)
    common = Record(
        case=case.case,
        launch=0,
        status="ok",
        check=ResultCheck(wrong=0, figures=_largest(by_rank), repeatable=_first(by_rank)),
        clock="local",
        confinement=method.confinement,
        contended=contended,
        oversubscribed=method.oversubscribed,
        notes=(
            *notes,
            *cores.notes(facts),
            *method.siblings,
            *dict.fromkeys(note for rank in by_rank for note in rank.notes),
        ),
        transport=done.beneath,
        cpu=None if turns is not None else _together(by_rank),  # it slept in its turns
        messages=by_rank[0].messages,
    )
    return tuple(
        _filled(common, case, measure, [rank.samples[measure.name] for rank in by_rank],
                0 if measure.once else plan.warmup, method)
        for measure in program.measures
    )  # fmt: skip


def _own_time(world: World, done: Executed, sharing: Sequence[int], kernel: bool) -> OwnTime:
    """The processor time of this rank's program, and of those of other ranks that share a core with it."""
    by_rank = allgather(world, (done.all.user, done.all.system))
    used = [by_rank[rank] for rank in sharing]
    return OwnTime(sum(user for user, _ in used), sum(system for _, system in used), kernel)


def _largest(by_rank: Sequence[Executed]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for rank in by_rank:
        figures |= {name: max(value, figures.get(name, value)) for name, value in rank.figures.items()}
    return figures


def _first(by_rank: Sequence[Executed]) -> dict[str, float]:
    """What must come out equal, of the first rank that has it."""
    return {name: value for rank in reversed(by_rank) for name, value in rank.repeatable.items()}


def _together(by_rank: Sequence[Executed]) -> CpuTime:
    """Processor time of all ranks, in the longest time of one."""
    return CpuTime(
        user=sum(rank.cpu.user for rank in by_rank),
        system=sum(rank.cpu.system for rank in by_rank),
        wall=max(rank.cpu.wall for rank in by_rank),
    )


def _without_times(
    case: ProgramCase, status: str, reason: str, check: ResultCheck | None = None
) -> tuple[Measured, ...]:
    blank = {"launch": 0, "status": status, "reason": reason, "check": check}
    return tuple((Record(case=identity, **blank), None) for identity in case.identities)  # type: ignore[arg-type]


def _filled(
    common: Record, case: ProgramCase, measure: Measure, by_rank: Sequence[Sequence[float]], warmup: int, method: Method
) -> Measured:
    seconds = np.array(by_rank)[:, warmup:]
    matrix = np.maximum(np.rint(seconds * 1e9), 1).astype(np.int64)
    summary = summarise(matrix.max(axis=0))
    return msgspec.structs.replace(
        common,
        case=case.case.having(measure=measure.name),
        work=measure.work(case.case),
        samples=Samples(n=matrix.shape[1], invalid=0, warmup=warmup),
        seconds=summary,
        notes=(*common.notes, *_few_steps(measure, summary.p50)),
        ranks=ranks_of([summarise(rank).p50 for rank in matrix], method.ranks),
    ), matrix


def _few_steps(measure: Measure, median: float) -> tuple[str, ...]:
    """What a reader must know of a time (s) near the resolution of what its program prints."""
    if median >= FEWEST_STEPS * measure.step:
        return ()
    return (f"it prints times in steps of {format_duration(measure.step)}, of which {measure.name} takes fewer than "
            f"{FEWEST_STEPS}: differences of 1 % cannot be seen; make an execution longer",)  # fmt: skip
