"""The cases of a plan: of collectives and of programs, each combination of values that can be measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from collbench import backends, collectives, errors, workloads
from collbench.collectives.row import CollectiveCase, collective_case
from collbench.errors import PlanError
from collbench.schema.axes import Axis, BackendSupport, Value, plan_keys_of
from collbench.schema.case import Case, Where
from collbench.schema.plan import Plan, name_of
from collbench.units import parse_size
from collbench.workloads.program import Program, ProgramCase


def refuse_cadence(plan: Plan, names: Iterable[str]) -> None:
    """Raises PlanError for what none of these backends has: calls that only issue work, or graphs."""
    chosen = [backends.get(name) for name in names]
    if not plan.collectives:
        return
    listed = ", ".join(backend.name for backend in chosen)
    if plan.cadence == "streaming" and not any(backend.streams for backend in chosen):
        reason = f"{listed} completes every call before it returns; use cadence isolated, or nccl or torch-nccl."
        raise PlanError(f"cadence streaming: {reason}")
    if plan["cudagraph"] and not any("graph" in backend.axes for backend in chosen):
        raise PlanError(f"cudagraph {plan['cudagraph']}: {listed} has no CUDA graphs; use nccl.")


def cases_of(plan: Plan, backend: str, ranks: int) -> tuple[CollectiveCase, ...]:
    """The cases of one backend, each once: of each collective every combination of values, the innermost loop fastest.

    Raises:
        PlanError: an unknown collective, dtype or operation, or a root that is no rank.
        BackendUnavailable: an unknown backend.
    """
    rows = [collectives.get(name) for name in plan.collectives]
    operations = plan.burst if plan.cadence == "streaming" else 1
    axes = sorted(plan_keys_of("what", "how").items(), key=lambda item: item[1].nested)
    cases: dict[CollectiveCase, None] = {}
    for support in [BackendSupport(row, backends.get(backend), ranks, operations) for row in rows]:
        values = {
            axis: plan_key.values(plan[plan_key.key], support) for axis, plan_key in axes if support.has(axis, plan_key)
        }
        for combination in itertools.product(*values.values()):
            chosen = dict(zip(values, combination, strict=True))
            cases[collective_case(support.row.name, chosen | {"ranks": ranks})] = None
    return tuple(cases)


AnswerT = TypeVar("AnswerT")


def program_cases(plan: Plan, ranks: int) -> tuple[ProgramCase, ...]:
    """The cases of all benchmarks, each once.

    Raises:
        PlanError: an unknown benchmark; several ranks for one that takes one; an unknown parameter; a value of another
            type than its default; a case that the benchmark refuses, or of which it cannot tell memory or work.
    """
    alone = ", ".join(name for name in plan.workloads if not workloads.get(name).distributed)
    if alone and ranks != 1:
        reason = f"such a program runs on one rank, not on {ranks}. Measure it in a run of its own, with one rank."
        raise PlanError(f"benchmarks {alone}: {reason}")
    cases: dict[ProgramCase, None] = {}
    for benchmark in plan.benchmarks:
        row = workloads.get(name_of(benchmark))
        how = [axis.name for axis in row.axes if axis.kind == "how"]
        requested = {} if isinstance(benchmark, str) else {key: benchmark[key] for key in benchmark if key != "name"}
        values = _values_by_axis(row, requested)
        for combination in itertools.product(*values.values()):
            what = dict(zip(values, combination, strict=True))
            of_how = {name: what.pop(name) for name in how}
            case = Case(workload=row.name, what=what, how=of_how, where=Where(ranks=ranks))
            cases[_complete(row, ProgramCase(case=case, measures=()))] = None
    return tuple(cases)


def unused_parameters(plan: Plan, cases: Iterable[Case]) -> dict[str, list[str]]:
    """By benchmark, the parameters that have other values than the default, and no effect in any of its cases."""
    used: dict[str, set[str]] = {}
    for case in cases:
        used.setdefault(case.workload, set()).update(case.what, case.how)
    unused: dict[str, list[str]] = {}
    for benchmark in (benchmark for benchmark in plan.benchmarks if not isinstance(benchmark, str)):
        name = name_of(benchmark)
        names = sorted(axis.name for axis in workloads.get(name).axes if axis.name not in used.get(name, ())
                       and _listed(benchmark.get(axis.name, axis.neutral)) - {str(axis.neutral)})  # fmt: skip
        if name in used and names:
            unused[name] = names
    return unused


def _listed(values: Any) -> set[str]:
    """The values of a parameter as they are typed."""
    return set(map(str, values if isinstance(values, tuple | list) else (values,)))


def parameters_of(row: Program) -> tuple[str, ...]:
    """What a plan may give values to."""
    return (*(axis.name for axis in row.axes), *(("size",) if row.sizes else ()))


def _values_by_axis(row: Program, requested: dict[str, Any]) -> dict[str, tuple[Value, ...]]:
    parameters = parameters_of(row)
    for name in requested:
        if name not in parameters:
            hint = errors.suggestion(name, parameters) if parameters else "It has none."
            raise PlanError(f"benchmark {row.name}: has no parameter {name!r}. {hint}")
    listed = {name: values if isinstance(values, tuple | list) else (values,) for name, values in requested.items()}
    for axis in row.axes:
        if axis.name in listed:  # names of groups stand for several values, each of which counts once
            groups = {} if axis.plan_key is None else axis.plan_key.groups
            named = (groups.get(value, (value,)) if isinstance(value, str) else (value,) for value in listed[axis.name])
            listed[axis.name] = tuple(dict.fromkeys(itertools.chain.from_iterable(named)))
    for name, values in listed.items():
        if not values:
            raise PlanError(f"benchmark {row.name}: {name}: the list is empty; nothing would be measured.")
    sizes = {"size": tuple(map(_size, listed.get("size", row.sizes)))} if row.sizes else {}
    of_axes = {axis.name: tuple(_value(row, axis, value) for value in listed.get(axis.name, (axis.neutral,)))
               for axis in row.axes}  # fmt: skip
    return of_axes | sizes


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PlanError(f"size {value!r}: not a size. Write 64M, say.")
    return parse_size(value)


def _value(row: Program, axis: Axis, value: Value) -> Value:
    """A value of the type of the default; a number may be a text, as it is typed: `64k`."""
    key, kind = f"benchmark {row.name}: {axis.name}", type(axis.neutral)
    if axis.neutral is not None:
        try:
            if isinstance(value, str) and kind is int:  # `-1`, `4096`, `4k`
                value = int(value) if value.strip().removeprefix("-").isdecimal() else parse_size(value)
            elif kind is float and isinstance(value, str | int) and not isinstance(value, bool):
                value = float(value)
        except (errors.UnitError, ValueError):
            kind = type(None)
        if type(value) is not kind:
            kinds = {int: "a whole number", float: "a number", bool: "yes or no"}
            expected = kinds.get(type(axis.neutral), "a text")
            raise PlanError(f"{key} {value!r}: not {expected}, as its default {axis.neutral!r} is.")
    if axis.plan_key is not None:
        axis.plan_key.check(key, value)
    return value


def _complete(row: Program, case: ProgramCase) -> ProgramCase:
    """With measures, memory and disk space, and without parameters that have no effect; PlanError if it is refused."""

    def ask(field: str, function: Callable[[Case], AnswerT]) -> AnswerT:
        try:
            return function(case.case)
        except Exception as error:  # somebody else's function: whatever it raises
            raise PlanError(f"benchmark {case.title}: its {field} raised {type(error).__name__}: {error}.") from error

    if (reason := ask("refuses", row.refuses)) is not None:
        raise PlanError(f"benchmark {case.title}: {reason}.")
    measures = ask("measures", row.measures_of)
    for measure in measures:
        ask(f"amount of {measure.name}", measure.amount)
    memory, disk, unused = ask("memory", row.memory), ask("disk", row.disk), ask("unused", row.unused)
    names = tuple(measure.name for measure in measures)
    return msgspec.structs.replace(case, measures=names, memory=memory, disk=disk, case=case.case.without(unused))


def how_to_fit(case: ProgramCase) -> str:
    """What takes less memory."""
    what = "the batch" if "batch" in case.case.what else "the sizes"
    return f"Lower {what}{' or the number of ranks' if case.case.where.ranks > 1 else ''}."
