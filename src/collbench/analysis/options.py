"""What the reader of a run can choose, and what each choice took: questions, options, and their cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from collbench.analysis.factors import FACTORS as OF_COMPARE
from collbench.analysis.factors import MENTIONED, differences_of, facts_of, is_allowed
from collbench.analysis.results import Cell, grouped, joined
from collbench.analysis.runs import Observed, refuse_together
from collbench.errors import RequestError, suggestion
from collbench.schema.axes import AXES, SOFTWARE, STEPS, SYNONYMS, PolicyOrder, axis_of, policy_order, step_order
from collbench.schema.case import Case, names_in
from collbench.schema.manifest import Chosen, Manifest
from collbench.units import parse_size

_ADVISED = sorted((axis for axis in AXES.values() if axis.advised), key=lambda axis: axis.kind != "where")
_NO_STEP = AXES["isolation"].label(None)

#: Factors in the order in which they are named. `library` is the image (on the host: the environment beside it, or the
#: library itself) and the backend; `engine` is used where there are several.
FACTORS = ("library", "engine", *(axis.spelled for axis in _ADVISED))


@dataclass(frozen=True, order=True)
class Option:
    """A value for each factor, in the order of `FACTORS`; empty for a default, and where the factor does not apply."""

    values: tuple[str, ...]

    def __getitem__(self, factor: str) -> str:
        return self.values[FACTORS.index(factor)]

    @property
    def isolation_order(self) -> tuple[PolicyOrder, int]:
        """From the least isolated to the most."""
        step = self["isolation"] or None
        return (policy_order(self["policy"]), step_order(step if step in STEPS else "strict"))


@dataclass(frozen=True)
class Question:
    """One operation on some ranks: cells by size asked for (bytes) and option; the factors that are `varying`.

    `choices` are what choices of GPUs or cores for so many ranks came to.
    """

    case: Case
    cells: dict[int, dict[Option, Cell]]
    varying: tuple[str, ...]
    choices: tuple[Chosen, ...] = ()

    @property
    def sizes(self) -> list[int]:
        return sorted(self.cells)

    @property
    def options(self) -> list[Option]:
        return sorted({option for cells in self.cells.values() for option in cells})

    def name(self, option: Option) -> str:
        """`mpich, single ipc`: the values of what varies."""
        values = {factor: value for factor in self.varying if (value := self.value(option, factor))}
        where = " ".join(values.pop(factor) for factor in ("policy", "isolation") if factor in values)
        software = [values.pop(factor) for factor in ("library", "side") if factor in values]
        rest = [f"{value} driver" if factor == "driver" else f"{factor} {value}" for factor, value in values.items()]
        return ", ".join(word for word in (*software, where, *rest) if word) or option["library"] or option["policy"]

    def value(self, option: Option, factor: str) -> str:
        """The value of a factor; memory that is near, and one host, are named where they vary."""
        named = factor in ("affinity", "gpus", "cores", "hosts") and factor in self.varying
        return option[factor] or (AXES[factor].label(AXES[factor].neutral) if named else "")

    def chosen(self, option: Option) -> Chosen | None:
        """What its choice of GPUs or cores came to; None where the plan has none, or it is not known or ambiguous."""
        known = [one for one in self.choices if one.choice == (option[one.axis] or AXES[one.axis].neutral)]
        return known[0] if len(known) == 1 else None

    def place(self, option: Option) -> str:
        """`single strict`, `host, affinity far`: policy and step, and the affinity where it varies."""
        where = " ".join(word for word in (option["policy"], option["isolation"]) if word)
        return f"{where}, affinity {self.value(option, 'affinity')}" if "affinity" in self.varying else where


def choices_in(manifests: Iterable[Manifest]) -> list[Chosen]:
    """What choices of GPUs or cores came to, each once."""
    choices: list[Chosen] = []
    for manifest in manifests:
        of_run = manifest.experiment.chosen if manifest.experiment else ()
        choices += [choice for choice in of_run if choice not in choices]
    return choices


def questions(observed: Observed, fixed: dict[str, str]) -> list[Question]:
    """The questions that a run answers, without options outside of `fixed`. Raises RequestError: nothing is left."""
    remaining = _cells_with(observed, fixed)
    by_case: dict[Case, dict[int, dict[Option, Cell]]] = {}
    chosen = ("image", "backend", "engine", "size", *(axis.name for axis in _ADVISED))
    for case, option in remaining:
        by_case.setdefault(case.without(chosen), {}).setdefault(case["size"], {})[option] = observed.cells[case]
    questions_of, choices = [], choices_in(observed.manifests)
    for case, cells in by_case.items():
        options = {option for of_size in cells.values() for option in of_size}
        varying = tuple(factor for factor in FACTORS if len({option[factor] for option in options}) > 1)
        of_ranks = tuple(choice for choice in choices if choice.ranks == case.where.ranks)
        questions_of.append(Question(case, cells, varying, of_ranks))
    return questions_of


def fixed_cells(observed: Observed, fixed: dict[str, str]) -> Observed:
    """The run with only those cells that have these values of factors. Raises RequestError: nothing is left."""
    return replace(observed, cells={case: observed.cells[case] for case, _ in _cells_with(observed, fixed)})


def _cells_with(observed: Observed, fixed: dict[str, str]) -> list[tuple[Case, Option]]:
    """Cases that have these values of factors, with their options; RequestError where there are none."""
    backends = {case["backend"] for case in observed.cells}
    engines = {case.where.engine for case in observed.cells if not case.where.on_host}
    library, programs = _library_of(observed), _programs(observed)
    values_of: dict[str, set[str]] = {factor: set() for factor in fixed}
    matching = []
    for case in observed.cells:
        named = programs.get(_program_at(case), library if case["backend"] else "")
        option = _option(case, named, len(backends) > 1, len(engines) > 1)
        words = {factor: _words(case, option, factor) for factor in fixed}
        for factor, known in words.items():
            values_of[factor].update(known[:1])
        if all(_is(words[factor], value) for factor, value in fixed.items()):
            matching.append((case, option))
    if not matching:
        values = "; ".join(f"{factor} is {' or '.join(sorted(known))}" for factor, known in values_of.items())
        raise RequestError(f"--given leaves nothing of {observed.name}, where {values}.")
    return matching


def parse_fixed(texts: Iterable[str], cases: Collection[Case]) -> dict[str, str]:
    """`policy=single` as a factor, or an axis of one of these cases, and its value; else raises RequestError."""
    known = tuple(dict.fromkeys((*FACTORS, *OF_COMPARE, *(name.replace("_", "-") for name in names_in(cases)))))
    fixed = {}
    for text in texts:
        factor, equals, value = text.partition("=")
        factor = factor.strip().replace("_", "-")
        if not equals or not value.strip():
            raise RequestError(f"--given {text!r}: write FACTOR=VALUE, as in policy=single.")
        if factor not in known:
            raise RequestError(f"--given {text!r}: unknown factor. {suggestion(factor, known)}")
        fixed[factor] = str(parse_size(value)) if factor == "size" else value.strip()
    return fixed


def _is(words: list[str], value: str) -> bool:
    """`true` and `false` stand for yes and no; the host has no step, so it remains whatever step is given."""
    return value in words or SYNONYMS.get(value.lower()) in words or (value in STEPS and words == [_NO_STEP])


def _library_of(observed: Observed) -> str:
    """The name of the library where no image names it."""
    names = {f"{library.name} {library.version}" for manifest in observed.manifests for library in manifest.libraries}
    return " and ".join(sorted(names))


def _words(case: Case, option: Option, factor: str) -> list[str]:
    """What a value may be called: its word among options, the axis's own, its name as a side of `--by`."""
    axis = factor.replace("-", "_")
    words = [option[factor]] if factor in FACTORS else []
    words += [axis_of(axis).label(case[axis])] if axis in AXES or factor not in FACTORS else []
    words += [OF_COMPARE[factor].label(case)] if factor in OF_COMPARE else []
    return list(dict.fromkeys(word for word in words if word))


