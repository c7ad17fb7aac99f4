"""From a plan to the cases of its programs: every combination of their sizes and of their own axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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


def program_cases(plan: Plan, ranks: int) -> tuple[ProgramCase, ...]:
    """The cases of all workloads, each once.

    Raises:
        PlanError: more than one rank; an axis that none of the workloads has; a value of another type than its default.
        RequestError: an unknown workload.
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
        measures = tuple(measure.name for measure in row.measures)
        yield ProgramCase(case=case, measures=measures, memory=row.memory(case))
