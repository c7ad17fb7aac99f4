"""Which cells are compared: two sides that differ in the factor asked about, and in nothing else.

Contention is not symmetrical: the weight of its control group decides how much each side is delayed by a busy core.
So alternating does not cancel it, and a block of launches that was contended on one side is left out on both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

from collbench.analysis import factors
from collbench.analysis.estimate import FEWEST
from collbench.analysis.factors import FACTORS, MENTIONED, PYTHON, Factor, differences_of, facts_of, of_fact, side_of
from collbench.analysis.results import Cell, Way, grouped, methods
from collbench.analysis.runs import Observed
from collbench.errors import RequestError
from collbench.schema.axes import AXES, SYNONYMS, Value, axis_of
from collbench.schema.case import Case, names_in

Keyed = dict[Case, Cell]


@dataclass(frozen=True)
class Pair:
    """Two cells that are compared. `free` are the facts of the measuring in which they may differ (`pairs.METHODS`).

    `remarks` say in what else the sides differ, `asked` what the fact that is the question is on each.
    """

    base: Cell
    other: Cell
    base_name: str
    other_name: str
    free: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    factor_differences: tuple[str, ...] = ()


def _match_cells(
    base: Observed, other: Observed, factor: Factor | None, ignored: tuple[str, ...]
) -> tuple[Keyed, Keyed]:  # fmt: skip
    """The cells of both runs by what tells them apart without the factor: as few of its axes as give most pairs."""
    matched: list[tuple[Keyed, Keyed]] = []
    several: RequestError | None = None
    for axes in (*factor.fewer, factor.axes) if factor else ((),):
        try:
            of_base, of_other = (_keyed(run, axes + ignored, factor, (base, other)) for run in (base, other))
            matched.append((of_base, of_other))
        except RequestError as error:
            several = error
    paired = [len(of_base.keys() & of_other.keys()) for of_base, of_other in matched]
    if several is not None and not any(paired):
        raise several
    return matched[paired.index(max(paired))]


def _keyed(observed: Observed, dropped: tuple[str, ...], factor: Factor | None, runs: tuple[Observed, ...]) -> Keyed:
    """Raises RequestError where two cells differ only in what is dropped."""
    keyed: Keyed = {}
    for case, cell in observed.cells.items():
        if (first := keyed.setdefault(case.without(dropped), cell)) is not cell:
            raise _several(observed.name, first.case, case, dropped, factor, runs)
    return keyed


def _several(
    run: str, first: Case, second: Case, dropped: tuple[str, ...], factor: Factor | None, runs: tuple[Observed, ...]
) -> RequestError:  # fmt: skip
    axes = [axis_of(name) for name in dropped if first[name] != second[name]]
    listed = "; ".join(f"{axis.spelled} {axis.label(first[axis.name])} and {axis.label(second[axis.name])}"
                       for axis in axes)  # fmt: skip
    by = f"--by {factor.name if factor else 'FACTOR'}"
    chosen = _choosing(dropped, runs)
    return RequestError(
        f"{run} has several cells of one case, which differ in {listed}. Between two runs, or a run and a "
        f"baseline, only one can be compared. {f'Choose one of them: {chosen}. ' if chosen else ''}{by} within one run "
        f"compares its sides: collbench compare RUN {by}, without a second run and without --baseline."
    )


def _choosing(dropped: tuple[str, ...], runs: tuple[Observed, ...]) -> str:
    """`--given policy=multi`: values of as few axes as leave one cell of each case in both runs, and some in common."""
    cases = [list(run.cells) for run in runs]
    names = [name for name in dropped if any(len({case[name] for case in of_run}) > 1 for of_run in cases)]
    for chosen in (some for number in (1, 2) for some in combinations(names, number)):
        values = [{tuple(case[name] for name in chosen) for case in of_run} for of_run in cases]
        for wanted in sorted(set.intersection(*values), key=str, reverse=True):
            left = [[case for case in of_run if tuple(case[name] for name in chosen) == wanted] for of_run in cases]
            keys = [[case.without(dropped) for case in of_run] for of_run in left]
            if all(len(set(of_run)) == len(of_run) for of_run in keys) and set(keys[0]) & set(keys[1]):
                return " ".join(f"--given {axis_of(name).spelled}={axis_of(name).label(value)}"
                                for name, value in zip(chosen, wanted, strict=True))  # fmt: skip
    return ""


#: The device of a record's transport: `overlay on ext4 (vda)`.
_DEVICE = re.compile(r"\(([^()]+)\)")


class SidesDiffer(RequestError):
    """Sides differ in what nobody asked about: `facts`, by name what each has."""

    def __init__(self, message: str, facts: Mapping[str, str]) -> None:
        super().__init__(message)
        self.facts = facts


def listed_facts(refusal: RequestError) -> str:
    """`library: a against b`: the facts in which sides differ; else the first sentence of a refusal."""
    if isinstance(refusal, SidesDiffer):
        return "; ".join(f"{name}: {text}" for name, text in refusal.facts.items())
    return str(refusal).splitlines()[0].removesuffix(".")


def refuse_other_device(pairs: Iterable[Pair], ignored: frozenset[str]) -> None:
    """Raises SidesDiffer where the files of both sides were on known devices, which differ, unless that is ignored."""
    if "transport" in ignored:
        return
    differing = [pair for pair in pairs
                 if (base := _devices(pair.base)) and (other := _devices(pair.other)) and base != other]  # fmt: skip
    if not differing:
        return
    lines, facts = dict[str, None](), dict[str, None]()
    for pair in differing:
        base_on, other_on = (" and ".join(sorted(cell.transports)) for cell in (pair.base, pair.other))
        lines[f"\n  storage of {pair.base_name} lay on {base_on}, that of {pair.other_name} on {other_on}"] = None
        facts[f"{base_on} against {other_on}"] = None
    raise SidesDiffer(
        f"Two devices would be compared:{''.join(lines)}\n"
        "Measure both on one device (folder = ... in the plan). To compare anyway: --ignore transport",
        {"storage": "; ".join(facts)},
    )


def _devices(cell: Cell) -> set[str]:
    """The devices of a program's files; empty where they are in memory, or nothing tells."""
    if cell.case["backend"]:
        return set()
    return {match[1] for text in cell.transports if (match := _DEVICE.search(text))}


