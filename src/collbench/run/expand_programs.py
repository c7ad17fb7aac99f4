"""From a plan to the cases of its programs: every combination of their sizes and of their own axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from collbench import workloads
from collbench.errors import PlanError
from collbench.schema.axes import Axis, Value
from collbench.schema.case import Case, Where
from collbench.schema.plan import Plan
from collbench.schema.sizes import sizes_in_bytes
from collbench.spelling import suggestion
from collbench.units import parse_size
from collbench.workloads.case import ProgramCase
from collbench.workloads.program import Program

Told = TypeVar("Told")


def program_cases(plan: Plan, ranks: int) -> tuple[ProgramCase, ...]:
    """The cases of all workloads, each once.

    Raises:
        PlanError: an unknown workload; more than one rank; an axis that none of the workloads has; a value of another
            type than its default; a case that its workload refuses, or of which it cannot tell the memory or the work.
    """
    rows = [workloads.get(name) for name in plan.workloads]
    if rows and ranks != 1:
        raise PlanError(f"workloads {', '.join(plan.workloads)}: a program runs on one rank, not on {ranks}. "
                        "Measure it in a run of its own, with one rank.")  # fmt: skip
    known = {axis.name: axis for row in rows for axis in row.axes}
    for name, values in plan.axes.items():
        if name not in known:
            has = f"{', '.join(plan.workloads) or 'a plan without workloads'} has no such axis"
            raise PlanError(f"axes: {name!r}: {has}. {suggestion(name, tuple(known)) if known else ''}".rstrip())
        for value in values:
            _refuse(known[name], value)
    return tuple(dict.fromkeys(case for row in rows for case in _cases_of_row(row, plan)))


def _refuse(axis: Axis, value: Value) -> None:
    if axis.neutral is not None and type(value) is not type(axis.neutral):
        raise PlanError(f"axes: {axis.name}: {value!r} has another type than the default {axis.neutral!r}.")
    if axis.choice is not None:
        axis.choice.check(f"axes: {axis.name}", value)


def _cases_of_row(row: Program, plan: Plan) -> Iterator[ProgramCase]:
    sizes = () if not row.sizes else row.sizes if plan["sizes"] is None else sizes_in_bytes(plan["sizes"])
    sized = {"size": tuple(parse_size(size) for size in sizes)} if sizes else {}
    values = {axis.name: plan.axes.get(axis.name, (axis.neutral,)) for axis in row.axes} | sized
    how = {axis.name for axis in row.axes if axis.kind == "how"}
    for combination in itertools.product(*values.values()):
        settings = dict(zip(values, combination, strict=True))
        case = Case(
            workload=row.name,
            what={name: value for name, value in settings.items() if name not in how},
            how={name: value for name, value in settings.items() if name in how},
            where=Where(ranks=1),
        )
        yield _taken(row, ProgramCase(case=case, measures=tuple(measure.name for measure in row.measures)))


def _taken(row: Program, case: ProgramCase) -> ProgramCase:
    """With its memory, where the workload takes it."""
    reason = _told(case, "refuses", row.refuses)
    if reason is not None:
        raise PlanError(f"workload {case.title}: {reason}.")
    for measure in row.measures:
        _told(case, f"amount of {measure.name}", measure.amount)
    return msgspec.structs.replace(case, memory=_told(case, "memory", row.memory))


def _told(case: ProgramCase, field: str, tell: Callable[[Case], Told]) -> Told:
    try:
        return tell(case.case)
    except Exception as error:  # somebody else's function: whatever it raises
        raise PlanError(f"workload {case.title}: its {field} raised {type(error).__name__}: {error}.") from error