#: A program, run in one way, and where.
ProgramAt = tuple[Case, str | None, bool]


def _program_at(case: Case) -> ProgramAt:
    way = Case(workload=case.workload, how={name: value for name, value in case.how.items() if name not in AXES})
    return way, case.where.image, case.where.on_host


def _programs(observed: Observed) -> dict[ProgramAt, str]:
    """What programs start or load at each place of a run, of those that are not the same everywhere."""
    libraries: dict[ProgramAt, str] = {}
    for case in observed.cells:
        if not case["backend"] and _program_at(case) not in libraries:
            libraries[_program_at(case)] = facts_of(observed, [case])["library"]
    of_way = grouped((way, library) for (way, *_), library in libraries.items())
    return {at: library for at, library in libraries.items() if len({*of_way[at[0]]}) > 1}


def _option(case: Case, library: str, several_backends: bool, several_engines: bool) -> Option:
    """`library` is that of a program only where it is not the same everywhere."""
    name = case.where.image or (case["backend"] and library) or case["backend"]
    if library and not case["backend"]:
        name = f"{name} ({library})" if name else library
    named = f"{name} {case['backend']}" if several_backends and case["backend"] not in name else name
    engine = case.where.engine if several_engines and not case.where.on_host else ""
    chosen = ("" if case[axis.name] == axis.neutral and axis.name != "policy" else axis.label(case[axis.name])
              for axis in _ADVISED)  # fmt: skip
    return Option((named, engine, *chosen))


