"""One case of a program, on one rank: run it, check its result, and make a record of each measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from collbench import workloads
from collbench.bindings.spec import Session
from collbench.machine.confinement import distinct
from collbench.run import contention
from collbench.run.child import ProgramFailed, ProgramSkipped
from collbench.run.contention import OwnTime
from collbench.run.execution import WrongResult, executed
from collbench.run.results import Measured
from collbench.run.sampling import Method, Watch
from collbench.schema.plan import Plan
from collbench.schema.record import Ranks, Record, ResultCheck, Samples
from collbench.schema.summary import summarise
from collbench.workloads.case import ProgramCase
from collbench.workloads.program import Measure


def measure_program(
    case: ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch,
    doing: Callable[[str], None] = lambda what: None,
) -> tuple[Measured, ...]:  # fmt: skip
    """Run the program of a case. Returns for each measure a record, and its samples [1, n] in ns.

    `doing` is told what is executed next.

    There are `plan.iters` samples. Without them there are `plan.floor`, because their number is set at the start; a
    program that is executed for each sample gets more, up to `plan.cap`, until the time budget is spent.

    Raises:
        Interrupted: this process was told to stop.
    """
    program = workloads.get(case.case.workload)
    if (missing := program.missing(program.choice(case.case))) is not None:
        return _without_times(case, "skipped", missing)
    before, began = contention.now(), session.clock()
    try:
        done = executed(program, case, plan, watch, doing)
    except ProgramSkipped as error:
        return _without_times(case, "skipped", str(error))
    except WrongResult as error:
        return _without_times(case, "failed", str(error), ResultCheck(wrong=error.wrong))
    except ProgramFailed as error:
        return _without_times(case, "failed", str(error))
    own = OwnTime(done.all.user, 0.0 if program.files else done.all.system, program.files)
    contended, notes = contention.since(before, (session.clock() - began) * 1e-9, session.world, own)
    common = Record(
        case=case.case,
        launch=0,
        status="ok",
        check=ResultCheck(wrong=0, figures=done.figures, repeatable=done.repeatable),
        clock="local",
        confinement=distinct(tuple(rank.confinement for rank in method.ranks)),
        contended=contended,
        oversubscribed=method.oversubscribed,
        notes=(*notes, *done.notes),
        transport=done.beneath,
        cpu=done.cpu,
    )
    return tuple(
        _filled(common, case, measure, done.samples[measure.name], 0 if measure.once else plan.warmup, method)
        for measure in program.measures
    )


def _without_times(
    case: ProgramCase, status: str, reason: str, check: ResultCheck | None = None
) -> tuple[Measured, ...]:
    blank = {"launch": 0, "status": status, "reason": reason, "check": check}
    return tuple((Record(case=identity, **blank), None) for identity in case.identities)  # type: ignore[arg-type]


def _filled(
    common: Record, case: ProgramCase, measure: Measure, seconds: Sequence[float], warmup: int, method: Method
) -> Measured:
    matrix = np.maximum(np.rint(np.array([seconds[warmup:]]) * 1e9), 1).astype(np.int64)
    summary = summarise(matrix[0])
    return msgspec.structs.replace(
        common,
        case=case.case.having(measure=measure.name),
        work=measure.work(case.case),
        samples=Samples(n=matrix.shape[1], invalid=0, warmup=warmup),
        seconds=summary,
        ranks=Ranks(
            p50=(summary.p50,),
            binding=tuple(rank.binding for rank in method.ranks),
            container=tuple(rank.container for rank in method.ranks),
        ),
    ), matrix