#: Facts of the measuring that can make two numbers of one case incomparable, and the axes of the case that set them.
METHODS = {"driver": "driver", "align": "", "cadence": "", "clock": "", "burst": "", "place": "in_place"}

#: What people ask about two runs, the likeliest first.
_QUESTIONS = ("library", "gpu-driver", "gpu", "kernel", "cpu", "collbench", "image-id")


def within(observed: Observed, factor: Factor, ignored: frozenset[str], between: tuple[str, ...] = ()) -> list[Pair]:
    """Pairs of one run, or RequestError: each side against the first that it can be compared with; or the `between`."""
    pairs = opposed(observed.cells.values(), factor, _axes(ignored, observed), between)
    if not pairs:
        raise _nothing_opposed(observed, factor, between)
    by_sides = grouped(((side_of(pair.base.case), side_of(pair.other.case)), pair) for pair in pairs)
    checked = []
    for same in by_sides.values():
        facts = facts_of(observed, [same[0].base.case]), facts_of(observed, [same[0].other.case])
        checked += _checked(same, *facts, factor, ignored)
    return checked


def own_sides(observed: Observed) -> list[Pair]:
    """Pairs of the sides of a run, or else of the first place or method that its cells differ in; empty: none can be.

    Raises SidesDiffer: they differ in more.
    """
    named = [name for name, known in FACTORS.items() if all(AXES[axis].kind != "what" for axis in known.axes)]
    own = dict.fromkeys(name for case in observed.cells for name in case.how if name not in AXES)
    possible = (factors.find_factor(name, (), own) for name in ("side", *named, *own))
    factor = next((factor for factor in possible if factor.varies(observed.cells)), None)
    if factor is None or all(len(cell.medians) < 2 for cell in observed.cells.values()):
        return []
    try:
        return within(observed, factor, frozenset())
    except SidesDiffer:
        raise
    except RequestError:
        return []


def opposed(
    cells: Iterable[Cell], factor: Factor, dropped: tuple[str, ...] = (), between: tuple[str, ...] = ()
) -> list[Pair]:
    """The same of cells, whatever the environments: pairs that differ in the factor, and in `dropped` axes."""
    free = frozenset(name for name, axis in METHODS.items() if axis in (*factor.axes, *dropped))
    pairs = []
    for group in grouped((cell.case.without(factor.axes + dropped), cell) for cell in cells).values():
        ordered = sorted(group, key=lambda cell: factor.order(cell.case))
        in_order = ((base, other) for index, other in enumerate(ordered) for base in ordered[:index])
        named = [[cell for cell in ordered if _named(factor.label(cell.case), name)] for name in between]
        done = set[int]()
        for base, other in product(*named) if between else in_order:  # the first one named is the base
            names = factor.label(base.case), factor.label(other.case)
            is_new = names[0] != names[1] and (between or id(other) not in done)
            if is_new and factor.opposed(base.case, other.case):
                done.add(id(other))
                pairs.append(Pair(base, other, *names, free))
    return pairs


