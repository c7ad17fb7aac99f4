"""The judgement of a gate: each planned cell of two sides is a loss, no loss, or not answered, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from collbench.analysis.bounds import Bounds, Launches, bounds, bounds_at_any_time, log_ratios
from collbench.analysis.compare import MOST, Comparison, Reason, compare, hidden_by_clock
from collbench.analysis.estimate import FEWEST, Estimate, in_logarithms
from collbench.analysis.factors import NAMED, differences_of, facts_of, setting_of
from collbench.analysis.launches import dependent, unequal
from collbench.analysis.pairs import Pair, alike, undisturbed
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.errors import RunReadError
from collbench.schema.axes import SOFTWARE
from collbench.schema.case import Case
from collbench.schema.manifest import Experiment, Image, Library, Manifest
from collbench.schema.plan import Side
from collbench.schema.record import UNREAD, read, stem_of
from collbench.schema.store import SIDES, GatePlan, Margins, margin_of

_LOADER = "LD_"  # variables of the loader begin so

#: Exit codes: nothing is lost, and all was measured; a loss, or the other side is broken; no answer, or the gate was
#: interrupted.
PASSED, LOST, UNANSWERED = 0, 1, 4


class GateSide(NamedTuple):
    """A side as it was measured: its overrides, the SHA-256 of its library files by path, its software."""

    name: str
    overrides: Side
    files: Mapping[str, str]
    software: tuple[Image, ...]


GateSides = tuple[GateSide, GateSide]


class Cause(NamedTuple):
    """Why no cell is verified, or that both sides are the same: a kind and its values, for `report.gate` to say."""

    kind: Literal["differs", "file differs", "flaw", "not told", "none loaded", "other loaded", "plan",
                  "same image", "asked", "same file", "no file", "unread file"]  # fmt: skip
    values: tuple[Any, ...] = ()


def sides_of(manifest: Manifest, where: str) -> GateSides:
    """Both sides, by the manifest of the run named `where`; raises RunReadError where they are not those of a gate."""
    try:
        sides = msgspec.convert((manifest.plan or {}).get("sides", {}), dict[str, Side])
        base, other = (sides[name] for name in SIDES)
    except (msgspec.ValidationError, KeyError) as error:
        raise RunReadError(f"{where}: its plan does not have the sides {' and '.join(SIDES)} of a gate.") from error
    experiment = manifest.experiment
    software = () if experiment is None else (*experiment.images, *experiment.environments)
    return _side(SIDES[0], base, software), _side(SIDES[1], other, software)


def _side(name: str, side: Side, software_of_both: tuple[Image, ...]) -> GateSide:
    """With the hashes of the library files that the side puts in front."""
    software = tuple(item for item in software_of_both if item.side == name)
    hashes = {path: sha256 for item in software for path, sha256 in item.files.items()}
    return GateSide(name, side, {path: hashes.get(path, "") for path in (*side.libraries, *side.preload)}, software)


def watched_of(sides: GateSides) -> tuple[str, ...]:
    """The libraries of which ranks of both sides tell what they loaded."""
    return tuple(dict.fromkeys(stem_of(path) for side in sides for path in side.files))


def side_differences(sides: GateSides, run: Observed, cells: Sequence[Case]) -> tuple[tuple[str, ...], list[Cause]]:
    """By the manifest, differences that the sides were to have, and those that they were not, each with its name.

    What ranks loaded is in the cells (`not_loaded`).
    """
    facts = [facts_of(run, [case.having(side=name) for case in cells]) for name in SIDES]
    differences = differences_of(*facts)
    allowed = _allowed(sides, differences)
    refused = [Cause("differs", (name, text)) for name, text in differences.items() if name not in allowed]
    refused += [] if _images_replaced(sides) else _of_libraries(sides)
    return tuple(f"{name}: {text}" for name, text in differences.items() if name in allowed), refused


def _images_replaced(sides: GateSides) -> bool:
    return any(side.overrides.images for side in sides)


def _allowed(sides: GateSides, differences: Mapping[str, str]) -> frozenset[str]:
    if _images_replaced(sides):
        return SOFTWARE | {"python", "packages", "image-id", *(name for name in differences if name.startswith(NAMED))}
    variables = {f"env:{name}" for side in sides for name in side.overrides.variables}
    loads = any(side.files for side in sides) or any(name.startswith(f"env:{_LOADER}") for name in variables)
    settings = {name for name in differences if name.startswith("setting:")} if loads else map(setting_of, variables)
    return frozenset({*variables, *settings, *({"library", "library-file"} if loads else ())})


def _of_libraries(sides: GateSides) -> Iterator[Cause]:
    """Files of libraries that differ though nobody put another version of them in front."""
    if any(name.startswith(_LOADER) for side in sides for name in side.overrides.variables):
        return
    for of_base, of_other in zip(*(side.software for side in sides), strict=False):
        theirs = {(library.name, library.used_by): library for library in of_other.libraries}
        for library in of_base.libraries:
            other = theirs.get((library.name, library.used_by))
            watched = other is not None and (_is_watched(sides, library) or _is_watched(sides, other))
            if other is not None and library.sha256 != other.sha256 and not watched:
                yield Cause("file differs", (library.name, library.path, library.sha256, other.path, other.sha256))


def _is_watched(sides: GateSides, library: Library) -> bool:
    hashes = {sha256 for side in sides for sha256 in side.files.values()}
    name = Path(library.path or "").name
    return library.sha256 in hashes or any(name == stem or name.startswith(f"{stem}.") for stem in watched_of(sides))


def not_loaded(sides: GateSides, side: GateSide, cell: Cell) -> Cause | None:
    """Why it is not known that ranks loaded the files of their side, or one file of those of the other; else None."""
    libraries = [library for note in cell.notes if (library := read(note)) is not None]
    watched = watched_of(sides)
    own_files = {stem: (path, side.files[path]) for path in side.files for stem in watched
              if Path(path).name.startswith(stem)}  # fmt: skip
    for stem in watched:
        loaded = [library for library in libraries if library.name == stem]
        if not loaded:
            return Cause("not told", (side.name, stem))
        path, sha256 = own_files.get(stem, ("", ""))
        others = [library for library in loaded if library.sha256 != sha256 and path]
        if others and not others[0].path:
            return Cause("none loaded", (side.name, stem, path))
        if others:
            preloaded = path in side.overrides.preload
            return Cause("other loaded", (side.name, others[0].path, others[0].sha256, path, sha256, preloaded))
    return None


def equal_sides(sides: GateSides, run: Observed) -> tuple[Cause, ...]:
    """That both sides are the same, where they are, by hash; for each library of which ranks tell it."""
    base, other = sides
    if base.overrides == other.overrides == Side():
        return (Cause("plan"),)
    if _images_replaced(sides):
        ids = [sorted(str(image.id) for image in side.software) for side in sides]
        return (Cause("same image", (ids[0][0],)),) if ids[0] == ids[-1] and ids[0] else ()
    if base.overrides.variables != other.overrides.variables:
        return ()
    loaded = [
        {(loaded_file.name, loaded_file.sha256) for case, cell in run.cells.items() if case.where.side == name
         for note in cell.notes if (loaded_file := read(note))}
        for name in SIDES
    ]  # fmt: skip
    if not watched_of(sides):
        return (Cause("asked"),)
    if loaded[0] != loaded[1]:
        return ()
    return tuple(_of_equal(name, hashes) for name, hashes in grouped(sorted(loaded[0])).items())


def _of_equal(name: str, hashes: Sequence[str]) -> Cause:
    """What both sides loaded of a library, by these hashes."""
    if UNREAD in hashes:
        return Cause("unread file", (name,))
    known = tuple(sha256[:12] for sha256 in hashes if sha256)
    return Cause("same file", (name, *known)) if known else Cause("no file", (name,))


#: The names of reasons, the gravest first: what fails on the other side alone comes before what fails on both.
NAMES = ("not verified", "broken", "failed", "missing", "skipped", "not comparable", "results differ", "unchecked",
         "incomplete", "too few launches", "undecided", "slow at times", "contended", "oversubscribed", "shared GPU",
         "late", "drift")  # fmt: skip

_VOID = frozenset(NAMES[:7])  # with these a cell has no answer even where its times differ

#: What a user may accept beforehand: it makes an answer doubtful, and not wrong.
ACCEPTABLE = ("contended", "drift", "late", "oversubscribed", "shared GPU", "slow at times", "unchecked")

_OFTEN = 0.5  # the share of launches from which on contention counts, and that of samples that were late

Cells = tuple[Cell | None, Cell | None]


@dataclass(frozen=True)
class Doubt:
    """One of `NAMES`, and its values: often the side first; of some a `Cause`, a `Reason` or `Slow` alone."""

    name: str
    values: tuple[Any, ...] = ()


def doubt_on(
    sides: GateSides, cells: Cells, comparison: Comparison | None, planned: int, drifting: bool
) -> list[Doubt]:  # fmt: skip
    """Every doubt on a cell, the gravest first. `planned` are the launches that a side should have; 0: any number."""
    doubts = [*_not_measured(cells)]
    if not doubts:
        doubts = [Doubt("not verified", (why,)) for side, cell in zip(sides, cells, strict=True)
                  if cell is not None and (why := not_loaded(sides, side, cell))]  # fmt: skip
    if comparison is not None and not doubts:
        doubts = [*_of_comparison(comparison), *_of_launches(comparison, planned)]
        doubts += [Doubt("drift")] if drifting else []
    return sorted(doubts, key=lambda doubt: NAMES.index(doubt.name))


def _not_measured(cells: Cells) -> Iterator[Doubt]:
    failed = [cell is not None and cell.failed > 0 for cell in cells]
    for name, cell, fails in zip(SIDES, cells, failed, strict=True):
        if cell is None:
            yield Doubt("missing", (name,))
        elif fails:
            alone = name == SIDES[1] and not failed[0] and cells[0] is not None
            broken = alone and cell.failed > cell.lost  # of others the machine or the cluster is the cause
            launches = len(cell.medians) + cell.failed + cell.skipped
            yield Doubt("broken" if broken else "failed", (name, cell.failed, launches, *sorted(cell.reasons)))
        elif cell.skipped:
            yield Doubt("skipped", (name, *sorted(cell.reasons)))


def _of_comparison(comparison: Comparison) -> Iterator[Doubt]:
    if comparison.verdict == "not comparable":
        yield Doubt("not comparable", (comparison.why,))
        return
    if different := next((one.name for one in unequal(comparison.pair) if one.between_sides), None):
        yield Doubt("results differ", (different,))
    slow = comparison.slow
    if slow is not None and slow.on_other:
        yield Doubt("slow at times", (slow,))
    base, other = comparison.pair.base, comparison.pair.other
    if other.unchecked and not base.unchecked:
        yield Doubt("unchecked")
    for name, cell in zip(SIDES, (base, other), strict=True):
        if cell.shared_gpu:
            yield Doubt("shared GPU", (name,))
        if cell.oversubscribed:
            yield Doubt("oversubscribed", (name,))
        if cell.samples and cell.late >= _OFTEN * cell.samples:
            yield Doubt("late", (name, cell.late, cell.samples))


def _of_launches(comparison: Comparison, planned: int) -> Iterator[Doubt]:
    used = min(comparison.launches)
    for name, cell in zip(SIDES, (comparison.pair.base, comparison.pair.other), strict=True):
        if len(cell.medians) < planned:
            yield Doubt("incomplete", (name, len(cell.medians), planned))
        contended = len(cell.contended)
        if contended and contended >= _OFTEN * len(cell.medians):
            yield Doubt("contended", (name, contended, len(cell.medians)))
    if used < FEWEST and comparison.verdict != "not comparable":
        yield Doubt("too few launches", (used, FEWEST - used, comparison.contended, comparison.left_out))


def planned_cells(run: Observed, cases: Iterable[Case]) -> list[Cell | None]:
    """Of each case what a run has of it; None: nothing.

    A launch that failed has one record for all its cases without one: these failed as often as the case beside them.
    """
    failing = sorted((cell for cell in run.cells.values() if cell.failed), key=lambda cell: cell.failed)
    failed = {cell.case.where: cell for cell in failing}  # of each place the one that failed most often

    def as_failed(case: Case, beside: Cell) -> Cell:
        failures = np.array([facts.status == "failed" for facts in beside.missing], bool)
        return Cell(case, beside.results, beside.rows[:0], 0, beside.rest[failures])

    return [run.cells.get(case) or (as_failed(case, failed[case.where]) if case.where in failed else None)
            for case in cases]  # fmt: skip


@dataclass(frozen=True)
class Unfinished:
    """Of `most` blocks so many `blocks` are complete. `until_decided`: fewer than `most` may be enough."""

    blocks: int
    most: int
    until_decided: bool


def unfinished(cells: Sequence[tuple[Cell | None, Cell | None]], experiment: Experiment | None) -> Unfinished:
    """How far the launches of these cells came, each as base and other; None where a side has no record of it.

    Complete are blocks of all cells on both sides, but those decided before: these lack the last two blocks.
    """
    most, until = (0, "launches") if experiment is None else (experiment.launches, experiment.until)
    launches = [[0 if cell is None else len(cell.medians) + cell.failed + cell.skipped for cell in both]
                for both in cells]  # fmt: skip
    last = max((max(both) for both in launches), default=0)
    complete = min((min(both) for both in launches if max(both) >= last - 1), default=0)
    return Unfinished(complete, most, until == "decided")


AnswerState = Literal["broken", "loss", "no loss", "no answer"]


@dataclass(frozen=True)
class Answer:
    """To a planned cell: the case of each side, the comparison if both have records, and the share that it may lose.

    `doubt` is why there is no answer, or what failed on the other side alone; None of times that are answered.
    """

    base: Case
    other: Case
    comparison: Comparison | None
    state: AnswerState
    margin: float
    doubt: Doubt | None = None

    @property
    def ratio(self) -> Estimate | None:
        """The other side's time over the base's."""
        return None if self.comparison is None else self.comparison.ratio


@dataclass(frozen=True)
class Judgement:
    """Of all planned cells, in the plan's order. `differences` are what the sides differ in, as was asked.

    `refused` is why no cell has an answer, where that holds for all alike; `accepted` are the doubts that the user has
    accepted beforehand, and `alike` says that both sides are the same, where they are. `unfinished` is how far a gate
    came that was interrupted, whose `folder` it goes on with; `began` is when the run did (ISO 8601).
    """

    plan: GatePlan
    sides: GateSides
    margins: Margins
    answers: tuple[Answer, ...]
    differences: tuple[str, ...] = ()
    refused: tuple[Cause, ...] = ()
    accepted: tuple[str, ...] = ()
    alike: tuple[Cause, ...] = ()
    unfinished: Unfinished | None = None
    folder: str = ""
    began: str = ""

    def of(self, state: AnswerState) -> list[Answer]:
        """Those in this state: by their size, and with a doubt by how grave it is."""
        answers = [answer for answer in self.answers if answer.state == state]
        if state in ("broken", "no answer"):
            return sorted(answers, key=lambda answer: NAMES.index(answer.doubt.name) if answer.doubt else 0)
        return sorted(answers, key=lambda answer: -answer.ratio.value if answer.ratio else -1.0)

    @property
    def code(self) -> int:
        """The exit code: 4 of an interrupted gate, 1 where anything is lost or broken, else 4 without all answers."""
        if self.unfinished is not None:
            return UNANSWERED
        states = {answer.state for answer in self.answers}
        if states & {"broken", "loss"}:
            return LOST
        return PASSED if states == {"no loss"} else UNANSWERED


def judge(
    plan: GatePlan, run: Observed, margins: Margins, accepted: Collection[str] = (), interrupted: bool = False
) -> Judgement:  # fmt: skip
    """The answer to every planned cell, by what was measured on both sides alternately, before it was `interrupted`."""
    manifest = run.manifests[0]
    sides = sides_of(manifest, run.name)
    requested, others = side_differences(sides, run, plan.cells)
    refused = (*others, *(Cause("flaw", (flaw,)) for flaw in run.flaws))
    software = tuple(text for text in requested if not text.startswith("env:"))  # variables are in the titles
    cases = [(case.having(side=SIDES[0]), case.having(side=SIDES[1])) for case in plan.cells]
    of_base, of_other = (planned_cells(run, [pair[number] for pair in cases]) for number in range(2))
    cell_pairs = list(zip(of_base, of_other, strict=True))
    measured = {pair: Pair(base, other, *SIDES, factor_differences=software)
                for pair, (base, other) in zip(cases, cell_pairs, strict=True)
                if base is not None and other is not None}  # fmt: skip
    comparisons = compare(list(measured.values()))
    drifting = dependent([comparison.serial for comparison in comparisons])
    compared = dict(zip(measured, bounded(comparisons, margins), strict=True))
    experiment = manifest.experiment
    planned = 0 if experiment is None or experiment.until == "decided" else experiment.launches
    answers = []
    for pair, cells in zip(cases, cell_pairs, strict=True):
        comparison = compared.get(pair)
        doubts = [doubt for doubt in doubt_on(sides, cells, comparison, planned, drifting)
                  if doubt.name not in accepted]  # fmt: skip
        most, margin = experiment.launches if experiment else 0, margin_of(margins, pair[0])
        answers.append(_answer(pair, comparison, margin, refused, doubts, most))
    same = equal_sides(sides, run)
    early = unfinished(cell_pairs, experiment) if interrupted else None
    return Judgement(plan, sides, margins, tuple(answers), requested, refused, tuple(sorted(accepted)), same,
                     early, run.name, manifest.created)  # fmt: skip


def _answer(
    cases: tuple[Case, Case], comparison: Comparison | None, margin: float, refused: Sequence[Cause],
    doubts: Sequence[Doubt], most: int,
) -> Answer:  # fmt: skip
    answer = Answer(*cases, comparison, "no answer", margin)
    if refused:
        return replace(answer, doubt=Doubt("not verified", (refused[0],)))
    grave = [doubt for doubt in doubts if doubt.name in _VOID]
    if grave:
        return replace(answer, state="broken" if grave[0].name == "broken" else "no answer", doubt=grave[0])
    loss = None if comparison is None else loses(comparison, margin)
    if loss:
        return replace(answer, state="loss")
    if doubts:
        return replace(answer, doubt=doubts[0])
    if comparison is None:
        return replace(answer, doubt=Doubt("missing"))
    if loss is False:
        return replace(answer, state="no loss")
    why = comparison.why
    if why.kind == "blocks":  # until decided, a side has at most so many launches
        why = why._replace(values=(*why.values, most))
    return replace(answer, doubt=Doubt("too few launches" if comparison.launches_more else "undecided", (why,)))


def loses(comparison: Comparison, margin: float) -> bool | None:
    """Whether there is a loss beyond the margin: by the lower bound, or not by the upper one. None: neither says so."""
    if comparison.ratio is None or comparison.ratio.interval is None:
        return None
    lower, upper = comparison.ratio.interval
    if lower > 1 + margin:
        return True
    return False if upper <= 1 + margin else None


def bounded(comparisons: Sequence[Comparison], margins: Margins) -> list[Comparison]:
    """With bounds for intervals, of cells tested together as far from the margin of each, and what an answer lacks."""
    logs: dict[int, dict[int, float]] = {}
    for index, comparison in enumerate(comparisons):
        used = alike(undisturbed(comparison.pair, True)[0], True)
        if comparison.ratio is not None and len(used.base) >= FEWEST:
            logs[index] = log_ratios(Launches(*used[:4]))
    until_decided = any(comparison.pair.base.until_decided for comparison in comparisons)
    margin = {index: margin_of(margins, comparisons[index].pair.base.case) for index in logs}
    beyond = [{block: log - math.log1p(margin[index]) for block, log in of.items()} for index, of in logs.items()]
    of_cells = (bounds_at_any_time if until_decided else bounds)(beyond) if logs else ()
    known = dict(zip(logs, of_cells, strict=True))
    return [
        _by_bounds(comparison, known[index], len(known), margin[index]) if index in known else comparison
        for index, comparison in enumerate(comparisons)
    ]


def _by_bounds(comparison: Comparison, beyond: Bounds, cells: int, margin: float) -> Comparison:
    """`beyond`: the bounds of the ratio over that of the margin."""
    was, bounds = comparison.ratio, Bounds(*(log + math.log1p(margin) for log in beyond))
    assert was is not None
    ratio = in_logarithms(Estimate(bounds.value, (bounds.lower, bounds.upper), was.n), was.resolution)
    bounded = replace(comparison, ratio=ratio, sizes=cells, launches_more=None)
    if loses(bounded, margin) is not None or comparison.pair.base.until_decided:
        return bounded
    more: int | None = None
    if not hidden_by_clock(ratio, margin):  # blocks that bring the bound nearer to the location than the margin is
        distance = math.log1p(margin) - bounds.value
        bound = bounds.upper - bounds.value if distance > 0 else bounds.value - bounds.lower
        needed = ratio.n * (_AMPLE * bound / distance) ** 2 if distance else math.inf
        more = max(math.ceil(needed - ratio.n), 1) if needed - ratio.n <= MOST else None
    return replace(bounded, launches_more=more, why=Reason("launches", (more,)))


#: How many times as far from the margin as the bound is from the location the latter must lie, so that the bound is on
#: the same side with a probability of 80 %: (1.645 + 0.842) / 1.645.
_AMPLE = 1.512
