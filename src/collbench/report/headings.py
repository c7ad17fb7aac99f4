"""How cases, cells and pairs are labelled: headings, parameters as columns and words, sides; the order of tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from collbench.schema.axes import AXES, Value, axis_of, policy_order, step_order
from collbench.schema.case import Case, Where, names_in
from collbench.units import counted, format_bytes, format_size

if TYPE_CHECKING:  # a rank imports this module, and nothing of the analysis
    from collbench.analysis.options import Option
    from collbench.analysis.pairs import Pair
    from collbench.analysis.results import Cell, Way

# What tells the rows of one benchmark apart: its parameters as columns, and as words.

#: Axes of the place that are among the parameters of a program; the others are named separately.
_LISTED = ("storage", "ranks")
_PLACE = {axis.name for axis in AXES.values() if axis.kind == "where"} - {*_LISTED}


def is_program(case: Case) -> bool:
    """Whether it is a program's; every collective has a backend."""
    return not case["backend"]


def own_names(cases: Collection[Case]) -> tuple[str, ...]:
    """What may be a column of a program's table: its own axes in their order, storage, ranks, size and measure."""
    names = dict.fromkeys(axis.name for case in cases for axis in case.axes if axis.name not in _PLACE)
    axes = [name for name in names if name not in AXES]
    return (*axes, *(name for name in (*_LISTED, "size", "measure") if name in names))


def differing(cases: Collection[Case]) -> tuple[str, ...]:
    """Those of `own_names` in which these cases differ."""
    return tuple(name for name in own_names(cases) if len({case[name] for case in cases}) > 1)


def varying(cases: Collection[Case]) -> tuple[str, ...]:
    """The same with the size, which has a column always."""
    several = {*differing(cases), "size"}
    return tuple(name for name in own_names(cases) if name in several)


def without_columns(case: Case) -> Case:
    """The case without what may be a column: equal for the rows of one benchmark's table, whatever the place."""
    return case.without(own_names([case]))


def value_text(case: Case, name: str) -> str:
    value = case[name]
    if name == "size":
        return format_size(value) if name in case.what else ""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def parameter_columns(cases: Sequence[Case], names: Sequence[str]) -> dict[str, list[str]]:
    """By heading, of each case the value of its parameter."""
    return {"size (B)" if name == "size" else name.replace("_", " "): [value_text(case, name) for case in cases]
            for name in names}  # fmt: skip


def row_order(case: Case, names: Sequence[str]) -> tuple[Any, ...]:
    """By the values of these parameters; measures remain in the order in which they are recorded."""
    return tuple(axis_of(name).order(case[name]) for name in names if name != "measure")


def row_words(case: Case, names: Sequence[str]) -> str:
    """`n 5000, lda 5008`: a row among those that differ in these names."""
    words = (axis_of(name).words(case[name]) if name != "size" else value_text(case, name) for name in names)
    return ", ".join(filter(None, words))


def reductions(steps: Iterable[tuple[Case, Sequence[int]]]) -> list[str]:
    """`network gpt-tiny: 2 all-reduces a step, 7.94 MiB in all`: of training steps with their messages (bytes)."""
    reducing = [(case, messages) for case, messages in steps if messages]
    names = [name for name in differing([case for case, _ in reducing]) if name != "measure"]
    named = [(row_words(case, names), messages) for case, messages in reducing]
    lines = (f"{words}{': ' * bool(words)}{counted(len(messages), 'all-reduce')} a step, "
             f"{format_bytes(sum(messages))} in all" for words, messages in named)  # fmt: skip
    return list(dict.fromkeys(lines))


def case_words(case: Case, among: Collection[Case]) -> str:
    """`fio (p99, bs 4096)`: the benchmark, and what tells this case from the others of it."""
    words = row_words(case, sorted(differing(among), key=lambda name: name != "measure"))
    return case.workload + (f" ({words})" if words else "")


# What rows of a table have in common, and the order of tables and rows.

#: Axes that distinguish rows and are in no heading.
_ROWS = ("size",)
#: Axes that a heading names separately.
_APART = ("in_place", "driver", "backend", "thread_level")
#: Axes of the place that distinguish tables: the others are in the rows, as the sides of a comparison.
_PLACES = ("storage",)


def operation(case: Case) -> str:
    """`allreduce sum float32`, `bcast float32 root 0 in place`, `linpack solve, n 2000, lda 2000`: what is done."""
    names = [name for name in own_names([case]) if name not in (*_ROWS, "ranks", *case.how)]
    if names:
        start = f"{case.workload} {case['measure'] or ''}".strip()
        return ", ".join(filter(None, (start, row_words(case, [name for name in names if name != "measure"]))))
    words = [axis.words(case[axis.name]) for axis in case.axes if axis.kind == "what" and axis.name not in _ROWS]
    words += [AXES[name].words(case[name]) for name in _PLACES]
    words += [AXES["in_place"].words(True)] * bool(case["in_place"])
    return " ".join(filter(None, (case.workload, *words)))


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
    return ", ".join(filter(None, facts))


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
    axes = sorted((axis for axis in case.axes if axis.name not in AXES), key=lambda axis: axis.name)
    known = (axis for axis in AXES.values() if axis.kind != "where" and axis.name not in _ROWS)
    return (case.workload, tuple((axis.name, axis.order(case[axis.name])) for axis in axes),
            tuple(axis.order(case[axis.name]) for axis in known),
            tuple(AXES[name].order(case[name]) for name, _ in places))  # fmt: skip