def across(base: Observed, other: Observed, factor: Factor | None, ignored: frozenset[str]) -> list[Pair]:
    """Pairs of two runs, or RequestError: the same case in both, but for the axes of the factor and those ignored."""
    base_cells, other_cells = _match_cells(base, other, factor, _axes(ignored, base, other))
    common = [key for key in base_cells if key in other_cells]
    if not common:
        raise RequestError(f"{base.name} and {other.name} have no case in common: {_apart(base_cells, other_cells)}.")
    pairs = [Pair(base_cells[key], other_cells[key], base.name, other.name) for key in common]
    facts = facts_of(base, [pair.base.case for pair in pairs]), facts_of(other, [pair.other.case for pair in pairs])
    return _checked(pairs, *facts, factor or Factor("run", (), frozenset()), ignored)


def refuse_not_alternated(base: Observed, other: Observed) -> None:
    """Raises RequestError where launches of equal number cannot have been measured together, as far as runs say."""
    base_names, other_names = ([folder.name for _, folder in run.folders] for run in (base, other))
    if max(len(base_names), len(other_names)) < 2:
        return
    if base_names != other_names:
        odd = sorted(set(base_names) ^ set(other_names))
        raise RequestError(
            f"--in-blocks: {base.name} and {other.name} hold different launches: {', '.join(odd[:4])} in only one of "
            "them. Give the launches of one block the same folder name in both."
        )
    times = [sorted(manifest.created for manifest in run.manifests) for run in (base, other)]
    if times[0][-1] < times[1][0] or times[1][-1] < times[0][0]:
        raise RequestError(
            f"--in-blocks: {base.name} and {other.name} were not measured alternately: according to their manifests, "
            "all launches of one began before those of the other."
        )


def without_partner(observed: Observed, factor: Factor, pairs: list[Pair]) -> int:
    """How many cells of the sides that are compared are in no pair."""
    paired = {id(cell) for pair in pairs for cell in (pair.base, pair.other)}
    sides = {name for pair in pairs for name in (pair.base_name, pair.other_name)}
    return sum(factor.label(case) in sides and id(cell) not in paired for case, cell in observed.cells.items())


def _named(label: str, name: str) -> bool:
    """A side by its whole name, or by its policy at every step; `true` and `false` for yes and no."""
    return name in (label, label.split(" ")[0]) or SYNONYMS.get(name.lower()) == label


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
        hint = " No two of its cells differ in that alone."
        if flags := ", ".join(f"--ignore {name.replace('_', '-')}" for name in _in_the_way(observed, factor)):
            hint += f" To let other factors differ too: {flags}."
    return RequestError(f"{observed.name}: nothing to compare by {factor.name}. {sides}{hint}")


def _in_the_way(observed: Observed, factor: Factor) -> list[str]:
    """Axes without which there are cells to compare, each alone; where none is enough, all in which cells differ."""
    cases = [cell.case for cell in observed.cells.values()]
    names = [name for name in names_in(cases) if name not in factor.axes and len({case[name] for case in cases}) > 1]

    def opposed_without(name: str) -> bool:
        sides = grouped((case.without((*factor.axes, name)), factor.label(case)) for case in cases)
        return any(len({*labels}) > 1 for labels in sides.values())

    return [name for name in names if opposed_without(name)] or names


def _checked(
    pairs: list[Pair], base: dict[str, str], other: dict[str, str], factor: Factor, ignored: frozenset[str]
) -> list[Pair]:
    """The pairs, each with what else its sides differ in. Raises SidesDiffer where that changes numbers."""
    python = any(dict(how).get("driver") == "python" for pair in pairs for how in (*pair.base.how, *pair.other.how))
    if factor.axes and not any(pair.base.case[axis] != pair.other.case[axis] for pair in pairs for axis in factor.axes):
        factor = replace(factor, implied=frozenset())  # the sides do not differ in it, so nothing comes with it
    differences = differences_of(base, other)
    # not every engine knows these facts, or older runs lack them
    unknown = {name for name in ("image-id", "priority", "huge-pages") if not (base.get(name) and other.get(name))}
    mentioned = MENTIONED | unknown | (frozenset() if python else PYTHON)
    wrong = {name: text for name, text in differences.items()
             if name not in mentioned | ignored and not factor.implies(name)}  # fmt: skip
    if wrong:
        listed = "".join(f"\n  {name}: {text}" for name, text in wrong.items())
        apart = {name for name in differences if name not in mentioned | ignored}
        likeliest = [name for name in (*_QUESTIONS, *sorted(apart - {*_QUESTIONS})) if name in apart]
        all_come_with = (name for name in likeliest if all(map(of_fact(name).implies, apart)))
        likely = "" if factor.axes else next(all_come_with, "")
        raise SidesDiffer(
            f"{pairs[0].base_name} and {pairs[0].other_name} differ in more than what is asked about:{listed}\n"
            f"{_other_software(pairs, factor, wrong)}{likely and f'To compare by one of these: --by {likely}. '}"
            f"To compare anyway: --ignore {','.join(wrong)}",
            wrong,
        )
    refuse_other_device(pairs, ignored)
    remarks = tuple(f"{name}: {text}" for name, text in differences.items() if not factor.implies(name))
    factor_differences = tuple(f"{name}: {text}" for name, text in differences.items() if name == factor.name)
    axes = (*factor.axes, *_axes(ignored))
    free = frozenset(name for name, axis in METHODS.items() if name in ignored or axis in axes)
    return [replace(pair, free=free, remarks=remarks, factor_differences=factor_differences) for pair in pairs]


