"""Which cell is held against which: two sides that differ in the factor asked about, and in nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from collbench.analysis import environment
from collbench.analysis.factors import FACTORS, Factor
from collbench.analysis.observations import Cell, Observed
from collbench.errors import RequestError
from collbench.schema.axes import AXES
from collbench.schema.case import Case, names_in

#: Ways of measuring by which numbers of one case may be incomparable, and the axes of the case that ask for them.
METHODS = {"driver": "driver", "gate": "", "cadence": "", "clock": "", "burst": "", "place": "in_place"}

#: What people ask about two runs, the likeliest first.
_QUESTIONS = ("library", "gpu-driver", "gpu", "kernel", "cpu", "collbench", "image-id")


@dataclass(frozen=True)
class Pair:
    """Two cells that answer one question. `free` are the ways of measuring in which they may differ (`METHODS`)."""

    base: Cell
    other: Cell
    base_name: str
    other_name: str
    free: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()


def within(observed: Observed, factor: Factor, ignored: frozenset[str], between: tuple[str, ...] = ()) -> list[Pair]:
    """Pairs of one run: each side against the first in order that it can be held against; or the two in `between`.

    Raises:
        RequestError: the run has only one side, or not those of `between`; or they differ in the environment.
    """
    groups: dict[Case, list[Cell]] = {}
    for cell in observed.cells.values():
        groups.setdefault(cell.case.without(factor.axes + _axes(ignored, observed)), []).append(cell)
    pairs = [pair for cells in groups.values() for pair in _opposed(cells, factor, between)]
    if not pairs:
        raise _nothing_opposed(observed, factor, between)
    by_sides: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        by_sides.setdefault((_side(pair.base.case), _side(pair.other.case)), []).append(pair)
    compared = []
    for same in by_sides.values():
        mine = environment.facts(observed, [same[0].base.case])
        theirs = environment.facts(observed, [same[0].other.case])
        compared += _checked(same, environment.differences(mine, theirs), factor, ignored)
    return compared


def across(base: Observed, other: Observed, factor: Factor | None, ignored: frozenset[str]) -> list[Pair]:
    """Pairs of two runs: the same case in both, but for the axes of the factor and those ignored.

    Raises:
        RequestError: no case in common, several where one is needed, or another environment.
    """
    dropped = (factor.axes if factor else ()) + _axes(ignored, base, other)
    mine, theirs = _keyed(base, dropped), _keyed(other, dropped)
    common = [key for key in mine if key in theirs]
    if not common:
        raise RequestError(f"{base.name} and {other.name} have no case in common: {_apart(mine, theirs)}.")
    pairs = [Pair(mine[key], theirs[key], base.name, other.name) for key in common]
    facts = (environment.facts(base, [pair.base.case for pair in pairs]),
             environment.facts(other, [pair.other.case for pair in pairs]))  # fmt: skip
    nothing = Factor("run", (), frozenset(), lambda case: "", lambda case: 0)
    return _checked(pairs, environment.differences(*facts), factor or nothing, ignored)


def refuse_not_in_turns(base: Observed, other: Observed) -> None:
    """Raise where launches of equal number cannot have been measured together, as far as the runs tell.

    Raises:
        RequestError: folders of launches with other names, or all launches of one were made before those of the other.
    """
    mine, theirs = ([folder.name for _, folder in one.folders] for one in (base, other))
    if max(len(mine), len(theirs)) < 2:
        return
    if mine != theirs:
        apart = sorted(set(mine) ^ set(theirs))
        raise RequestError(
            f"--in-blocks: {base.name} and {other.name} hold other launches: {', '.join(apart[:4])} in one of them "
            "only. Give launches of one block the same name in both."
        )
    made = [sorted(manifest.created for manifest in one.manifests) for one in (base, other)]
    if made[0][-1] < made[1][0] or made[1][-1] < made[0][0]:
        raise RequestError(
            f"--in-blocks: {base.name} and {other.name} were not measured in turns: by their manifests, all launches "
            "of one began before those of the other."
        )


def without_partner(observed: Observed, factor: Factor, pairs: list[Pair]) -> int:
    """How many cells of the sides that are compared are in no pair."""
    paired = {id(cell) for pair in pairs for cell in (pair.base, pair.other)}
    sides = {name for pair in pairs for name in (pair.base_name, pair.other_name)}
    return sum(factor.label(case) in sides and id(cell) not in paired for case, cell in observed.cells.items())


def _opposed(cells: list[Cell], factor: Factor, between: tuple[str, ...]) -> Iterable[Pair]:
    ordered = sorted(cells, key=lambda cell: factor.order(cell.case))
    if between:  # the first named is the one that the other is held against
        named = [[cell for cell in ordered if _named(factor.label(cell.case), name)] for name in between]
        chosen = [(base, other) for base in named[0] for other in named[1]]
    else:
        chosen = [(base, other) for index, other in enumerate(ordered) for base in ordered[:index]]
    seen = set[int]()
    for base, other in chosen:
        mine, theirs = factor.label(base.case), factor.label(other.case)
        if mine != theirs and (between or id(other) not in seen) and factor.opposed(base.case, other.case):
            seen.add(id(other))
            yield Pair(base, other, mine, theirs)


def _named(label: str, name: str) -> bool:
    """A side by its whole name, or by its policy at every step."""
    return name in (label, label.split(" ")[0])


def _side(case: Case) -> tuple[object, ...]:
    return (case.where.image, case.where.on_host, case["backend"])


def _axes(ignored: frozenset[str], *runs: Observed) -> tuple[str, ...]:
    """The axes of these runs, or of none, that have one of these names."""
    known = {*AXES, *(name for run in runs for name in names_in(run.cells))}
    return tuple(sorted(name for name in known if name.replace("_", "-") in ignored))


def _keyed(observed: Observed, dropped: tuple[str, ...]) -> dict[Case, Cell]:
    keyed: dict[Case, Cell] = {}
    for cell in observed.cells.values():
        key = cell.case.without(dropped)
        if key in keyed:
            one, two = (str(_shown(c.case, dropped)) for c in (keyed[key], cell))
            raise RequestError(
                f"{observed.name} has several cells where one is needed: {one} and {two}. "
                "Ask within one run (collbench compare RUN --by ...), or do not ignore what tells them apart."
            )
        keyed[key] = cell
    return keyed


def _shown(case: Case, axes: tuple[str, ...]) -> dict[str, object]:
    return {name: case[name] for name in axes}


def _apart(mine: dict[Case, Cell], theirs: dict[Case, Cell]) -> str:
    """`dtype float32 against float64`: the axes on which no value is shared; else that the combinations differ."""
    found = []
    for name in names_in([*mine, *theirs]):
        one, other = ({key[name] for key in keys} for keys in (mine, theirs))
        if one and other and not one & other:
            found.append(f"{name.replace('_', '-')} {_values(one)} against {_values(other)}")
    if not mine or not theirs:
        return "one of them holds no records"
    if not found:
        return "every value occurs in both, but no combination"
    return f"{'; '.join(found)}. To insist: {' '.join(f'--ignore {text.split()[0]}' for text in found)}"


def _values(values: set[object]) -> str:
    return ", ".join(sorted(map(str, values))[:4])


def _nothing_opposed(observed: Observed, factor: Factor, between: tuple[str, ...]) -> RequestError:
    labels = sorted({factor.label(cell.case) for cell in observed.cells.values()})
    if not labels:
        return RequestError(f"{observed.name}: no records to compare.")
    there = f"It has {', '.join(labels)}."
    if between:
        return RequestError(f"{observed.name}: nothing to compare between {' and '.join(between)}. {there}")
    others = [
        name
        for name, one in FACTORS.items()
        if len({tuple(cell.case[axis] for axis in one.axes) for cell in observed.cells.values()}) > 1
    ]
    hint = f" Its cells differ by: {', '.join(others)}." if others else " Name a second run to compare it with."
    if factor.name in others:
        cases = [cell.case for cell in observed.cells.values()]
        differing = [name for name in names_in(cases) if len({case[name] for case in cases}) > 1]
        rest = ", ".join(f"--ignore {name.replace('_', '-')}" for name in differing if name not in factor.axes)
        hint = f" No two of its cells differ in that alone. To let other things differ too: {rest}."
    return RequestError(f"{observed.name}: nothing to compare by {factor.name}. {there}{hint}")


def _checked(pairs: list[Pair], found: dict[str, str], factor: Factor, ignored: frozenset[str]) -> list[Pair]:
    """The pairs with what they differ in besides the factor.

    Raises:
        RequestError: the environment differs in what changes numbers, and nobody said to ignore it.
    """
    python = any(dict(how).get("driver") == "python" for pair in pairs for how in (*pair.base.how, *pair.other.how))
    said = environment.SAID | (frozenset() if python else environment.PYTHON)
    wrong = {name: text for name, text in found.items() if name not in said | factor.implied | ignored}
    if wrong:
        listed = "".join(f"\n  {name}: {text}" for name, text in wrong.items())
        asked = next((name for name in _QUESTIONS if name in wrong), next(iter(wrong)))
        raise RequestError(
            f"{pairs[0].base_name} and {pairs[0].other_name} differ in more than what is asked about:{listed}\n"
            f"If one of these is the question: --by {asked}. To compare all the same: --ignore {','.join(wrong)}"
        )
    remarks = tuple(f"{name}: {text}" for name, text in found.items() if name not in factor.implied)
    axes = (*factor.axes, *_axes(ignored))
    free = frozenset(name for name, axis in METHODS.items() if name in ignored or axis in axes)
    return [replace(pair, free=free, remarks=remarks) for pair in pairs]


def methods(cell: Cell) -> dict[str, str]:
    """How the numbers of a cell were taken; several ways side by side."""
    found: dict[str, set[str]] = {}
    for how in cell.how:
        for name, value in how:
            found.setdefault(name, set()).add(value)
    return {name: " and ".join(sorted(values)) for name, values in found.items()}