#: What may differ between runs that are advised on together: it is what there is to choose from.
_CHOICE = SOFTWARE | MENTIONED | {"launcher"}


def merged(runs: list[Observed], ignored: frozenset[str] = frozenset(), in_blocks: bool = False) -> Observed:
    """Several runs of one machine as one: cells without an image are named by the library of their run.

    With `in_blocks` launches of equal number are paired. Raises RequestError where runs are of other machines or ways
    of measuring, have the same cells in blocks, or ended when their own comparisons were decided.
    """
    first, *others = runs
    if not others:
        return first
    refuse_together((run.name, manifest) for run in runs for manifest in run.manifests)
    for other in others:
        facts = _differences(first, other)
        wrong = {name: text for name, text in facts.items() if not is_allowed(_CHOICE | ignored, name)}
        if wrong:
            listed = "; ".join(f"{name} {text}" for name, text in wrong.items())
            raise RequestError(
                f"{first.name} and {other.name} cannot be taken together: {listed}. "
                f"Ask for advice on each of them alone, or add --ignore {','.join(wrong)}"
            )
    parts: list[tuple[dict[Case, Cell], int]] = []
    moved = 0
    for run in runs:
        library, cells = _library_of(run), dict[Case, Cell]()
        for cell in run.cells.values():
            image = _unambiguous_image(cell.case, run, runs) if cell.case.where.image else library or None
            case = cell.case.having(image=image)
            if in_blocks and any(case in others for others, _ in parts):
                raise RequestError(f"--in-blocks: {run.name} and another run measured the same ({case.workload}, "
                                   f"{library}): nothing distinguishes them.")  # fmt: skip
            cells[case] = cell
        parts.append((cells, 0 if in_blocks else moved))
        moved += 1 + max((launch for cell in run.cells.values() for launch in cell.launches), default=0)
    names = " + ".join(run.name for run in runs)
    manifests = tuple(manifest for run in runs for manifest in run.manifests)
    shortages = tuple(shortage for run in runs for shortage in run.shortages)
    return Observed(names, manifests, joined(parts), (), interleaved=in_blocks, shortages=shortages)


def differing(runs: list[Observed]) -> list[str]:
    """Facts that runs may differ in and that a reader must know: `a and b differ: host n1 against n2`."""
    first, *others = runs
    lines = []
    for other in others:
        mentioned = [f"{name} {text}" for name, text in _differences(first, other).items() if name in MENTIONED]
        lines += [f"{first.name} and {other.name} differ: {'; '.join(mentioned)}"] if mentioned else []
    return lines


def _differences(first: Observed, other: Observed) -> dict[str, str]:
    return differences_of(facts_of(first, first.cells), facts_of(other, other.cells))


def _unambiguous_image(case: Case, run: Observed, runs: list[Observed]) -> str | None:
    """The image's name, with its library where another run has another library under that name."""
    software = _software(case, run)
    of_others = (_software(case, other) for other in runs if other is not run)
    different = [facts for facts in of_others if facts not in (software, {})]
    if not different:
        return case.where.image
    if any(facts["library"] == software["library"] for facts in different):
        raise RequestError(
            f"{run.name} and another run have different software under the name {case.where.image}: "
            "they cannot be taken together."
        )
    return f"{case.where.image} ({software['library']})"


def _software(case: Case, run: Observed) -> dict[str, str]:
    """The library in the image of a case, and its file, in a run; empty where the run has no such image."""
    side = (case.where.image, case.where.on_host)
    if not any((other.where.image, other.where.on_host) == side for other in run.cells):
        return {}
    facts = facts_of(run, [case])
    return {name: facts.get(name, "") for name in ("library", "library-file")}