def _other_software(pairs: list[Pair], factor: Factor, wrong: Iterable[str]) -> str:
    """Ways out where a container has other programs or libraries than the host; empty elsewhere."""
    if "policy" not in factor.axes or not {"library", "library-file"} & {*wrong}:
        return ""
    if pairs[0].base.case["backend"]:
        return "To compare host and container with their libraries: --by library. "
    image = "collbench image build tools --base debian:bookworm-slim"
    return (f"Measure in an image on the host's release, which has the same programs ({image}, say), or make the "
            "programs the question: --by library. ")  # fmt: skip


#: By name the values of a fact of the measuring on both sides.
Differences = tuple[tuple[str, str, str], ...]


class Alike(NamedTuple):
    """Medians (s) of the launches that count and their numbers; in blocks, entry i of both is of one block.

    `refused`: in what sides differ where too few agree; `left_out`: how many launches were measured in another way.
    """

    base: list[float]
    other: list[float]
    of_base: list[int]
    of_other: list[int]
    refused: Differences = ()
    left_out: int = 0


def alike(pair: Pair, in_blocks: bool) -> Alike:
    """The launches of both sides that were measured alike; all launches where too few were."""
    if not in_blocks:
        return _of_sides(pair)
    base, other = (dict(zip(cell.launches, zip(cell.medians, cell.ways, strict=True), strict=True))
                   for cell in (pair.base, pair.other))  # fmt: skip
    common = sorted(base.keys() & other.keys())
    agreed = [n for n in common if not apart(base[n][1], other[n][1], pair.free)]
    refused = () if len(agreed) >= min(FEWEST, len(common)) else method_differences(pair)
    blocks = common if refused else agreed
    left_out = len(common) - len(blocks)
    return Alike([base[n][0] for n in blocks], [other[n][0] for n in blocks], blocks, blocks, refused, left_out)


def _of_sides(pair: Pair) -> Alike:
    """All launches where both sides were measured in one way; else those of the way with the most launches of both."""
    base, other = pair.base, pair.other
    whole = Alike(base.medians, other.medians, base.launches, other.launches)
    if not any(apart(of_base, of_other, pair.free) for of_base in base.how for of_other in other.how):
        return whole
    each = {way: (_of_way(base, way, pair.free), _of_way(other, way, pair.free)) for way in base.how}
    of_base, of_other = each[max(each, key=lambda way: (min(map(len, each[way])), way))]
    if min(len(of_base), len(of_other)) < FEWEST:
        return whole._replace(refused=method_differences(pair))
    left_out = len(base.medians) - len(of_base) + len(other.medians) - len(of_other)
    return Alike([*of_base.values()], [*of_other.values()], [*of_base], [*of_other], (), left_out)


def _of_way(cell: Cell, way: Way, free: frozenset[str]) -> dict[int, float]:
    rows = zip(cell.launches, cell.medians, cell.ways, strict=True)
    return {launch: time for launch, time, launch_way in rows if not apart(launch_way, way, free)}


@lru_cache(maxsize=1024)  # few ways, a million records
def apart(of_base: Way, of_other: Way, free: frozenset[str]) -> bool:
    """Whether two ways of measuring differ in what is recorded of both, but for what is free."""
    base, other = dict(of_base), dict(of_other)
    return any(base[name] != other[name] for name in base.keys() & other.keys() if name not in free)


def method_differences(pair: Pair) -> Differences:
    """In what the sides were measured differently: `("align", "barrier", "roundtime")`."""
    base, other = ({name: " and ".join(sorted(values)) for name, values in methods([cell]).items()}
                   for cell in (pair.base, pair.other))  # fmt: skip
    names = sorted(base.keys() & other.keys() - pair.free)
    return tuple((name, base[name], other[name]) for name in names if base[name] != other[name])


def undisturbed(pair: Pair, in_blocks: bool) -> tuple[Pair, int]:
    """The pair without contended launches, and how many these are: in blocks, of those that both sides have."""
    of_base, of_other = pair.base.disturbed, pair.other.disturbed
    if not of_base and not of_other:
        return pair, 0
    number = len(of_base) + len(of_other)
    if in_blocks:
        of_base = of_other = of_base | of_other
        number = len(of_base & {*pair.base.launches} & {*pair.other.launches})
    return replace(pair, base=pair.base.without(of_base), other=pair.other.without(of_other)), number
