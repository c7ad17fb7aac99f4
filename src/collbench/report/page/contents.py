"""The contents of a report, before layout: a chapter for each run, with a section for each operation or program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from collbench.analysis.advise import advise, check_guidelines
from collbench.analysis.compare import Comparison, Suite, by_suite, factors_of, of_collectives
from collbench.analysis.factors import facts_of
from collbench.analysis.options import Question, questions
from collbench.analysis.predictions import training_steps
from collbench.analysis.results import grouped
from collbench.analysis.runs import Observed
from collbench.report import advice, verdict
from collbench.report.advice import Advised, complete, costs, guideline_tables
from collbench.report.caveats import differing_results, misleading
from collbench.report.cells import launch_table
from collbench.report.cells import tables as compared_tables
from collbench.report.headings import case_words, is_program, operation, versus
from collbench.report.models import step_tables
from collbench.report.page.figures import StoredSamples, bars, curves, ladders, strips
from collbench.report.page.pictures import BenchmarkRow, benchmarks, choices
from collbench.report.page.render import Chapter, Figure, Section
from collbench.report.paper import Beside
from collbench.report.tables import Table
from collbench.schema.axes import policy_order, step_order
from collbench.schema.manifest import Image, Manifest
from collbench.units import counted

#: Curves over so few sizes say less than the table, and are folded.
MOST_FOLDED = 2


def chapter(
    observed: Observed, fixed: dict[str, str], margin: float, number: int = 0, figures: bool = True,
    suite_of: Mapping[str, str] = MappingProxyType({}),
) -> Chapter:  # fmt: skip
    """A run as a chapter; without `figures` for formats that have none.

    `suite_of` names the suite of benchmarks that are installed here.

    Raises:
        RequestError: a library that analyses or draws is not installed.
    """
    all_questions = questions(observed, fixed)
    of_program = [question for question in all_questions if _of_program(question)]
    collectives = replace(observed, cells={case: cell for case, cell in observed.cells.items() if not is_program(case)})
    compared = of_collectives(collectives, margin)
    chosen = advise([question for question in all_questions if not _of_program(question)], observed.interleaved, margin)
    by_operation = grouped((advised.advice.question.case.without(("ranks",)), advised)
                           for advised in complete(chosen, observed.interleaved))  # fmt: skip
    operations = list(by_operation.values())  # each on all its numbers of ranks
    places = [comparison for name in ("policy", "isolation") for comparison in compared.get(name, ([], ""))[0]]
    with StoredSamples(observed) as samples:
        stored = samples if figures else None
        sections = [_section(stored, group, places, f"c{number}-o{index}") for index, group in enumerate(operations)]
        measured = programs(observed, of_program, suite_of, margin, stored, f"c{number}")
    lines = (*measured.answer, *_cost_of_isolation(compared, margin), *_answer(operations[:3]))
    sections += [_verdicts(name, filter(None, [why]), comparisons) for name, (comparisons, why) in compared.items()]
    if guidelines := check_guidelines(collectives, margin):
        sections.append(Section("Performance guidelines", tables=tuple(guideline_tables(guidelines))))
    if steps := training_steps(observed):
        sections.append(Section("Training steps", tables=tuple(step_tables(steps))))
    title = observed.manifests[0].title or observed.name
    largest = [max(group, key=_ranks) for group in operations]
    picture = measured.picture or (choices(largest, margin, f"c{number}-choices") if figures else ())
    return Chapter(observed.name, title, lines, misleading(observed), (*measured.sections, *sections),
                   _about(observed), picture)  # fmt: skip


def _of_program(question: Question) -> bool:
    return all(is_program(cell.case) for cells in question.cells.values() for cell in cells.values())


def _ranks(advised: Advised) -> int:
    return advised.advice.question.case.where.ranks


def _answer(operations: Sequence[Sequence[Advised]]) -> Iterator[str]:
    """A line for each, on the most ranks; an operation is named as shortly as it can be."""
    names = [group[0].advice.question.case.workload for group in operations]
    for group, name in zip(operations, names, strict=True):
        largest = max(group, key=_ranks)
        title, _, ranks = largest.title.rpartition(",")
        title = name if names.count(name) == 1 else title
        yield f"{title}{f',{ranks}' if len(group) > 1 else ''}: {advice.sentence(largest)}."


def _cost_of_isolation(compared: Mapping[str, tuple[list[Comparison], str]], margin: float) -> Iterator[str]:
    """What the most isolated place costs over the host, or the step over the least isolated one, in one sentence."""
    for name in ("policy", "isolation"):
        comparisons, _ = compared.get(name, ([], ""))
        if comparisons:
            places = [comparison.pair.other.case.where for comparison in comparisons]
            orders = [(policy_order(place.policy), step_order(place.isolation)) for place in places]
            highest = max(orders)
            isolated = [comparison for comparison, order in zip(comparisons, orders, strict=True) if order == highest]
            of = {operation(comparison.pair.base.case) for comparison in isolated}
            yield f"{f'{of.pop()}, ' if len(of) == 1 else ''}{verdict.sentence(isolated, margin)}."
            return


def _section(stored: StoredSamples | None, group: list[Advised], places: list[Comparison], name: str) -> Section:
    """One operation; without `stored` samples it has no figures."""
    title = group[0].title.rpartition(",")[0]
    of_group = [advised.advice.question for advised in group]
    largest = max(size for question in of_group for size in question.sizes)
    drawn: list[Figure] = []
    folded: list[Figure] = []
    if stored is not None:
        for number, (advised, question) in enumerate(zip(group, of_group, strict=True)):
            lines_of = drawn if len(question.sizes) > MOST_FOLDED else folded
            lines_of += curves(question, f"{name}-{number}", advised.title)
            drawn += ladders(question, largest, places, f"{name}-{number}", advised.title)
            folded += strips(stored, question, f"{name}-{number}", advised.title)
        drawn += bars(of_group, largest, name, title)
    single = len(group) == 1
    lines = (text if single else f"{advised.title}: {text}" for advised in group for text in advice.sentences(advised))
    return Section(title, tuple(lines), tuple(map(costs, group)), tuple(drawn), tuple(folded))


def _verdicts(factor: str, refused: Iterable[str], compared: Sequence[Comparison]) -> Section:
    return Section(f"Verdicts by {factor}", tuple(refused), folded_tables=tuple(compared_tables(compared)))


def paper_chapter(reference: str, judged: Beside) -> Chapter:
    """Runs that are judged together beside a paper, as a chapter before those of the runs."""
    grid = replace(judged.grid, title=f"conclusions of {reference}", notes=(*judged.grid.notes, *judged.next_step))
    sections = (Section("Conclusions", tables=(grid,)), Section("Cells that decide", folded_tables=judged.more))
    title = ", ".join(judged.runs)
    return Chapter(title, f"Beside {reference}", (judged.grid.title,), judged.caveats, sections)


def _about(observed: Observed) -> tuple[Table, ...]:
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
    libraries = [
        f"{library.name} {library.version} ({(library.sha256 or 'no hash')[:12]})" for library in side.libraries
    ]
    return {"libraries": ", ".join(libraries), "python": side.python or "-", **side.packages}


# Programs: a sentence for each suite, one picture, and a section for each.

#: How suites are called where their name is not a word.
_TITLES = {"cpu": "CPU", "io": "I/O", "gpu": "GPU", "dl": "Deep learning"}

_ONE_SIDE = "measured on one side only"

#: Words of a reason that the answer quotes; a longer one stands below it.
LONGEST_REASON = 12


class Programs(NamedTuple):
    """What the page says of them: lines of the answer, a picture of all that was compared, and sections."""

    answer: tuple[str, ...] = ()
    picture: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()


def programs(
    observed: Observed, questions: Sequence[Question], suite_of: Mapping[str, str], margin: float,
    stored: StoredSamples | None, name: str,
) -> Programs:  # fmt: skip
    """Those of `questions`; without `stored` samples there are no figures. `name` begins those of figures."""
    cells = {cell.case: cell for question in questions for at in question.cells.values() for cell in at.values()}
    chosen = replace(observed, cells=cells)
    if not cells:
        return Programs()
    factors = factors_of(chosen)
    if not factors:
        sections = tuple(_benchmarks(chosen, questions, (), stored, name))
        number = counted(len(sections), "benchmark")
        return Programs((f"{number} on one side: there is nothing to compare with.",), (), sections)
    by_factor = {factor: by_suite(chosen, factor, suite_of, margin) for factor in factors}
    suites = by_factor.pop(factors[0])
    comparisons, rows = _comparisons(suites), list(_rows(suites))
    sides = dict.fromkeys(versus(comparison.pair) for comparison in comparisons)
    title = f"All benchmarks, by {factors[0]}: {', '.join(sides) or 'none compared'}"
    shown = (benchmarks(rows, margin, title, f"{name}-forest"),) if stored is not None else ()
    body = tuple((row.label, row.words) for row in rows if not row.heading)
    table = Table("Difference in time", ("benchmark", "difference (95 % interval), verdict"), body)
    more = [
        _verdicts(factor, [f"{refusal.label}: {refusal.why}." for suite in others for refusal in suite.refused
                           if refusal.why], _comparisons(others))
        for factor, others in by_factor.items()
    ]  # fmt: skip
    sections = (Section("All benchmarks", folded_tables=(table,)),
                *_benchmarks(chosen, questions, suites, stored, name),
                *(section for section in more if section.lines or section.folded_tables))  # fmt: skip
    return Programs((*differing_results(comparisons, named=True), *sentences(suites, margin)), shown, sections)


def _comparisons(suites: Iterable[Suite]) -> list[Comparison]:
    return [comparison for suite in suites for comparison in suite.comparisons]


def _title_of(suite: Suite) -> str:
    return _TITLES.get(suite.name, suite.name.capitalize())


def sentences(suites: Sequence[Suite], margin: float) -> tuple[str, ...]:
    """For every suite how its benchmarks compare, of a training the whole steps, and what was not compared."""
    return tuple(f"{_title_of(suite)}: {'; '.join(_sentences(suite, margin))}" for suite in suites)


def _sentences(suite: Suite, margin: float) -> Iterator[str]:
    chosen: list[Comparison] = []
    for of_benchmark in suite.compared.values():
        steps = [comparison for comparison in of_benchmark if comparison.pair.base.case["measure"] == "step"]
        chosen += steps or of_benchmark
    by_reason = grouped((
        *((verdict.reason(comparison.why, comparison.blocks), comparison.pair.base.case.workload)
          for comparison in chosen if comparison.verdict == "not comparable"),
        *((refused.why or _ONE_SIDE, refused.label) for refused in suite.refused),
    ))  # fmt: skip
    if compared := [comparison for comparison in chosen if comparison.verdict != "not comparable"]:
        yield verdict.sentence(compared, margin)
    if by_reason:
        names = dict.fromkeys(name for names in by_reason.values() for name in names)
        first = next(iter(by_reason))
        short = len(by_reason) == 1 and len(first.split()) <= LONGEST_REASON
        why = first if short else f"{counted(len(by_reason), 'reason')}, below"
        yield f"not compared: {', '.join(names)} ({why})"


def _rows(suites: Sequence[Suite]) -> Iterator[BenchmarkRow]:
    """By suite, then by benchmark, its cases in the order of their measurement."""
    several = len({comparison.pair.other_name for comparison in _comparisons(suites)}) > 1
    for suite in suites:
        yield BenchmarkRow(_title_of(suite), heading=True)
        for of_benchmark in suite.compared.values():
            cases = [comparison.pair.base.case for comparison in of_benchmark]
            for comparison in of_benchmark:
                side = f", {comparison.pair.other_name}" if several else ""
                yield BenchmarkRow(f"{case_words(comparison.pair.base.case, cases)}{side}", comparison)
        for refused in suite.refused:
            yield BenchmarkRow(refused.label)


def _benchmarks(
    observed: Observed, questions: Sequence[Question], suites: Sequence[Suite], stored: StoredSamples | None, name: str
) -> Iterator[Section]:
    """In the order of the picture; without `suites` in that of the run."""
    names = [benchmark for suite in suites for benchmark in suite.benchmarks]
    for number, benchmark in enumerate(names or dict.fromkeys(case.workload for case in observed.cells)):
        drawn: list[Figure] = []
        folded: list[Figure] = []
        if stored is not None:
            of_benchmark = (question for question in questions if question.case.workload == benchmark)
            for index, question in enumerate(of_benchmark):
                title, start = operation(question.case), f"{name}-p{number}-{index}"
                drawn += curves(question, start, title)
                folded += strips(stored, question, start, title)
        compared = [comparison for suite in suites for comparison in suite.compared.get(benchmark, ())]
        refused = (f"Not compared: {refusal.label} ({refusal.why or _ONE_SIDE})."
                   for suite in suites for refusal in suite.refused if refusal.benchmark == benchmark)  # fmt: skip
        launches = launch_table([cell for case, cell in observed.cells.items() if case.workload == benchmark])
        shown = compared_tables(compared) if compared else [launches]
        more = (replace(launches, title=f"Times of {launches.title}"),) if compared and launches.rows else ()
        yield Section(benchmark, tuple(refused), tuple(shown), tuple(drawn), tuple(folded), more)
