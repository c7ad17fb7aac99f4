"""One case of a program on one rank: start it, check its result, take its times; a record for each measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import workloads
from collbench.bindings.spec import Session
from collbench.machine.confinement import distinct
from collbench.run import contention
from collbench.run.child import ProgramFailed, output_of
from collbench.run.sampling import Method, Watch
from collbench.schema.plan import Plan
from collbench.schema.record import Ranks, Record, ResultCheck, Samples
from collbench.schema.summary import summarise
from collbench.workloads.case import ProgramCase
from collbench.workloads.program import Program

Value = TypeVar("Value")
Measured = tuple[Record, NDArray[np.int64] | None]


def measure_program(
    case: ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch
) -> tuple[Measured, ...]:
    """Run the program of a case once: for each measure a record, and its samples [1, n] in ns.

    Samples are `plan.iters`, or `plan.floor` where the plan leaves their number to a budget: a program is not asked
    again while it runs.

    Raises:
        Interrupted: told to stop.
    """
    row = workloads.get(case.case.workload)
    if (lacking := row.needs()) is not None:
        return _without_times(case, "skipped", lacking)
    before, began = contention.now(), session.clock()
    try:
        times = plan.warmup + (plan.floor if plan.iters is None else plan.iters)
        output = output_of(row.argv(case.case, times), plan.timeout_seconds, watch, case.title)
        wrong = _read(row, lambda: row.verify(case.case, output))
        if wrong:
            reason = f"wrong result: {wrong} results are not what {row.name} means"
            return _without_times(case, "failed", reason, ResultCheck(wrong=wrong))
        taken = _samples(row, case, output, times)
        own = tuple(_read(row, lambda: row.notes(output)))
    except ProgramFailed as error:
        return _without_times(case, "failed", str(error))
    contended, notes = contention.since(before, (session.clock() - began) * 1e-9, session.world)
    common = Record(
        case=case.case,
        launch=0,
        status="ok",
        check=ResultCheck(wrong=0),
        clock="local",
        confinement=distinct(tuple(rank.confinement for rank in method.ranks)),
        contended=contended,
        oversubscribed=method.oversubscribed,
        notes=(*notes, *own),
    )
    return tuple(
        _filled(common, case, measure.name, row, taken[measure.name][plan.warmup :], method) for measure in row.measures
    )


def _without_times(
    case: ProgramCase, status: str, reason: str, check: ResultCheck | None = None
) -> tuple[Measured, ...]:
    blank = {"launch": 0, "status": status, "reason": reason, "check": check}
    return tuple((Record(case=identity, **blank), None) for identity in case.identities)  # type: ignore[arg-type]


def _read(row: Program, reading: Callable[[], Value]) -> Value:
    """What a reading of the output gives.

    Raises:
        ProgramFailed: the output cannot be read.
    """
    try:
        return reading()
    except Exception as error:
        raise ProgramFailed(f"what {row.name} printed cannot be read ({type(error).__name__}: {error})") from error


def _samples(row: Program, case: ProgramCase, output: str, times: int) -> Mapping[str, Sequence[float]]:
    """Seconds of `times` samples of every measure.

    Raises:
        ProgramFailed: the output cannot be read, or does not hold them.
    """
    found = _read(row, lambda: {name: [float(s) for s in taken] for name, taken in row.parse(output).items()})
    for name in case.measures:
        taken = found.get(name, [])
        if len(taken) != times:
            raise ProgramFailed(f"{row.name} printed {len(taken)} times of {name}, and was asked for {times}")
        odd = next((seconds for seconds in taken if not (math.isfinite(seconds) and seconds > 0.0)), None)
        if odd is not None:
            raise ProgramFailed(f"{row.name} printed {odd} s as a time of {name}")
    return found


def _filled(
    common: Record, case: ProgramCase, measure: str, row: Program, seconds: Sequence[float], method: Method
) -> Measured:
    matrix = np.maximum(np.rint(np.array([seconds]) * 1e9), 1).astype(np.int64)
    work = next(one for one in row.measures if one.name == measure).work(case.case)
    found = summarise(matrix[0])
    return msgspec.structs.replace(
        common,
        case=case.case.having(measure=measure),
        work=work,
        samples=Samples(n=matrix.shape[1], invalid=0, warmup=method.warmup),
        seconds=found,
        ranks=Ranks(
            p50=(found.p50,),
            binding=tuple(rank.binding for rank in method.ranks),
            container=tuple(rank.container for rank in method.ranks),
        ),
    ), matrix
