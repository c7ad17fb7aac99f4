"""What tells the rows of one benchmark apart: its parameters as columns, and as words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from collbench.schema.axes import AXES, axis_of
from collbench.schema.case import Case
from collbench.units import format_size

#: Axes of the place that are among the parameters of a program; the others are named separately.
_LISTED = ("storage", "ranks")
_PLACE = {axis.name for axis in AXES.values() if axis.kind == "where"} - {*_LISTED}


def is_program(case: Case) -> bool:
    """Whether it is a program's; every collective has a backend."""
    return not case["backend"]


def own_names(cases: Collection[Case]) -> tuple[str, ...]:
    """What may be a column of a program's table: its own axes in their order, storage, ranks, size and measure."""
    names = dict.fromkeys(axis.name for case in cases for axis in case.axes if axis.name not in _PLACE)
    own = [name for name in names if name not in AXES]
    return (*own, *(name for name in (*_LISTED, "size", "measure") if name in names))


def varying(cases: Collection[Case]) -> tuple[str, ...]:
    """Those of `own_names` in which these cases differ; and the size, which has a column always."""
    return tuple(name for name in own_names(cases) if name == "size" or len({case[name] for case in cases}) > 1)


def without_columns(case: Case) -> Case:
    """The case without what may be a column: equal for the rows of one benchmark's table, whatever the place."""
    return case.without(own_names([case]))


def value_text(case: Case, name: str) -> str:
    value = case[name]
    if name == "size":
        return format_size(value) if name in case.what else ""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def column_heading(name: str) -> str:
    return "size (B)" if name == "size" else name.replace("_", " ")


def row_order(case: Case, names: Sequence[str]) -> tuple[Any, ...]:
    """By the values of these parameters; measures remain in the order in which they are recorded."""
    return tuple(axis_of(name).order(case[name]) for name in names if name != "measure")


def row_words(case: Case, names: Sequence[str]) -> str:
    """`n 5000, lda 5008`: a row among those that differ in these names."""
    words = (axis_of(name).words(case[name]) if name != "size" else value_text(case, name) for name in names)
    return ", ".join(word for word in words if word)


def case_words(case: Case, among: Collection[Case]) -> str:
    """`fio (p99, bs 4096)`: the benchmark, and what tells this case from the others of it."""
    several = [name for name in varying(among) if len({one[name] for one in among}) > 1]
    words = row_words(case, sorted(several, key=lambda name: name != "measure"))
    return case.workload + (f" ({words})" if words else "")
