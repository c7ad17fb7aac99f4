"""One case of a program, on one rank: run it, check its result, and make a record of each measure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from collbench import workloads
from collbench.bindings.spec import Session
from collbench.machine.confinement import distinct
from collbench.run import contention
from collbench.run.child import ProgramFailed, output_of
from collbench.run.results import Measured
from collbench.run.sampling import Method, Watch
from collbench.schema.plan import Plan
from collbench.schema.record import Ranks, Record, ResultCheck, Samples
from collbench.schema.summary import summarise
from collbench.units import counted
from collbench.workloads.case import ProgramCase
from collbench.workloads.program import Measure, Program

Value = TypeVar("Value")


class WrongResult(Exception):
    """A program ran, and its result is wrong."""

    def __init__(self, name: str, wrong: int) -> None:
        super().__init__(f"wrong result: {name} counted {counted(wrong, 'wrong value')}")
        self.wrong = wrong


def measure_program(
    case: ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch
) -> tuple[Measured, ...]:
    """Run the program of a case. Returns for each measure a record, and its samples [1, n] in ns.

    There are `plan.iters` samples. Without them there are `plan.floor`, because their number is set at the start; a
    program that is executed for each sample gets more, up to `plan.cap`, until the time budget is spent.

    Raises:
        Interrupted: this process was told to stop.
    """
    program = workloads.get(case.case.workload)
    if (missing := program.missing()) is not None:
        return _without_times(case, "skipped", missing)
    before, began = contention.now(), session.clock()
    try:
        samples, program_notes = _executed(program, case, plan, watch)
    except WrongResult as error:
        return _without_times(case, "failed", str(error), ResultCheck(wrong=error.wrong))
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
        notes=(*notes, *program_notes),
    )
    return tuple(
        _filled(common, case, measure, samples[measure.name][plan.warmup :], method) for measure in program.measures
    )


def _executed(
    program: Program, case: ProgramCase, plan: Plan, watch: Watch
) -> tuple[Mapping[str, Sequence[float]], tuple[str, ...]]:
    """Seconds by measure, the warm-up among them, and what the program says for readers.

    Raises:
        ProgramFailed: it gave no result.
        WrongResult: it gave a wrong one.
    """
    least = plan.warmup + (plan.floor if plan.iters is None else plan.iters)
    if not program.repeated:
        return _execution(program, case, least, plan.timeout_seconds, watch)
    most = least if plan.iters is not None else plan.warmup + plan.cap
    samples: dict[str, list[float]] = {name: [] for name in case.measures}
    notes: dict[str, None] = {}
    end = time.monotonic() + plan.budget_seconds
    for taken in range(most):
        if taken >= least and time.monotonic() > end:
            break
        seconds, program_notes = _execution(program, case, 1, plan.timeout_seconds, watch)
        for name in case.measures:
            samples[name] += seconds[name]
        notes |= dict.fromkeys(program_notes)
    return samples, tuple(notes)


def _execution(
    program: Program, case: ProgramCase, times: int, limit: float, watch: Watch
) -> tuple[Mapping[str, Sequence[float]], tuple[str, ...]]:
    try:
        argv = program.argv(case.case, times)
    except Exception as error:  # somebody else's function: whatever it raises
        raise ProgramFailed(f"workload {case.title}: its argv raised {type(error).__name__}: {error}") from error
    output = output_of(argv, limit, watch, case.title)
    wrong = _read(program, lambda: program.verify(case.case, output))
    if wrong:
        raise WrongResult(program.name, wrong)
    return _samples(program, case, output, times), tuple(_read(program, lambda: program.notes(output)))


def _without_times(
    case: ProgramCase, status: str, reason: str, check: ResultCheck | None = None
) -> tuple[Measured, ...]:
    blank = {"launch": 0, "status": status, "reason": reason, "check": check}
    return tuple((Record(case=identity, **blank), None) for identity in case.identities)  # type: ignore[arg-type]


def _read(program: Program, read: Callable[[], Value]) -> Value:
    """The result of `read`, which reads the output of the program.

    Raises:
        ProgramFailed: the output cannot be read.
    """
    try:
        return read()
    except Exception as error:
        raise ProgramFailed(f"cannot read the output of {program.name} ({type(error).__name__}: {error})") from error


def _samples(program: Program, case: ProgramCase, output: str, times: int) -> Mapping[str, Sequence[float]]:
    """Seconds of `times` samples of every measure.

    Raises:
        ProgramFailed: the output cannot be read, or lacks samples.
    """
    parsed = _read(
        program, lambda: {name: [float(s) for s in values] for name, values in program.parse(output).items()}
    )
    for name in case.measures:
        samples = parsed.get(name, [])
        if len(samples) != times:
            raise ProgramFailed(f"{program.name} printed {len(samples)} times of {name}; expected {times}")
        for seconds in samples:
            if not (math.isfinite(seconds) and seconds > 0.0):
                raise ProgramFailed(f"{program.name} printed {seconds} s as a time of {name}")
    return parsed


def _filled(common: Record, case: ProgramCase, measure: Measure, seconds: Sequence[float], method: Method) -> Measured:
    matrix = np.maximum(np.rint(np.array([seconds]) * 1e9), 1).astype(np.int64)
    summary = summarise(matrix[0])
    return msgspec.structs.replace(
        common,
        case=case.case.having(measure=measure.name),
        work=measure.work(case.case),
        samples=Samples(n=matrix.shape[1], invalid=0, warmup=method.warmup),
        seconds=summary,
        ranks=Ranks(
            p50=(summary.p50,),
            binding=tuple(rank.binding for rank in method.ranks),
            container=tuple(rank.container for rank in method.ranks),
        ),
    ), matrix
