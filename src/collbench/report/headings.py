"""What rows of a table have in common, as its heading, and the order of tables and rows: from the axes of cases."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from collbench.report.parameters import is_program, own_names, row_words, without_columns
from collbench.schema.axes import AXES, Value, step_order
from collbench.schema.case import Case, Where
from collbench.schema.place import PolicyOrder, policy_order
from collbench.units import counted

#: Axes that distinguish rows and are in no heading.
_ROWS = ("size",)
#: Axes that a heading names separately.
_APART = ("in_place", "driver", "backend", "thread_level")
#: Axes of the place that distinguish tables: the others are in the rows, as the sides of a comparison.
_PLACES = ("storage",)


def operation(case: Case) -> str:
    """`allreduce sum float32`, `bcast float32 root 0 in place`, `linpack solve, n 2000, lda 2000`: what is done."""
    own = [name for name in own_names([case]) if name not in (*_ROWS, "ranks", *case.how)]
    if own:
        start = f"{case.workload} {case['measure'] or ''}".strip()
        return ", ".join([start, *filter(None, [row_words(case, [name for name in own if name != "measure"])])])
    what = (axis for axis in case.axes if axis.kind == "what" and axis.name not in _ROWS)
    words = [axis.words(case[axis.name]) for axis in what]
    words += [AXES[name].words(case[name]) for name in _PLACES]
    if case["in_place"]:
        words.append(AXES["in_place"].words(True))
    return " ".join(word for word in (case.workload, *words) if word)


def variant(case: Case) -> str:
    """`pinned host memory, NCCL_ALGO=Ring, registered buffers`: settings other than the defaults."""
    how = (axis for axis in case.axes if axis.kind == "how" and axis.name not in _APART)
    return ", ".join(words for axis in how if (words := axis.words(case[axis.name])))


def heading(case: Case, drivers: Iterable[str] = (), with_ranks: bool = True) -> str:
    """`allreduce sum float32, backend mpi, driver native, thread level single, 2 ranks`; `drivers` that were used."""
    used = "/".join(sorted(drivers)) or case["driver"]
    facts = (operation(case), AXES["backend"].words(case["backend"]), AXES["driver"].words(used),
             AXES["thread_level"].words(case["thread_level"]), ranks(case) if with_ranks else "",
             variant(case))  # fmt: skip
    return ", ".join(fact for fact in facts if fact)


def ranks(case: Case) -> str:
    """`2 ranks`, `4 ranks on 2 hosts`; empty for one process that communicates with nobody."""
    where = case.where
    if not case["backend"] and where.ranks == 1:
        return ""
    return f"{counted(where.ranks, 'rank')} on {where.hosts} hosts" if where.hosts > 1 else counted(where.ranks, "rank")


def heading_key(case: Case) -> tuple[Any, ...]:
    """Equal for rows of one table, and ascending in the order of tables: everything but the size and the place."""
    what = frozenset(item for item in case.what.items() if item[0] not in _ROWS)
    places = tuple((name, getattr(case.where, name)) for name in ("ranks", "hosts", *_PLACES))
    return _key_of(case.workload, what, frozenset(case.how.items()), places)


def table_key(case: Case) -> tuple[Any, ...]:
    """As `heading_key`, but the measures of a program, and the values of its parameters, share a table."""
    return heading_key(without_columns(case) if is_program(case) else case)


@lru_cache(maxsize=4096)  # few headings, a hundred thousand cells
def _key_of(
    workload: str, what: frozenset[tuple[str, Value]], how: frozenset[tuple[str, Value]],
    places: tuple[tuple[str, Value], ...],
) -> tuple[Any, ...]:  # fmt: skip
    case = Case(workload=workload, what=dict(what), how=dict(how)).having(**dict(places))
    own = sorted((axis for axis in case.axes if axis.name not in AXES), key=lambda axis: axis.name)
    known = (axis for axis in AXES.values() if axis.kind != "where" and axis.name not in _ROWS)
    return (case.workload, tuple((axis.name, axis.order(case[axis.name])) for axis in own),
            tuple(axis.order(case[axis.name]) for axis in known),
            tuple(AXES[name].order(case[name]) for name, _ in places))  # fmt: skip


def software(where: Where) -> str:
    """`openmpi`, or `new: openmpi` on a side of a plan; empty without an image."""
    return ": ".join(word for word in (where.side, where.image) if word)


def place_order(case: Case) -> tuple[str, str, bool, PolicyOrder, int, str, str]:
    """Image by image, near memory before far: from the host through one container to the most isolated."""
    return _order_of(case.where)


@lru_cache(maxsize=4096)  # few places, a hundred thousand cells
def _order_of(where: Where) -> tuple[str, str, bool, PolicyOrder, int, str, str]:
    affinity = "" if where.affinity == "near" else where.affinity
    step = step_order(where.isolation)
    place = (not where.on_host, policy_order(where.policy), step, where.seccomp)
    return (where.image or "", affinity, *place, where.side or "")
