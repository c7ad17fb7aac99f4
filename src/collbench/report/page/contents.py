"""What a report says, before it is laid out: chapters of runs, in them sections of operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from collbench.analysis.advise import advise
from collbench.analysis.compare import Comparison, compare
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.guidelines import check
from collbench.analysis.observations import Observed
from collbench.analysis.options import Question, questions
from collbench.analysis.pairs import within
from collbench.analysis.paper.reference import Paper
from collbench.errors import RequestError
from collbench.report.advice.sentences import Advised, complete, headline, sentences
from collbench.report.advice.tables import guideline_tables, tables
from collbench.report.comparison import tables as compared_tables
from collbench.report.page.drawing import Figure
from collbench.report.page.environment import about, misleading
from collbench.report.page.figures.bars import bars
from collbench.report.page.figures.curves import curves
from collbench.report.page.figures.ladder import ladders
from collbench.report.page.figures.strips import strip
from collbench.report.page.samples import StoredSamples
from collbench.report.paper import beside, counted
from collbench.report.tables import Table
from collbench.schema.case import Case

#: What sides of a run are held against each other, where it has them.
SIDES = ("policy", "image", "backend", "driver")

#: So many sizes have their samples drawn: more would make a page that no browser likes.
MOST_STRIPS = 6


@dataclass(frozen=True)
class Section:
    """One operation, over all its numbers of ranks, or one kind of table."""

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    folded: tuple[Figure, ...] = ()
    folded_tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """One run: what was asked, the answer in three lines, what could mislead, and the evidence."""

    title: str
    question: str
    answer: tuple[str, ...]
    misleading: tuple[str, ...]
    sections: tuple[Section, ...]
    environment: tuple[Table, ...] = field(default=())


def chapter(
    observed: Observed,
    given: dict[str, str],
    margin: float,
    number: int = 0,
    figures: bool = True,
    against: Paper | None = None,
) -> Chapter:
    """A run as a chapter; without `figures`, for formats that have none; `against` a paper's figures, if there is one.

    Raises:
        RequestError: a library that analyses or draws is not installed.
    """
    asked = questions(observed, given)
    advised = complete(advise(asked, observed.interleaved, margin), observed.interleaved)
    compared = _all_compared(observed, margin)
    by_place = (compared.get(name, []) for name in ("policy", "isolation"))
    places = [one for found in by_place if not isinstance(found, str) for one in found]
    with StoredSamples(observed) as stored:
        sections = [
            _section(stored if figures else None, group, places, f"c{number}-o{index}")
            for index, group in enumerate(_by_operation(advised))
        ]
    said = answer(advised)
    if against is not None:
        lines, found = beside(observed, against, margin)
        sections.insert(0, Section(f"Beside {against.reference}", tuple(lines), tuple(found)))
        said = (f"Of the {len(lines)} conclusions of {against.reference}: {counted(lines)}.", *said[:2])
    findings = check(observed, margin)
    sections += [_verdicts(name, found) for name, found in compared.items()]
    sections += [Section("Performance guidelines", tables=tuple(guideline_tables(findings)))] if findings else []
    title = observed.manifests[0].title or observed.name
    return Chapter(observed.name, title, said, misleading(observed), tuple(sections), about(observed))


def answer(advised: Sequence[Advised]) -> tuple[str, ...]:
    """Three lines: of one operation its first sentences, of several their headlines on the most ranks."""
    if len(advised) == 1:
        return tuple(sentences(advised[0])[:3])
    largest = [max(group, key=lambda one: one.advice.question.case.where.ranks) for group in _by_operation(advised)]
    return tuple(headline(one) for one in largest[:3])


def _by_operation(advised: Iterable[Advised]) -> list[list[Advised]]:
    """Questions that differ in the number of ranks alone belong together."""
    groups: dict[Case, list[Advised]] = {}
    for one in advised:
        case = one.advice.question.case
        groups.setdefault(case.without(("ranks",)), []).append(one)
    return list(groups.values())


def _section(stored: StoredSamples | None, group: list[Advised], places: list[Comparison], name: str) -> Section:
    """One operation; without `stored` samples it has no figures."""
    title = group[0].title.rpartition(",")[0]
    asked = [one.advice.question for one in group]
    largest = max(size for question in asked for size in question.sizes)
    drawn: list[Figure] = []
    folded: list[Figure] = []
    if stored is not None:
        for number, one in enumerate(group):
            drawn += curves(one.advice.question, f"{name}-{number}", one.title)
            drawn += ladders(one.advice.question, largest, places, f"{name}-{number}", one.title)
            folded += _strips(stored, one.advice.question, f"{name}-{number}", one.title)
        drawn += bars(asked, largest, name, title)
    lines = tuple(f"{one.title}: {text}" if len(group) > 1 else text for one in group for text in sentences(one))
    return Section(title, lines, tuple(_without_sentences(tables(group, []))), tuple(drawn), tuple(folded))


def _without_sentences(found: list[Table]) -> list[Table]:
    """The last note explains the numbers; the others are the lines above the table already."""
    return [Table(table.title, table.columns, table.rows, table.notes[-1:]) for table in found]


def _strips(stored: StoredSamples, question: Question, name: str, title: str) -> list[Figure]:
    sizes = question.sizes
    step = -(-len(sizes) // MOST_STRIPS)
    found = []
    for number, size in enumerate(sizes[::step]):
        ordered = sorted(question.cells[size], key=lambda option: (option["library"], option.isolation_order, option))
        cells = {question.name(option): question.cells[size][option].case for option in ordered}
        kept = stored.of(cells)
        if kept.samples:
            drawn = strip(kept.samples, size, f"{name}-{number}", title)
            thinned = f" They are one in {kept.step} of those that were taken." if kept.step > 1 else ""
            lacking = f" {kept.unread} samples files cannot be read and are left out." if kept.unread else ""
            found.append(replace(drawn, caption=drawn.caption + thinned + lacking))
    return found


def _has_sides(observed: Observed, name: str) -> bool:
    return len({tuple(case[axis] for axis in FACTORS[name].axes) for case in observed.cells}) > 1


def _all_compared(observed: Observed, margin: float) -> dict[str, list[Comparison] | str]:
    """By every factor of `SIDES`; by isolation alone where no two policies can be held against each other."""
    found = {name: _compared(observed, name, margin) for name in SIDES if _has_sides(observed, name)}
    if isinstance(found.get("policy"), str) and _has_sides(observed, "isolation"):
        found["isolation"] = _compared(observed, "isolation", margin)
    return found


def _compared(observed: Observed, name: str, margin: float) -> list[Comparison] | str:
    """Sides of a run by one factor, or why they are not compared."""
    try:
        pairs = within(observed, find_factor(name), frozenset())
    except RequestError as error:
        return str(error)
    return compare(pairs, margin, observed.interleaved)


def _verdicts(name: str, found: list[Comparison] | str) -> Section:
    title = f"Verdicts by {name}"
    return (
        Section(title, (found,))
        if isinstance(found, str)
        else Section(title, folded_tables=tuple(compared_tables(found)))
    )
