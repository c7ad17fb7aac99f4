"""What rows of a table have in common, as its heading, and the order of tables: read from the axes of their cases."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from collbench.schema.axes import AXES, Axis, Value
from collbench.schema.case import Case, Where

#: Axes that are a row or a column, or a part of the place, and in no heading.
_ROWS = ("size",)
#: In a heading these have words of their own: how many ranks, and the drivers that were really used.
_APART = ("in_place", "driver", "backend", "thread_level")


def operation(case: Case) -> str:
    """`allreduce sum float32`, `bcast float32 root 0 in place`: what is done."""
    what = (axis for axis in case.axes if axis.kind == "what" and axis.name not in _ROWS)
    words = [axis.words(case[axis.name]) for axis in what]
    if case["in_place"]:
        words.append(AXES["in_place"].words(True))
    return " ".join(word for word in (case.workload, *words) if word)


def variant(case: Case) -> str:
    """`pinned host memory, NCCL_ALGO=Ring, registered buffers`: what was asked for beside the usual."""
    how = (axis for axis in case.axes if axis.kind == "how" and axis.name not in _APART)
    return ", ".join(words for axis in how if (words := axis.words(case[axis.name])))


def heading(case: Case, drivers: Iterable[str] = (), with_ranks: bool = True) -> str:
    """`allreduce sum float32, backend mpi, driver native, thread level single, 2 ranks`; `drivers` were really used."""
    used = "/".join(sorted(drivers)) or case["driver"]
    facts = (operation(case), AXES["backend"].words(case["backend"]), AXES["driver"].words(used),
             AXES["thread_level"].words(case["thread_level"]), ranks(case) if with_ranks else "",
             variant(case))  # fmt: skip
    return ", ".join(fact for fact in facts if fact)


def ranks(case: Case) -> str:
    """`2 ranks`; empty for one process that communicates with nobody."""
    number = case.where.ranks
    return "" if number == 1 and not case["backend"] else "1 rank" if number == 1 else f"{number} ranks"


def heading_key(case: Case) -> tuple[Any, ...]:
    """Equal for rows of one table, and ascending in the order of tables: all but the size and the place."""
    what = frozenset(one for one in case.what.items() if one[0] not in _ROWS)
    return _key_of(case.workload, what, frozenset(case.how.items()), case.where.ranks)


@lru_cache(maxsize=4096)  # few headings, a hundred thousand cells
def _key_of(
    workload: str, what: frozenset[tuple[str, Value]], how: frozenset[tuple[str, Value]], ranks: int
) -> tuple[Any, ...]:
    case = Case(workload=workload, what=dict(what), how=dict(how), where=Where(ranks=ranks))
    own = sorted((axis for axis in case.axes if axis.name not in AXES), key=lambda axis: axis.name)
    known = (axis for axis in AXES.values() if axis.kind != "where" and axis.name not in _ROWS)
    return (case.workload, tuple((axis.name, *_order(axis, case)) for axis in own),
            tuple(_order(axis, case) for axis in known), case.where.ranks)  # fmt: skip


def _order(axis: Axis, case: Case) -> tuple[Any, ...]:
    return (axis.order(case[axis.name]),)
