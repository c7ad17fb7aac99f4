"""The contents of a report, before layout: a chapter for each run, with a section for each operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from collbench.analysis.advise import advise, check_guidelines
from collbench.analysis.compare import Comparison, of_collectives
from collbench.analysis.factors import facts_of
from collbench.analysis.options import Question, questions
from collbench.analysis.predictions import training_steps
from collbench.analysis.runs import Observed
from collbench.report import advice
from collbench.report.advice import Advised, complete, costs, guideline_tables, sentences
from collbench.report.caveats import misleading
from collbench.report.cells import tables as compared_tables
from collbench.report.headings import is_program, operation
from collbench.report.models import step_tables
from collbench.report.page.drawing import Figure
from collbench.report.page.figures.curves import curves
from collbench.report.page.figures.pictures import choices
from collbench.report.page.figures.places import bars, ladders
from collbench.report.page.figures.samples import StoredSamples, strips
from collbench.report.page.programs import programs
from collbench.report.page.render import Chapter, Section
from collbench.report.paper import Beside
from collbench.report.tables import Table
from collbench.report.verdict import sentence
from collbench.schema.axes import PolicyOrder, policy_order, step_order
from collbench.schema.case import Case, Where
from collbench.schema.manifest import Image, Manifest

#: Curves over so few sizes say less than the table, and are folded.
MOST_FOLDED = 2


def about(observed: Observed) -> tuple[Table, ...]:
    """The facts of the machine, and the software of both sides of an experiment."""
    first = observed.manifests[0]
    rows = [(name, value) for name, value in facts_of(observed, observed.cells).items() if value]
    rows += [("measured", first.created), ("command", " ".join(first.command))]
    machine = Table("Where and how it was measured", ("fact", "value"), tuple(rows))
    return (machine,) if first.experiment is None else (machine, _sides(first))


def _sides(manifest: Manifest) -> Table:
    assert manifest.experiment is not None
    hosts, images = ({f"{side.side}: {side.name}" if side.side else side.name: _facts(side) for side in sides}
                     for sides in (manifest.experiment.environments, manifest.experiment.images))  # fmt: skip
    rows = []
    for name in dict.fromkeys((*images, *hosts)):
        host, image = hosts.get(name, {}), images.get(name, {})
        for fact in dict.fromkeys((*host, *image)):
            sides = host.get(fact, "-"), image.get(fact, "-")
            differs = ("no" if sides[0] == sides[1] else "yes") if host and image else "-"
            rows.append((name, fact, *sides, differs))
    columns = ("image", "fact", "on the host", "in the image", "differs")
    return Table("Both sides: the environment on the host, and the image", columns, tuple(rows))


def _facts(side: Image) -> dict[str, str]:
    libraries = (
        f"{library.name} {library.version} ({(library.sha256 or 'no hash')[:12]})" for library in side.libraries
    )
    return {"libraries": ", ".join(libraries), "python": side.python or "-", **side.packages}


def chapter(
    observed: Observed,
    given: dict[str, str],
    margin: float,
    number: int = 0,
    figures: bool = True,
    suite_of: Mapping[str, str] = MappingProxyType({}),
) -> Chapter:
    """A run as a chapter; without `figures` for formats that have none.

    `suite_of` names the suite of benchmarks that are installed here.

    Raises:
        RequestError: a library that analyses or draws is not installed.
    """
    all_questions = questions(observed, given)
    of_program = [question for question in all_questions if _of_program(question)]
    collectives = replace(observed, cells={case: cell for case, cell in observed.cells.items() if not is_program(case)})
    compared = of_collectives(collectives, margin)
    chosen = advise([question for question in all_questions if not _of_program(question)], observed.interleaved, margin)
    advices = complete(chosen, observed.interleaved)
    by_place = (compared.get(name, []) for name in ("policy", "isolation"))
    places = [comparison for of_factor in by_place if not isinstance(of_factor, str) for comparison in of_factor]
    with StoredSamples(observed) as stored:
        sections = [
            _section(stored if figures else None, group, places, f"c{number}-o{index}")
            for index, group in enumerate(_by_operation(advices))
        ]
        measured = programs(observed, of_program, suite_of, margin, stored if figures else None, f"c{number}")
    sections = [*measured.sections, *sections]
    lines = (*measured.answer, *_cost_of_isolation(compared, margin), *answer(advices))
    sections += [_verdicts(name, of_factor) for name, of_factor in compared.items()]
    if guidelines := check_guidelines(collectives, margin):
        sections.append(Section("Performance guidelines", tables=tuple(guideline_tables(guidelines))))
    if steps := training_steps(observed):
        sections.append(Section("Training steps", tables=tuple(step_tables(steps))))
    title = observed.manifests[0].title or observed.name
    largest = [max(group, key=_ranks) for group in _by_operation(advices)]
    picture = measured.picture or (choices(largest, margin, f"c{number}-choices") if figures else ())
    return Chapter(observed.name, title, lines, misleading(observed), tuple(sections), about(observed), picture)


def paper_chapter(reference: str, judged: Beside) -> Chapter:
    """Runs that are judged together beside a paper, as a chapter before those of the runs."""
    grid = replace(judged.grid, title=f"conclusions of {reference}", notes=(*judged.grid.notes, *judged.next_step))
    sections = (Section("Conclusions", tables=(grid,)), Section("Cells that decide", folded_tables=judged.more))
    title = ", ".join(judged.runs)
    return Chapter(title, f"Beside {reference}", (judged.grid.title,), judged.caveats, sections)


def _cost_of_isolation(compared: Mapping[str, list[Comparison] | str], margin: float) -> tuple[str, ...]:
    """What the most isolated place costs over the host, or the step over the least isolated one, in one sentence."""
    for name in ("policy", "isolation"):
        comparisons = compared.get(name)
        if comparisons and not isinstance(comparisons, str):
            places = [comparison.pair.other.case.where for comparison in comparisons]
            highest = max(map(_isolation, places))
            isolated = [one for one, place in zip(comparisons, places, strict=True) if _isolation(place) == highest]
            of = {operation(comparison.pair.base.case) for comparison in isolated}
            return (f"{f'{of.pop()}, ' if len(of) == 1 else ''}{sentence(isolated, margin)}.",)
    return ()


def _isolation(place: Where) -> tuple[PolicyOrder, int]:
    return policy_order(place.policy), step_order(place.isolation)


def answer(advices: Sequence[Advised]) -> tuple[str, ...]:
    """A line for each operation, at most three, on the most ranks; an operation is named as shortly as it can be."""
    groups = _by_operation(advices)[:3]
    names = [group[0].advice.question.case.workload for group in groups]
    lines = []
    for group, name in zip(groups, names, strict=True):
        largest = max(group, key=_ranks)
        title, _, ranks = largest.title.rpartition(",")
        title = name if names.count(name) == 1 else title
        lines.append(f"{title}{f',{ranks}' if len(group) > 1 else ''}: {advice.sentence(largest)}.")
    return tuple(lines)


def _of_program(question: Question) -> bool:
    return all(is_program(cell.case) for cells in question.cells.values() for cell in cells.values())


def _ranks(advised: Advised) -> int:
    return advised.advice.question.case.where.ranks


def _by_operation(advices: Iterable[Advised]) -> list[list[Advised]]:
    """Groups of questions that differ in the number of ranks alone."""
    groups: dict[Case, list[Advised]] = {}
    for advised in advices:
        groups.setdefault(advised.advice.question.case.without(("ranks",)), []).append(advised)
    return list(groups.values())


def _section(stored: StoredSamples | None, group: list[Advised], places: list[Comparison], name: str) -> Section:
    """One operation; without `stored` samples it has no figures."""
    title = group[0].title.rpartition(",")[0]
    questions_of_group = [advised.advice.question for advised in group]
    largest = max(size for question in questions_of_group for size in question.sizes)
    drawn: list[Figure] = []
    folded: list[Figure] = []
    if stored is not None:
        for number, (advised, question) in enumerate(zip(group, questions_of_group, strict=True)):
            lines_of = drawn if len(question.sizes) > MOST_FOLDED else folded
            lines_of += curves(question, f"{name}-{number}", advised.title)
            drawn += ladders(question, largest, places, f"{name}-{number}", advised.title)
            folded += strips(stored, question, f"{name}-{number}", advised.title)
        drawn += bars(questions_of_group, largest, name, title)
    single = len(group) == 1
    lines = tuple(text if single else f"{advised.title}: {text}" for advised in group for text in sentences(advised))
    tables = tuple(map(costs, group))
    return Section(title, lines, tables, tuple(drawn), tuple(folded))


def _verdicts(name: str, compared: list[Comparison] | str) -> Section:
    title = f"Verdicts by {name}"
    if isinstance(compared, str):
        return Section(title, (compared,))
    return Section(title, folded_tables=tuple(compared_tables(compared)))
