"""The programs of a run on the page: a sentence for each suite, one picture, and a section for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.compare import Comparison, Suite, by_suite, factors_of
from collbench.analysis.options import Question
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.report.caveats import differing_results
from collbench.report.cells import launch_table
from collbench.report.cells import tables as compared_tables
from collbench.report.headings import case_words, operation, versus
from collbench.report.page.drawing import Figure
from collbench.report.page.figures.curves import curves
from collbench.report.page.figures.pictures import BenchmarkRow, benchmarks
from collbench.report.page.figures.samples import StoredSamples, strips
from collbench.report.page.render import Section
from collbench.report.tables import Table
from collbench.report.verdict import reason, sentence
from collbench.units import counted

#: How suites are called where their name is not a word.
_TITLES = {"cpu": "CPU", "io": "I/O", "gpu": "GPU", "dl": "Deep learning"}

_ONE_SIDE = "measured on one side only"

#: Words of a reason that the answer quotes; a longer one stands below it.
LONGEST_REASON = 12


@dataclass(frozen=True)
class Programs:
    """What the page says of them: lines of the answer, a picture of all that was compared, and sections."""

    answer: tuple[str, ...] = ()
    picture: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()


def programs(
    observed: Observed, questions: Sequence[Question], suite_of: Mapping[str, str], margin: float,
    stored: StoredSamples | None, name: str,
) -> Programs:  # fmt: skip
    """Those of `questions`; without `stored` samples there are no figures. `name` begins those of figures."""
    own = {cell.case: cell for question in questions for cells in question.cells.values() for cell in cells.values()}
    chosen = replace(observed, cells=own)
    if not chosen.cells:
        return Programs()
    factors = factors_of(chosen)
    if not factors:
        sections = tuple(_benchmarks(chosen, questions, (), stored, name))
        number = counted(len(sections), "benchmark")
        return Programs((f"{number} on one side: there is nothing to compare with.",), (), sections)
    first, *others = factors
    suites = by_suite(chosen, first, suite_of, margin)
    rows = list(_rows(suites))
    sides = dict.fromkeys(versus(comparison.pair) for suite in suites for comparison in suite.comparisons)
    title = f"All benchmarks, by {first}: {', '.join(sides) or 'none compared'}"
    shown = (benchmarks(rows, margin, title, f"{name}-forest"),) if stored is not None else ()
    verdicts = [_more(by_suite(chosen, factor, suite_of, margin), factor) for factor in others]
    more = [section for section in verdicts if section.lines or section.folded_tables]
    body = tuple((row.label, row.words) for row in rows if not row.heading)
    table = Table("Difference in time", ("benchmark", "difference (95 % interval), verdict"), body)
    numbers = Section("All benchmarks", folded_tables=(table,))
    sections = (numbers, *_benchmarks(chosen, questions, suites, stored, name), *more)
    differing = differing_results([comparison for suite in suites for comparison in suite.comparisons], named=True)
    return Programs((*differing, *sentences(suites, margin)), shown, sections)


def title_of(suite: str) -> str:
    return _TITLES.get(suite, suite.capitalize())


def sentences(suites: Sequence[Suite], margin: float) -> tuple[str, ...]:
    """For every suite how its benchmarks compare, of a training the whole steps, and what was not compared."""
    return tuple(f"{title_of(suite.name)}: {'; '.join(_sentences(suite, margin))}" for suite in suites)


def _sentences(suite: Suite, margin: float) -> Iterator[str]:
    chosen: list[Comparison] = []
    by_reason: dict[str, list[str]] = {}
    for own in suite.compared.values():
        chosen += [comparison for comparison in own if comparison.pair.base.case["measure"] == "step"] or own
    for one in chosen:
        if one.verdict == "not comparable":
            by_reason.setdefault(reason(one.why, one.blocks), []).append(one.pair.base.case.workload)
    for refused in suite.refused:
        by_reason.setdefault(refused.why or _ONE_SIDE, []).append(refused.label)
    if compared := [comparison for comparison in chosen if comparison.verdict != "not comparable"]:
        yield sentence(compared, margin)
    if by_reason:
        names = dict.fromkeys(name for names in by_reason.values() for name in names)
        short = len(by_reason) == 1 and len(next(iter(by_reason)).split()) <= LONGEST_REASON
        why = next(iter(by_reason)) if short else f"{counted(len(by_reason), 'reason')}, below"
        yield f"not compared: {', '.join(names)} ({why})"


def _rows(suites: Sequence[Suite]) -> Iterator[BenchmarkRow]:
    """By suite, then by benchmark, its cases in the order of their measurement."""
    several = len({comparison.pair.other_name for suite in suites for comparison in suite.comparisons}) > 1
    for suite in suites:
        yield BenchmarkRow(title_of(suite.name), heading=True)
        for own in suite.compared.values():
            cases = [comparison.pair.base.case for comparison in own]
            for one in own:
                side = f", {one.pair.other_name}" if several else ""
                yield BenchmarkRow(f"{case_words(one.pair.base.case, cases)}{side}", one)
        for refused in suite.refused:
            yield BenchmarkRow(refused.label)


def _benchmarks(
    observed: Observed, questions: Sequence[Question], suites: Sequence[Suite], stored: StoredSamples | None, name: str
) -> Iterator[Section]:
    """In the order of the picture; without `suites` in that of the run."""
    known = [benchmark for suite in suites for benchmark in suite.benchmarks]
    for number, benchmark in enumerate(known or dict.fromkeys(case.workload for case in observed.cells)):
        own = [question for question in questions if question.case.workload == benchmark]
        cells = [cell for case, cell in observed.cells.items() if case.workload == benchmark]
        yield _benchmark(benchmark, own, cells, suites, stored, f"{name}-p{number}")


def _benchmark(
    benchmark: str, questions: Sequence[Question], cells: Sequence[Cell], suites: Sequence[Suite],
    stored: StoredSamples | None, name: str,
) -> Section:  # fmt: skip
    drawn: list[Figure] = []
    folded: list[Figure] = []
    for number, question in enumerate(questions if stored is not None else ()):
        title = operation(question.case)
        drawn += curves(question, f"{name}-{number}", title)
        if stored is not None:
            folded += strips(stored, question, f"{name}-{number}", title)
    compared = [comparison for suite in suites for comparison in suite.compared.get(benchmark, ())]
    refused = tuple(
        f"Not compared: {refusal.label} ({refusal.why or _ONE_SIDE})."
        for suite in suites for refusal in suite.refused if refusal.benchmark == benchmark
    )  # fmt: skip
    launches = launch_table(cells)
    shown = tuple(compared_tables(compared)) if compared else (launches,)
    more = (replace(launches, title=f"Times of {launches.title}"),) if compared and launches.rows else ()
    return Section(benchmark, refused, shown, tuple(drawn), tuple(folded), more)


def _more(suites: Sequence[Suite], factor: str) -> Section:
    compared = [comparison for suite in suites for comparison in suite.comparisons]
    refused = tuple(f"{refusal.label}: {refusal.why}." for suite in suites for refusal in suite.refused if refusal.why)
    return Section(f"Verdicts by {factor}", refused, folded_tables=tuple(compared_tables(compared)))
