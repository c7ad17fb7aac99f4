"""Advice as tables and as JSON: what each choice costs at each size, and the performance guidelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.advise import ESTABLISHED, AtSize
from collbench.analysis.compare import Comparison
from collbench.analysis.guidelines import GuidelineResult
from collbench.analysis.observations import Observed
from collbench.analysis.options import Option, Question
from collbench.report.advice.answer import answer, cheapest
from collbench.report.advice.sentences import Advised, sentences
from collbench.report.advice.sizes import at
from collbench.report.cells import digits, interval, times
from collbench.report.comparison import dependent
from collbench.report.misleading import misleading
from collbench.report.tables import Table
from collbench.report.verdict import ways_to_tell
from collbench.units import format_size

#: With more options than this, p is noticeably too small, because the same launches chose the best.
MANY = 5

#: Of what could mislead so many lines stand below the answers.
MOST_MISLEADING = 3

#: The most sizes in a table of costs, which has a column for each.
MOST_SIZES = 6


def brief(advices: Sequence[Advised], known: Sequence[str], whole: bool = False) -> list[Table]:
    """Of each operation at most three lines; then, once, what could mislead and what would decide what is open.

    Of what could mislead the gravest lines, all with `whole`.
    """
    answers = [Table(advised.title, (), (), tuple(answer(advised))) for advised in advices]
    more = ways_to_tell(compared(advices))
    left = 0 if whole else len(known[MOST_MISLEADING:])
    shown = [*known[: len(known) - left], *([f"{left} more: --why"] if left else [])]
    told = (("what could mislead", shown), ("what would tell more", more))
    return answers + [Table(title, (), (), tuple(notes)) for title, notes in told if notes]


def cautions(advices: Sequence[Advised], observed: Observed, also: Sequence[str] = ()) -> list[str]:
    """What could mislead in any of the answers, the gravest first: of what was asked, and what is `also` known."""
    questions = [advised.advice.question for advised in advices]
    cells = {cell.case: cell for one in questions for of_size in one.cells.values() for cell in of_size.values()}
    found = misleading(replace(observed, cells=cells), (*also, *dependent(compared(advices))), whole=False)
    return [line.removesuffix(".") for line in found]


def compared(advices: Sequence[Advised]) -> list[Comparison]:
    """Every option with the fastest one, at every size."""
    return [one for advised in advices for at in advised.advice.sizes for one in at.others.values()]


def evidence(advices: Sequence[Advised], results: Sequence[GuidelineResult]) -> list[Table]:
    """A table of costs for each operation, with what it shows as its notes; then violated guidelines."""
    varying = [advised for advised in advices if advised.advice.question.varying]
    found = [(advised, costs(advised, legend=advised in varying[:1])) for advised in advices]
    return [
        *(replace(table, notes=(*sentences(advised), *table.notes)) for advised, table in found),
        *guideline_tables(results),
    ]


def with_answers(tables: Sequence[Table], brief: Sequence[Table]) -> list[Table]:
    """Tables of evidence for styles that have no place for sentences but below a table of the same title."""
    lines = {table.title: table.notes for table in brief}
    found = [replace(table, notes=(*lines.pop(table.title, ()), *table.notes)) for table in tables]
    left = tuple(line for notes in lines.values() for line in notes)
    return [replace(found[0], notes=(*found[0].notes, *left)), *found[1:]] if found else list(brief)


def costs(advised: Advised, legend: bool = True) -> Table:
    """What each choice costs, by size, with notes; of several such tables only the first needs the `legend`."""
    question, sizes = advised.advice.question, _chosen(advised.advice.sizes)
    varying = question.varying
    columns = ("factor", "choice", *(at(question, one.size).strip() or "time" for one in sizes)) if varying else ()
    rows = [
        (factor, value, *(_cheapest(question, at, factor, value) for at in sizes))
        for factor in ((*varying, "all together") if varying else ())
        for value in _values(question, factor)
    ]
    notes = (
        *_of_many(question),
        *_not_shown(advised),
        *([_LEGEND] if varying and legend else []),
    )
    return Table(advised.title, columns, tuple(rows), notes)


def _of_many(question: Question) -> list[str]:
    many = len(question.options)
    return (
        [f"fastest of {many} options: chosen partly by chance (docs/statistics.md#what-is-not-claimed)"]
        if many > MANY
        else []
    )


def _not_shown(advised: Advised) -> list[str]:
    """Why columns of measured sizes are missing."""
    sizes = advised.advice.sizes
    shown = _chosen(sizes)
    left_out = ", ".join(format_size(at.size) for at in sizes if at not in shown)
    if not left_out or not advised.advice.question.varying:
        return []
    return [
        f"the table has room for {len(shown)} of {len(sizes)} sizes; measured too: {left_out} (--style json has all)"
    ]


_LEGEND = (
    "1.50x: 1.50 times the time of the fastest option at that size, for the fastest option with that choice (95 % "
    "interval); as fast: the same within the margin; open: the launches do not tell (with an interval above 1: slower "
    "by itself, but not established among all comparisons)"
)


def _rank(option: Option, factor: str) -> tuple[object, ...]:
    """Policies and steps from the least isolated to the most, everything else by name."""
    if factor == "policy":
        return option.isolation_order[:1]
    if factor == "isolation":
        return option.isolation_order[1:]
    return (option["library"], option.isolation_order, option) if factor == "all together" else (option[factor],)


def _values(question: Question, factor: str) -> list[str]:
    ordered = sorted(question.options, key=lambda option: _rank(option, factor))
    values = dict.fromkeys(_value(option, factor, question) for option in ordered)
    return [value for value in values if value]


def _value(option: Option, factor: str, question: Question) -> str:
    return question.name(option) if factor == "all together" else question.value(option, factor)


def _cheapest(question: Question, at: AtSize, factor: str, value: str) -> str:
    """The least cost at a size with this choice, whatever the other factors; `fastest` where the fastest has it."""
    options = [option for option in (at.best, *at.others, *at.unknown) if _value(option, factor, question) == value]
    if at.best in options:
        return "fastest"
    state, comparison = cheapest(at, options)
    if comparison is None or comparison.ratio is None:
        return _STATES.get(state, "-")
    ratio = comparison.ratio
    return times(ratio) if state == "slower" else f"{_STATES[state]}{interval(ratio.interval, digits)}"


#: What is said rather than shown as a number: one below 1 would contradict the choice of the fastest.
_STATES = {"undecided": "open", "as fast": "as fast"}


def _chosen(sizes: Sequence[AtSize]) -> list[AtSize]:
    """All sizes, or `MOST_SIZES` of them, evenly spread with both ends."""
    if len(sizes) <= MOST_SIZES:
        return list(sizes)
    step = (len(sizes) - 1) / (MOST_SIZES - 1)
    return [sizes[round(index * step)] for index in range(MOST_SIZES)]


def guideline_tables(results: Sequence[GuidelineResult]) -> list[Table]:
    """One table of the guidelines that are violated, and how many were checked."""
    if not results:
        return []
    rows = tuple(_violation(result) for result in results if result.state == "violated")
    states = Counter(result.state for result in results)
    note = (
        f"{len(results)} checked: {states['held']} hold, {states['violated']} violated, {states['undecided']} undecided"
    )
    columns = ("guideline", "image", "place", "ranks", "size (B)", "against", "times as long")
    return [Table("performance guidelines", columns if rows else (), rows, (note,))]


def _violation(result: GuidelineResult) -> tuple[str, ...]:
    case, where = result.case, result.case.where
    return (
        result.rule, where.image or "", f"{case.workload} {where.text}", str(where.ranks), format_size(case["size"]),
        result.against, times(result.ratio),
    )  # fmt: skip


def document(
    advices: Sequence[Advised], results: Sequence[GuidelineResult], cautions: Sequence[str] = ()
) -> dict[str, Any]:
    entries, guidelines = map(_entry, advices), map(_guideline, results)
    return {"advice": list(entries), "guidelines": list(guidelines), "cautions": list(cautions)}


def _entry(advised: Advised) -> dict[str, Any]:
    advice, question = advised.advice, advised.advice.question
    return {
        "operation": advised.title,
        "answer": answer(advised),
        "why": sentences(advised),
        "ranges": [
            {"from": of.sizes[0].size, "to": of.sizes[-1].size, "take": _taken(question, of.option, *of.sizes),
             "sure": of.sure, "not_sure_at": [at.size for at in of.open],
             "as_good": sorted(map(question.name, of.rivals))}
            for of in advice.ranges
        ],
        "sizes": [_size(question, at, of.option) for of in advice.ranges for at in of.sizes],
        "crossovers": [
            {"size": crossing.size, "interval": crossing.interval, "below": question.name(crossing.below),
             "above": question.name(crossing.above)} for crossing in advised.crossovers
        ],
        "recovered": [
            {"size": recovery.size, "isolated": question.name(recovery.isolated), "free": question.name(recovery.free),
             "step": recovery.step["isolation"], "cost": recovery.cost, "cost_interval": recovery.cost_interval,
             "share": recovery.share, "share_interval": recovery.share_interval} for recovery in advised.recoveries
        ],
    }  # fmt: skip


def _size(question: Question, at: AtSize, taken: Option) -> dict[str, Any]:
    others = {
        question.name(option): {
            "times": None if other.ratio is None else other.ratio.value,
            "interval": None if other.ratio is None else other.ratio.interval,
            "verdict": other.verdict, "why": other.why, "launches_more": other.launches_more,
        }
        for option, other in at.others.items()
    }  # fmt: skip
    return {
        "size": at.size,
        "take": _taken(question, taken, at),
        "sure": at.sure(taken),
        "best": question.name(at.best),
        "seconds": median(question.cells[at.size][at.best].medians),
        "others": others,
        "failed": {question.name(option): count for option, (count, _) in at.failing.items()},
        "not_compared": {question.name(option): gap.why for option, gap in at.unknown.items()},
    }


def _taken(question: Question, option: Option, *sizes: AtSize) -> str | None:
    """The option to take; None where it is established at none of the sizes."""
    return question.name(option) if any(one.sure(option) in ESTABLISHED for one in sizes) else None


def _guideline(result: GuidelineResult) -> dict[str, Any]:
    return {"rule": result.rule, "case": to_builtins(result.case), "against": result.against, "state": result.state,
            "times": result.ratio.value, "interval": result.ratio.interval}  # fmt: skip
