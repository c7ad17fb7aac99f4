"""Which cells are compared: two sides that differ in the factor asked about, and in nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from collbench.analysis import environment
from collbench.analysis.beneath import refuse_other_device
from collbench.analysis.factors import FACTORS, Factor, of_fact
from collbench.analysis.observations import Cell, Observed
from collbench.analysis.pair import Pair
from collbench.analysis.told_apart import told_apart
from collbench.errors import RequestError
from collbench.schema.axes import AXES, SYNONYMS, Value, axis_of
from collbench.schema.case import Case, names_in

#: Facts of the measuring that can make two numbers of one case incomparable, and the axes of the case that set them.
METHODS = {"driver": "driver", "gate": "", "cadence": "", "clock": "", "burst": "", "place": "in_place"}

#: What people ask about two runs, the likeliest first.
_QUESTIONS = ("library", "gpu-driver", "gpu", "kernel", "cpu", "collbench", "image-id")


def within(observed: Observed, factor: Factor, ignored: frozenset[str], between: tuple[str, ...] = ()) -> list[Pair]:
    """Pairs of one run: each side against the first in order that it can be compared with; or the two in `between`.

    Raises:
        RequestError: the run has only one side, or not those of `between`; or they differ in the environment.
    """
    pairs = opposed(observed.cells.values(), factor, _axes(ignored, observed), between)
    if not pairs:
        raise _nothing_opposed(observed, factor, between)
    by_sides: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        by_sides.setdefault((_side(pair.base.case), _side(pair.other.case)), []).append(pair)
    checked = []
    for same in by_sides.values():
        base = environment.facts(observed, [same[0].base.case])
        other = environment.facts(observed, [same[0].other.case])
        checked += _checked(same, base, other, factor, ignored)
    return checked


def opposed(
    cells: Iterable[Cell], factor: Factor, dropped: tuple[str, ...] = (), between: tuple[str, ...] = ()
) -> list[Pair]:
    """The same of cells, whatever the environments: pairs that differ in the factor, and in `dropped` axes."""
    groups: dict[Case, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.case.without(factor.axes + dropped), []).append(cell)
    free = frozenset(name for name, axis in METHODS.items() if axis in (*factor.axes, *dropped))
    return [replace(pair, free=free) for group in groups.values() for pair in _opposed(group, factor, between)]


def across(base: Observed, other: Observed, factor: Factor | None, ignored: frozenset[str]) -> list[Pair]:
    """Pairs of two runs: the same case in both, but for the axes of the factor and those ignored.

    Raises:
        RequestError: no case in common, several where one is needed, or another environment.
    """
    base_cells, other_cells = told_apart(base, other, factor, _axes(ignored, base, other))
    common = [key for key in base_cells if key in other_cells]
    if not common:
        raise RequestError(f"{base.name} and {other.name} have no case in common: {_apart(base_cells, other_cells)}.")
    pairs = [Pair(base_cells[key], other_cells[key], base.name, other.name) for key in common]
    of_base = environment.facts(base, [pair.base.case for pair in pairs])
    of_other = environment.facts(other, [pair.other.case for pair in pairs])
    nothing = Factor("run", (), frozenset(), lambda case: "", lambda case: 0)
    return _checked(pairs, of_base, of_other, factor or nothing, ignored)


def refuse_not_in_turns(base: Observed, other: Observed) -> None:
    """Raise where launches of equal number cannot have been measured together, as far as the runs say.

    Raises:
        RequestError: folders of launches with other names, or all launches of one were made before those of the other.
    """
    base_names, other_names = ([folder.name for _, folder in run.folders] for run in (base, other))
    if max(len(base_names), len(other_names)) < 2:
        return
    if base_names != other_names:
        apart = sorted(set(base_names) ^ set(other_names))
        raise RequestError(
            f"--in-blocks: {base.name} and {other.name} hold different launches: {', '.join(apart[:4])} in only one of "
            "them. Give the launches of one block the same folder name in both."
        )
    made = [sorted(manifest.created for manifest in run.manifests) for run in (base, other)]
    if made[0][-1] < made[1][0] or made[1][-1] < made[0][0]:
        raise RequestError(
            f"--in-blocks: {base.name} and {other.name} were not measured in turns: according to their manifests, all "
            "launches of one began before those of the other."
        )


def without_partner(observed: Observed, factor: Factor, pairs: list[Pair]) -> int:
    """How many cells of the sides that are compared are in no pair."""
    paired = {id(cell) for pair in pairs for cell in (pair.base, pair.other)}
    sides = {name for pair in pairs for name in (pair.base_name, pair.other_name)}
    return sum(factor.label(case) in sides and id(cell) not in paired for case, cell in observed.cells.items())


def _opposed(cells: list[Cell], factor: Factor, between: tuple[str, ...]) -> Iterable[Pair]:
    ordered = sorted(cells, key=lambda cell: factor.order(cell.case))
    if between:  # the first one named is the base
        named = [[cell for cell in ordered if _named(factor.label(cell.case), name)] for name in between]
        chosen = [(base, other) for base in named[0] for other in named[1]]
    else:
        chosen = [(base, other) for index, other in enumerate(ordered) for base in ordered[:index]]
    seen = set[int]()
    for base, other in chosen:
        base_name, other_name = factor.label(base.case), factor.label(other.case)
        if base_name != other_name and (between or id(other) not in seen) and factor.opposed(base.case, other.case):
            seen.add(id(other))
            yield Pair(base, other, base_name, other_name)


def _named(label: str, name: str) -> bool:
    """A side by its whole name, or by its policy at every step; `true` and `false` for yes and no."""
    return name in (label, label.split(" ")[0]) or SYNONYMS.get(name.lower()) == label


def _side(case: Case) -> tuple[object, ...]:
    return (case.where.image, case.where.side, case.where.on_host, case["backend"] or case.workload)


def axes_by_name(*runs: Observed) -> dict[str, str]:
    """The axes of the table and of these runs, by the names that are typed."""
    known = {*AXES, *(name for run in runs for name in names_in(run.cells))}
    return {name.replace("_", "-"): name for name in sorted(known)}


def _axes(ignored: frozenset[str], *runs: Observed) -> tuple[str, ...]:
    return tuple(axis for name, axis in axes_by_name(*runs).items() if name in ignored)


def _apart(base: dict[Case, Cell], other: dict[Case, Cell]) -> str:
    """`dtype float32 against float64`: the axes on which no value is shared; else that the combinations differ."""
    if not base or not other:
        return "one of them holds no records"
    axes = {}
    for name in names_in([*base, *other]):
        of_base, of_other = ({key[name] for key in keys} for keys in (base, other))
        if not of_base & of_other:
            axes[name] = f"{_values(name, of_base)} against {_values(name, of_other)}"
    if not axes:
        return "every value occurs in both, but no combination of values does"
    spelled = [name.replace("_", "-") for name in axes]
    listed = "; ".join(f"{name} {values}" for name, values in zip(spelled, axes.values(), strict=True))
    without = [[key.without(tuple(axes)) for key in keys] for keys in (base, other)]
    if any(len(set(keys)) < len(keys) for keys in without):
        return f"{listed}. To ignore this would leave several cells of one case, so these runs cannot be compared"
    if not set(without[0]) & set(without[1]):
        return f"{listed}. Without this the cases differ too, so these runs cannot be compared"
    return f"{listed}. To compare anyway: {' '.join(f'--ignore {name}' for name in spelled)}"


def _values(axis: str, values: Iterable[Value]) -> str:
    return ", ".join(sorted(map(axis_of(axis).label, values))[:4])


def _nothing_opposed(observed: Observed, factor: Factor, between: tuple[str, ...]) -> RequestError:
    labels = sorted({factor.label(cell.case) for cell in observed.cells.values()})
    if not labels:
        return RequestError(f"{observed.name}: no records to compare.")
    sides = f"It has {', '.join(labels)}."
    if between:
        return RequestError(f"{observed.name}: nothing to compare between {' and '.join(between)}. {sides}")
    others = [name for name, possible in FACTORS.items() if possible.varies(observed.cells)]
    hint = f" Its cells differ in: {', '.join(others)}." if others else " Name a second run to compare it with."
    if len(labels) > 1:
        rest = ", ".join(f"--ignore {name.replace('_', '-')}" for name in _in_the_way(observed, factor))
        hint = f" No two of its cells differ in that alone. To let other factors differ too: {rest}."
    return RequestError(f"{observed.name}: nothing to compare by {factor.name}. {sides}{hint}")


def _in_the_way(observed: Observed, factor: Factor) -> list[str]:
    """Axes without which there are cells to compare, each alone; where none is enough, all in which cells differ."""
    cases = [cell.case for cell in observed.cells.values()]
    names = [name for name in names_in(cases) if name not in factor.axes and len({case[name] for case in cases}) > 1]

    def opposed_without(name: str) -> bool:
        sides: dict[Case, set[str]] = {}
        for case in cases:
            sides.setdefault(case.without((*factor.axes, name)), set()).add(factor.label(case))
        return any(len(labels) > 1 for labels in sides.values())

    return [name for name in names if opposed_without(name)] or names


def _explaining(apart: set[str]) -> str:
    """The fact that is the likeliest factor, of those with which all others come; empty where no fact explains all."""
    likely = sorted(apart, key=lambda name: (_QUESTIONS.index(name) if name in _QUESTIONS else len(_QUESTIONS), name))
    return next((name for name in likely if apart <= of_fact(name).implied), "")


def _checked(
    pairs: list[Pair], base: dict[str, str], other: dict[str, str], factor: Factor, ignored: frozenset[str]
) -> list[Pair]:
    """The pairs, each with what else its sides differ in besides the factor, by the facts of both.

    Raises:
        RequestError: the environment differs in what changes numbers, and nobody said to ignore it.
    """
    python = any(dict(how).get("driver") == "python" for pair in pairs for how in (*pair.base.how, *pair.other.how))
    if factor.axes and not any(pair.base.case[axis] != pair.other.case[axis] for pair in pairs for axis in factor.axes):
        factor = replace(factor, implied=frozenset())  # the sides do not differ in it, so nothing comes with it
    differences = environment.differences(base, other)
    unsaid = environment.unsaid(base, other)
    mentioned = environment.MENTIONED | unsaid | (frozenset() if python else environment.PYTHON)
    wrong = {name: text for name, text in differences.items()
             if name not in mentioned | ignored and not factor.implies(name)}  # fmt: skip
    if wrong:
        listed = "".join(f"\n  {name}: {text}" for name, text in wrong.items())
        apart = {name for name in differences if name not in mentioned | ignored}
        likely = "" if factor.axes else _explaining(apart)
        raise RequestError(
            f"{pairs[0].base_name} and {pairs[0].other_name} differ in more than what is asked about:{listed}\n"
            f"{_other_software(pairs, factor, wrong)}{likely and f'To compare by one of these: --by {likely}. '}"
            f"To compare anyway: --ignore {','.join(wrong)}"
        )
    refuse_other_device(pairs, ignored)
    remarks = tuple(f"{name}: {text}" for name, text in differences.items() if not factor.implies(name))
    asked = tuple(f"{name}: {text}" for name, text in differences.items() if name == factor.name)
    axes = (*factor.axes, *_axes(ignored))
    free = frozenset(name for name, axis in METHODS.items() if name in ignored or axis in axes)
    return [replace(pair, free=free, remarks=remarks, asked=asked) for pair in pairs]


def _other_software(pairs: list[Pair], factor: Factor, wrong: Iterable[str]) -> str:
    """Ways out where a container has other programs or libraries than the host; empty elsewhere."""
    if "policy" not in factor.axes or not {"library", "library-file"} & {*wrong}:
        return ""
    if pairs[0].base.case["backend"]:
        return "To compare host and container with their libraries: --by library. "
    image = "collbench image build tools --base debian:bookworm-slim"
    return (f"Measure in an image on the host's release, which has the same programs ({image}, say), or make the "
            "programs the question: --by library. ")  # fmt: skip
