"""The judgement of a gate: each planned cell of two sides is a loss, no loss, or not answered, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from collbench.analysis import environment
from collbench.analysis.bounds import Bounds, Launches, bounds, bounds_at_any_time, log_ratios
from collbench.analysis.compare import Comparison, compare, needs
from collbench.analysis.estimate import FEWEST, Estimate, in_logarithms
from collbench.analysis.launches import dependent, unequal
from collbench.analysis.observations import Cell, Observed, Pair
from collbench.analysis.pairs import alike, undisturbed
from collbench.analysis.planning import MOST, hidden_by_clock
from collbench.errors import RunReadError
from collbench.schema.axes import SOFTWARE
from collbench.schema.case import Case, Where
from collbench.schema.gate_plan import SIDES, GatePlan, Margins, margin_of
from collbench.schema.launch_plan import Side
from collbench.schema.manifest import Experiment, Image, Library, Manifest
from collbench.schema.record import UNREAD, Loaded, read, stem_of
from collbench.units import counted

_LOADER = "LD_"


class GateSide(NamedTuple):
    """A side as it was measured: its overrides, the SHA-256 of its library files by path, its software."""

    name: str
    overrides: Side
    files: Mapping[str, str]
    software: tuple[Image, ...]

    @property
    def variables(self) -> Mapping[str, str]:
        return self.overrides.variables


Sides = tuple[GateSide, GateSide]


class Verified(NamedTuple):
    """`asked`: differences that were asked for. `refused`: all others, each with its name."""

    asked: tuple[str, ...]
    refused: tuple[str, ...]


def sides_of(manifest: Manifest, where: str) -> Sides:
    """Both sides, as the manifest of the run has them.

    Raises:
        RunReadError: its plan does not have the sides of a gate; `where` names the run.
    """
    try:
        sides = msgspec.convert((manifest.plan or {}).get("sides", {}), dict[str, Side])
        of_plan = [sides[name] for name in SIDES]
    except (msgspec.ValidationError, KeyError) as error:
        raise RunReadError(f"{where}: its plan does not have the sides {' and '.join(SIDES)} of a gate.") from error
    experiment = manifest.experiment
    software = () if experiment is None else (*experiment.images, *experiment.environments)
    base, other = (
        _side(name, side, tuple(one for one in software if one.side == name))
        for name, side in zip(SIDES, of_plan, strict=True)
    )
    return base, other


def _side(name: str, side: Side, software: tuple[Image, ...]) -> GateSide:
    """With the hashes of the library files that the side puts in front."""
    hashes = {path: sha256 for one in software for path, sha256 in one.files.items()}
    return GateSide(name, side, {path: hashes.get(path, "") for path in (*side.libraries, *side.preload)}, software)


def watched_of(sides: Sides) -> tuple[str, ...]:
    """The libraries of which ranks of both sides tell what they loaded."""
    return tuple(dict.fromkeys(stem_of(path) for side in sides for path in side.files))


def unverified(sides: Sides, run: Observed, cells: Sequence[Case]) -> Verified:
    """How the sides differ, by the manifest; what ranks loaded is in the cells (`not_loaded`)."""
    facts = [environment.facts(run, [case.having(side=name) for case in cells]) for name in SIDES]
    differences = environment.differences(*facts)
    allowed = _allowed(sides, differences)
    refused = [f"{name}: {text}" for name, text in differences.items() if name not in allowed]
    refused += [] if _images_replaced(sides) else _of_libraries(sides)
    return Verified(
        tuple(f"{name}: {text}" for name, text in differences.items() if name in allowed),
        tuple(f"the sides differ in more than was asked: {text}" for text in refused),
    )


def _images_replaced(sides: Sides) -> bool:
    return any(side.overrides.images for side in sides)


def _allowed(sides: Sides, differences: Mapping[str, str]) -> frozenset[str]:
    """Names of facts that may differ."""
    if _images_replaced(sides):
        return SOFTWARE | {"python", "packages", "image-id", *(name for name in differences if name.startswith("env:"))}
    variables = {name for side in sides for name in side.variables}
    loads = any(side.files for side in sides) or any(name.startswith(_LOADER) for name in variables)
    files = {"library", "library-file"} if loads else set()
    return frozenset({*(f"env:{name}" for name in variables), *files})


def _of_libraries(sides: Sides) -> Iterator[str]:
    """Files of libraries that differ though nobody put another version of them in front."""
    if any(name.startswith(_LOADER) for side in sides for name in side.variables):
        return
    for of_base, of_other in zip(*(side.software for side in sides), strict=False):
        theirs = {(one.name, one.used_by): one for one in of_other.libraries}
        for one in of_base.libraries:
            two = theirs.get((one.name, one.used_by))
            watched = two is not None and (_is_watched(sides, one) or _is_watched(sides, two))
            if two is not None and one.sha256 != two.sha256 and not watched:
                yield f"{one.name}: file {one.path} ({_hash(one.sha256)}) against {two.path} ({_hash(two.sha256)})"


def _is_watched(sides: Sides, library: Library) -> bool:
    hashes = {sha256 for side in sides for sha256 in side.files.values()}
    name = Path(library.path or "").name
    return library.sha256 in hashes or any(name == stem or name.startswith(f"{stem}.") for stem in watched_of(sides))


def not_loaded(sides: Sides, side: GateSide, cell: Cell) -> str:
    """Why it is not known that ranks loaded the files of their side, or one file of those of the other; else empty."""
    told = [found for note in cell.notes if (found := read(note)) is not None]
    watched = watched_of(sides)
    wanted = {stem: (path, side.files[path]) for path in side.files for stem in watched
              if Path(path).name.startswith(stem)}  # fmt: skip
    for stem in watched:
        if why := _of_one(stem, [one for one in told if one.name == stem], wanted.get(stem), side.overrides.preload):
            return why
    return ""


def _of_one(stem: str, found: list[Loaded], wanted: tuple[str, str] | None, preload: Collection[str]) -> str:
    if not found:
        return f"its ranks do not tell which {stem} they loaded; build the image again with this collbench"
    if wanted is None:
        return ""
    path, sha256 = wanted
    others = [one for one in found if one.sha256 != sha256]
    if not others:
        return ""
    one = others[0]
    if not one.path:
        return f"its ranks loaded no {stem}, so {path} made no difference: name a library that they load"
    instead = f"its ranks loaded {one.path} ({_hash(one.sha256)}), not {path} ({_hash(sha256)})"
    if one.sha256 == UNREAD:
        return f"{instead}: that file was removed or replaced since. Leave it in place until the gate has ended"
    if path in preload:
        return f"{instead}, which was preloaded: the dynamic linker did not take it. ldd {path} may say why"
    return (
        f"{instead}: its place is fixed in the program, or it is asked for by another name. "
        f"preload={path} puts it before all others"
    )


def equal_sides(sides: Sides, run: Observed) -> str:
    """That both sides are the same, where they are, by hash: a line; else empty."""
    base, other = sides
    if base.overrides == other.overrides == Side():
        return "both sides are the plan as it stands: whatever differs is chance"
    if _images_replaced(sides):
        ids = [sorted(str(image.id) for image in side.software) for side in sides]
        return f"both sides have the same image, {ids[0][0]}" if ids[0] == ids[-1] and ids[0] else ""
    if base.variables != other.variables:
        return ""
    loaded = [
        {(one.name, one.sha256) for case, cell in run.cells.items() if case.where.side == name
         for note in cell.notes if (one := read(note))}
        for name in SIDES
    ]  # fmt: skip
    if not watched_of(sides):
        return "both sides are asked for the same"
    if loaded[0] != loaded[1]:
        return ""
    by_name = groupby(sorted(loaded[0]), key=lambda one: one[0])
    return "; ".join(_of_equal(name, [sha256 for _, sha256 in group]) for name, group in by_name)


def _of_equal(name: str, hashes: Sequence[str]) -> str:
    """What both sides loaded of a library, by these hashes."""
    if UNREAD in hashes:
        return f"whether both sides loaded the same {name} is not known: a file was removed or replaced since"
    known = [sha256[:12] for sha256 in hashes if sha256]
    if not known:
        return f"no rank of either side loaded {name}"
    return f"both sides loaded the same file: {name} with sha256 {', '.join(known)}"


def _hash(sha256: str | None) -> str:
    return f"sha256 {'not known' if not sha256 or sha256 == UNREAD else sha256[:12]}"


#: The names of reasons, the gravest first: what fails on the other side alone comes before what fails on both.
NAMES = ("not verified", "broken", "failed", "missing", "skipped", "not comparable", "results differ", "unchecked",
         "incomplete", "too few launches", "undecided", "slow at times", "contended", "oversubscribed", "shared GPU",
         "late", "drift")  # fmt: skip

#: With these a cell has no answer even where its times differ.
_VOID = frozenset(NAMES[:7])

#: What a user may accept beforehand: it makes an answer doubtful, and not wrong.
ACCEPTABLE = ("contended", "drift", "late", "oversubscribed", "shared GPU", "slow at times", "unchecked")

#: The share of launches from which on contention counts, and that of samples that were late.
_OFTEN = 0.5

Cells = tuple[Cell | None, Cell | None]


@dataclass(frozen=True)
class Doubt:
    """A reason: one of `NAMES`, and in words."""

    name: str
    why: str

    @property
    def rank(self) -> int:
        """Its place among the names."""
        return NAMES.index(self.name)

    @property
    def voids(self) -> bool:
        """Whether a difference is no answer either."""
        return self.name in _VOID


def doubt_on(
    sides: Sides, cells: Cells, comparison: Comparison | None, planned: int, drifting: bool
) -> list[Doubt]:  # fmt: skip
    """Every doubt on a cell, the gravest first. `planned` are the launches that a side should have; 0: any number."""
    found = [*_not_measured(cells)]
    if not found:
        found = [
            Doubt("not verified", f"{side.name}: {why}")
            for side, cell in zip(sides, cells, strict=True)
            if cell is not None and (why := not_loaded(sides, side, cell))
        ]
    if comparison is not None and not found:
        found = [*_of_comparison(comparison), *_of_launches(comparison, planned)]
        found += [Doubt("drift", "launches depend on those before them")] if drifting else []
    return sorted(found, key=lambda one: one.rank)


def _not_measured(cells: Cells) -> Iterator[Doubt]:
    failed = [cell is not None and cell.failed > 0 for cell in cells]
    for name, cell, fails in zip(SIDES, cells, failed, strict=True):
        if cell is None:
            yield Doubt("missing", f"{name}: no record of it")
        elif fails:
            own = cell.failed > len(cell.lost)  # of others the machine or the cluster is the cause
            alone = own and name == SIDES[1] and not failed[0] and cells[0] is not None
            launches = len(cell.medians) + cell.failed + cell.skipped
            what = f"failed in {cell.failed} of {counted(launches, 'launch', 'launches')}"
            only = f"only the {SIDES[1]} side" if alone else name
            yield Doubt("broken" if alone else "failed", f"{only}: {what}: {_reasons(cell)}")
        elif cell.skipped:
            yield Doubt("skipped", f"{name}: {_reasons(cell)}")


def _reasons(cell: Cell) -> str:
    found = sorted(cell.reasons)
    more = f" (and {len(found) - 1} other reasons)" if len(found) > 1 else ""
    return f"{found[0] if found else 'no reason'}{more}"


def _of_comparison(comparison: Comparison) -> Iterator[Doubt]:
    if comparison.verdict == "not comparable":
        yield Doubt("not comparable", comparison.why)
        return
    if different := unequal(comparison.pair):
        yield Doubt("results differ", f"{different[0].name} comes out differently")
    slow = comparison.slow
    if slow is not None and slow.on_other:
        yield Doubt("slow at times", slow.text)
    base, other = comparison.pair.base, comparison.pair.other
    if other.unchecked and not base.unchecked:
        yield Doubt("unchecked", "the results of the other side were not checked")
    for name, cell in zip(SIDES, (base, other), strict=True):
        if cell.shared_gpu:
            yield Doubt("shared GPU", f"{name}: ranks share a GPU")
        if cell.oversubscribed:
            yield Doubt("oversubscribed", f"{name}: more ranks than processors")
        if cell.samples and cell.late >= _OFTEN * cell.samples:
            yield Doubt("late", f"{name}: {cell.late} of {cell.samples} samples were late")


def _of_launches(comparison: Comparison, planned: int) -> Iterator[Doubt]:
    used = min(comparison.launches)
    for name, cell in zip(SIDES, (comparison.pair.base, comparison.pair.other), strict=True):
        if len(cell.medians) < planned:
            yield Doubt("incomplete", f"{name}: {len(cell.medians)} of {planned} launches")
        contended = len(cell.contended & {*cell.launches})
        if contended and contended >= _OFTEN * len(cell.medians):
            launches = counted(len(cell.medians), "launch", "launches")
            yield Doubt("contended", f"{name}: tasks waited for a CPU in {contended} of {launches}")
    if used < FEWEST and comparison.verdict != "not comparable":
        more = counted(FEWEST - used, "more", "more")
        lost = {"contended": comparison.contended, "measured differently from their partners": comparison.left_out}
        why = "".join(f" ({number} {what})" for what, number in lost.items() if number)
        yield Doubt("too few launches", f"{used} blocks have both sides{why}, and {more} are needed")


def planned_cells(run: Observed, cases: Iterable[Case]) -> list[Cell | None]:
    """Of each case what a run has of it; None: nothing.

    A launch that fails before its end has one failed record for all of its cases that have none. So a case without any
    record has failed as often as the case of its place that failed most, and for the same reasons.
    """
    failed: dict[Where, Cell] = {}
    for cell in run.cells.values():
        if cell.failed and cell.failed >= failed.get(cell.case.where, cell).failed:
            failed[cell.case.where] = cell
    return [run.cells.get(case) or _as_failed(case, failed.get(case.where)) for case in cases]


def _as_failed(case: Case, beside: Cell | None) -> Cell | None:
    if beside is None:
        return None
    return Cell(case, failed=beside.failed, reasons=beside.reasons, lost=dict(beside.lost),
                until_decided=beside.until_decided)  # fmt: skip


@dataclass(frozen=True)
class Unfinished:
    """Of `most` blocks so many `blocks` are complete. `until_decided`: fewer than `most` may be enough."""

    blocks: int
    most: int
    until_decided: bool


def unfinished(cells: Sequence[tuple[Cell | None, Cell | None]], experiment: Experiment | None) -> Unfinished:
    """How far the launches of these cells came, each as base and other; None where a side has no record of it."""
    most, until = (0, "launches") if experiment is None else (experiment.launches, experiment.until)
    return Unfinished(_complete([(_launches(base), _launches(other)) for base, other in cells]), most,
                      until == "decided")  # fmt: skip


def _launches(cell: Cell | None) -> int:
    return 0 if cell is None else len(cell.medians) + cell.failed + cell.skipped


def _complete(launches: Sequence[tuple[int, int]]) -> int:
    """Blocks that all cells have on both sides, but those that were decided, and not launched again, before the last.

    A cell that was decided is not in the block that was begun last, nor in the one before.
    """
    begun = max((max(sides) for sides in launches), default=0)
    return min((min(sides) for sides in launches if max(sides) >= begun - 1), default=0)


State = Literal["broken", "loss", "no loss", "no answer"]

#: Exit codes: nothing is lost, and all was measured; a loss, or the other side is broken; no answer, or the gate was
#: interrupted.
PASSED, LOST, UNANSWERED = 0, 1, 4


@dataclass(frozen=True)
class Answer:
    """To a planned cell: the case as each side has it; the comparison, where both sides have records.

    `doubt` is why there is no answer, or what failed on the other side alone; None of times that are answered. `margin`
    is the share that it may lose.
    """

    base: Case
    other: Case
    comparison: Comparison | None
    state: State
    margin: float
    doubt: Doubt | None = None


@dataclass(frozen=True)
class Judgement:
    """Of all planned cells, in the plan's order. `differences` are what the sides differ in, as was asked.

    `refused` is why no cell has an answer, where that holds for all alike; `accepted` are the doubts that the user has
    accepted beforehand, and `alike` says that both sides are the same, where they are. `unfinished` is how far a gate
    came that was interrupted, whose `folder` it goes on with; `began` is when the run did (ISO 8601).
    """

    plan: GatePlan
    sides: Sides
    margins: Margins
    answers: tuple[Answer, ...]
    differences: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    unfinished: Unfinished | None = None
    folder: str = ""
    began: str = ""

    def of(self, state: State) -> list[Answer]:
        """Those in this state: by their size, and with a doubt by how grave it is."""
        found = [one for one in self.answers if one.state == state]
        if state in ("broken", "no answer"):
            return sorted(found, key=lambda one: one.doubt.rank if one.doubt else 0)
        return sorted(found, key=lambda one: -ratio_of(one))

    @property
    def code(self) -> int:
        """The exit code: 4 of an interrupted gate, 1 where anything is lost or broken, else 4 without all answers."""
        if self.unfinished is not None:
            return UNANSWERED
        states = {one.state for one in self.answers}
        if states & {"broken", "loss"}:
            return LOST
        return PASSED if states == {"no loss"} else UNANSWERED


def ratio_of(answer: Answer) -> float:
    """The other side's time over the base's; 1 where it is not known."""
    ratio = answer.comparison.ratio if answer.comparison else None
    return 1.0 if ratio is None else ratio.value


def judge(
    plan: GatePlan, run: Observed, margins: Margins, accepted: Collection[str] = (), interrupted: bool = False
) -> Judgement:  # fmt: skip
    """The answer to every planned cell, by what was measured on both sides alternately, before it was `interrupted`.

    Raises:
        RequestError: SciPy is not installed.
        RunReadError: the run has not the sides of a gate.
    """
    manifest = run.manifests[0]
    sides = sides_of(manifest, run.name)
    verified = unverified(sides, run, plan.cells)
    cut_off = (f"{folder}: the last record was cut off" for folder in run.truncated)
    refused = (*verified.refused, *run.doubts, *cut_off)
    software = tuple(text for text in verified.asked if not text.startswith("env:"))  # variables are in the titles
    cases = [(case.having(side=SIDES[0]), case.having(side=SIDES[1])) for case in plan.cells]
    of_base, of_other = (planned_cells(run, [pair[number] for pair in cases]) for number in range(2))
    both = list(zip(of_base, of_other, strict=True))
    measured = {
        pair: Pair(one, two, *SIDES, asked=software)
        for pair, (one, two) in zip(cases, both, strict=True)
        if one is not None and two is not None
    }
    found = compare(list(measured.values()))
    drifting = dependent([one.serial for one in found])
    compared = dict(zip(measured, bounded(found, margins), strict=True))
    experiment = manifest.experiment
    planned = 0 if experiment is None or experiment.until == "decided" else experiment.launches
    answers = []
    for pair, cells in zip(cases, both, strict=True):
        comparison = compared.get(pair)
        doubts = [one for one in doubt_on(sides, cells, comparison, planned, drifting) if one.name not in accepted]
        most, margin = experiment.launches if experiment else 0, margin_of(margins, pair[0])
        answers.append(_answer(pair, comparison, margin, refused, doubts, most))
    same = tuple(filter(None, [equal_sides(sides, run)]))
    early = unfinished(both, experiment) if interrupted else None
    return Judgement(plan, sides, margins, tuple(answers), verified.asked, refused, tuple(sorted(accepted)), same,
                     early, run.name, manifest.created)  # fmt: skip


def _answer(
    cases: tuple[Case, Case], comparison: Comparison | None, margin: float, refused: Sequence[str],
    doubts: Sequence[Doubt], most: int,
) -> Answer:  # fmt: skip
    answer = Answer(*cases, comparison, "no answer", margin)
    if refused:
        return replace(answer, doubt=Doubt("not verified", refused[0]))
    grave = [one for one in doubts if one.voids]
    if grave:
        return replace(answer, state="broken" if grave[0].name == "broken" else "no answer", doubt=grave[0])
    if comparison is not None and slower(comparison, margin):
        return replace(answer, state="loss")
    if doubts:
        return replace(answer, doubt=doubts[0])
    if comparison is not None and no_slower(comparison, margin):
        return replace(answer, state="no loss")
    return replace(answer, doubt=_undecided(comparison, most))


def _undecided(comparison: Comparison | None, most: int) -> Doubt:
    """Until decided, a side has at most so many launches."""
    if comparison is None:
        return Doubt("missing", "not measured")
    of = f" of at most {most}" if comparison.pair.base.until_decided else ""
    return Doubt("too few launches" if comparison.launches_more else "undecided", f"{comparison.why}{of}")


def no_slower(comparison: Comparison, margin: float) -> bool:
    """Whether there is no loss beyond the margin: the upper bound is within."""
    ratio = comparison.ratio
    return ratio is not None and ratio.interval is not None and ratio.interval[1] <= 1 + margin


def slower(comparison: Comparison, margin: float) -> bool:
    """Whether there is a loss beyond the margin: the lower bound exceeds it."""
    ratio = comparison.ratio
    return ratio is not None and ratio.interval is not None and ratio.interval[0] > 1 + margin


def bounded(comparisons: Sequence[Comparison], margins: Margins) -> list[Comparison]:
    """With bounds for intervals, and what is missing for an answer.

    Cells are tested together at places that are as far from the margin of each.
    """
    logs = {index: found for index, one in enumerate(comparisons) if len(found := _logs(one)) >= FEWEST}
    until_decided = any(one.pair.base.until_decided for one in comparisons)
    margin = {index: margin_of(margins, comparisons[index].pair.base.case) for index in logs}
    beyond = [{block: log - math.log1p(margin[index]) for block, log in of.items()} for index, of in logs.items()]
    of_cells = (bounds_at_any_time if until_decided else bounds)(beyond) if logs else ()
    known = dict(zip(logs, of_cells, strict=True))
    return [
        _by_bounds(one, known[index].moved(math.log1p(margin[index])), len(known), margin[index])
        if index in known else one
        for index, one in enumerate(comparisons)
    ]  # fmt: skip


def _logs(comparison: Comparison) -> dict[int, float]:
    """By block that is used; empty where the sides cannot be compared."""
    both = alike(undisturbed(comparison.pair, True)[0], True)
    return {} if comparison.ratio is None else log_ratios(Launches(*both[:4]))


def _by_bounds(comparison: Comparison, known: Bounds, cells: int, margin: float) -> Comparison:
    was = comparison.ratio
    assert was is not None
    ratio = in_logarithms(Estimate(known.value, (known.lower, known.upper), was.n), was.resolution)
    found = replace(comparison, ratio=ratio, sizes=cells, launches_more=None)
    if slower(found, margin) or no_slower(found, margin) or comparison.pair.base.until_decided:
        return found
    more = None if hidden_by_clock(ratio, margin) else _launches_more(known, ratio.n, margin)
    why = f"needs more than {MOST} more launches" if more is None else needs(more)
    return replace(found, launches_more=more, why=why)


#: How many times as far from the margin as the bound is from the location the latter must lie, so that the bound is on
#: the same side with a probability of 80 %: (1.645 + 0.842) / 1.645.
_AMPLE = 1.512


def _launches_more(known: Bounds, n: int, margin: float) -> int | None:
    """How many more blocks bring the bound nearer to the location than the margin is; None of too many."""
    apart = math.log1p(margin) - known.value
    bound = known.upper - known.value if apart > 0 else known.value - known.lower
    needed = n * (_AMPLE * bound / apart) ** 2 if apart else math.inf
    return max(math.ceil(needed - n), 1) if needed - n <= MOST else None