def software(where: Where) -> str:
    """`openmpi`, or `new: openmpi` on a side of a plan; empty without an image."""
    return ": ".join(word for word in (where.side, where.image) if word)


@lru_cache(maxsize=4096)  # few places, a hundred thousand cells
def place_order(where: Where) -> tuple[Any, ...]:
    """Image by image, near memory before far: from the host through one container to the most isolated."""
    affinity = "" if where.affinity == "near" else where.affinity
    chosen = AXES["gpus"].order(where.gpus), AXES["cores"].order(where.cores)
    return (where.image or "", affinity, *chosen, not where.on_host, policy_order(where.policy),
            step_order(where.isolation), where.seccomp, where.side or "")  # fmt: skip


def apart(named: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Of each name the facts that not all names have; and those that all have."""
    shared = [fact for fact in next(iter(named), ()) if all(fact in facts for facts in named)]
    return [[fact for fact in facts if fact not in shared] for facts in named], shared


def size_text(case: Case) -> str:
    """`64K`; empty of a case without a size."""
    return value_text(case, "size")


# Options, cells and pairs.


def in_place_order(options: Iterable[Option]) -> list[Option]:
    """By library, then from the least isolated place to the most."""
    return sorted(options, key=lambda option: (option["library"], option.isolation_order, option))


def cells_of_pairs(pairs: Iterable[Pair]) -> list[Cell]:
    """The cells of both sides, each once."""
    return list({id(cell): cell for pair in pairs for cell in (pair.base, pair.other)}.values())


def used_drivers(cells: Iterable[Cell]) -> set[str]:
    """The drivers that really made the calls, whichever were asked for."""
    return drivers_in(way for cell in cells for way in cell.how)


def drivers_in(ways: Iterable[Way]) -> set[str]:
    """The drivers among these ways of measuring."""
    return {value for way in ways for name, value in way if name == "driver"}


def heading_of(cells: Sequence[Cell], common: Case | None = None) -> str:
    """The heading of cells of one table, with the drivers that were really used; `common`: what their cases share."""
    with_ranks = len({(cell.case.where.ranks, cell.case.where.hosts) for cell in cells}) == 1
    return heading(common or cells[0].case, used_drivers(cells), with_ranks)


def image_and_place(case: Case) -> str:
    """Image, with the side where a plan has sides, and place of a case: `mpich single strict`."""
    return f"{software(case.where)} {case.where.text}".strip()


def common_case(pair: Pair) -> Case:
    """What is measured on both sides, without what they differ in; the number of ranks is of the base."""
    base, other = pair.base.case, pair.other.case
    differing = [name for name in names_in((base, other)) if name != "ranks" and base[name] != other[name]]
    return base.without(differing) if differing else base


def shared(pair: Pair, axis: str) -> str:
    """The `image` of both cells, or their `side` of the plan; empty where they differ."""
    base, other = pair.base.case[axis], pair.other.case[axis]
    return str(base or "") if base == other else ""


def shared_place(pair: Pair) -> str:
    """The place of both sides, whatever their GPUs, cores and filters of system calls; empty where they differ."""
    base, other = pair.base.case.where, pair.other.case.where
    common = {base.text_beside(other), other.text_beside(base)}
    return common.pop() if len(common) == 1 else ""


def versus(pair: Pair) -> str:
    """The side whose difference is shown, and what it is compared with."""
    return f"{pair.other_name} vs {pair.base_name}"


def side_column(pairs: Sequence[Pair]) -> tuple[str, list[str]]:
    """Heading and entries: `vs host` of pairs that have one base, else `sides`."""
    bases = {pair.base_name for pair in pairs}
    if len(bases) == 1:
        return f"vs {bases.pop()}", [pair.other_name for pair in pairs]
    return "sides", list(map(versus, pairs))


def side_names(pair: Pair, with_engine: bool) -> str:
    """`single strict vs host (docker)`: the names of both sides, the engine where engines differ, the place of both."""
    base, other = pair.base.case.where, pair.other.case.where
    engines = dict.fromkeys(where.engine for where in (base, other) if not where.on_host)
    names = versus(pair)
    apart = base.engine != other.engine and base.text != other.text
    if apart and not any(where.text in names for where in (base, other)):  # of two runs
        return f"{names} ({' and '.join(f'{where.engine} {where.text}' for where in (other, base))})"
    differs = with_engine or base.engine != other.engine
    words = [" and ".join(engines)] if engines and differs and not set(engines) & set(names.split()) else []
    words += [] if base.on_host else filter(None, [shared_place(pair)])
    return f"{names} ({' '.join(words)})" if words else names
