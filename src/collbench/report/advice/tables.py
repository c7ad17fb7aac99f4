"""Advice as tables: what each choice costs at each size, and the guidelines that a library violates."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.advise import AtSize
from collbench.analysis.guidelines import GuidelineResult
from collbench.analysis.options import Option, Question
from collbench.report.advice.sentences import Advised, sentences
from collbench.report.cells import SIGNS, disturbances, times
from collbench.report.tables import Table
from collbench.units import format_size

#: Options up to which p holds as it is although the best was chosen by the same launches.
MANY = 5

#: A table of costs has a column for each size, and pages have an end.
MOST_SIZES = 6


def tables(
    advised: Sequence[Advised], findings: Sequence[GuidelineResult], cautions: Sequence[str] = ()
) -> list[Table]:
    """A table of costs for each operation, the answer and what to beware of as its notes; then violated guidelines."""
    found = [_costs_table(one, cautions) for one in advised]
    return [*found, *guideline_tables(findings)]


def _costs_table(advised: Advised, cautions: Sequence[str]) -> Table:
    question, sizes = advised.advice.question, _chosen(advised.advice.sizes)
    columns = ("factor", "choice", *(f"at {format_size(size.bytes)}" for size in sizes))
    rows = [
        (factor, value, *(_cheapest(question, size, factor, value) for size in sizes))
        for factor in (*question.varying, "all together")
        for value in _values(question, factor)
    ]
    disturbed = disturbances(cell for found in question.cells.values() for cell in found.values())
    if not question.varying:
        rows = [("", question.name(option), *("best" for _ in sizes)) for option in question.options]
    return Table(
        advised.title, columns, tuple(rows), (*sentences(advised), *disturbed, *cautions, *_of_many(question), _LEGEND)
    )


def _of_many(question: Question) -> list[str]:
    """With more options than this, chance makes one of them the best by more than p knows (docs/statistics.md)."""
    many = len(question.options)
    return [f"best of {many} options: see docs/statistics.md on the best of many"] if many > MANY else []


_LEGEND = (
    "numbers: times the time of the best option at that size, for the best option with that choice (95 % interval); "
    "= the same within the margin, ? not decided"
)


def _rank(option: Option, factor: str) -> tuple[object, ...]:
    """Places from the least isolated to the most, everything else by name."""
    if factor == "policy":
        return option.isolation_order[:1]
    if factor == "isolation":
        return option.isolation_order[1:]
    return (option["library"], option.isolation_order, option) if factor == "all together" else (option[factor],)


def _values(question: Question, factor: str) -> list[str]:
    """The values of a factor, in order."""
    ordered = sorted(question.options, key=lambda option: _rank(option, factor))
    found = dict.fromkeys(_value(option, factor, question) for option in ordered)
    return [value for value in found if value]


def _value(option: Option, factor: str, question: Question) -> str:
    return question.name(option) if factor == "all together" else option[factor]


def _cheapest(question: Question, size: AtSize, factor: str, value: str) -> str:
    """The least cost at a size with this choice, the other factors free; the choice of the best option is best.

    The best has the lowest median over blocks, and yet the median of another's ratios to it may lie below 1.
    """
    options = [option for option in (size.best, *size.others) if _value(option, factor, question) == value]
    if size.best in options:
        return "best"
    costs = {option: size.cost(option) for option in options}
    known = {option: cost for option, cost in costs.items() if cost is not None}
    if not known:
        return "-"
    option = min(known, key=lambda one: known[one])
    one = size.others[option]
    assert one.ratio is not None
    return f"{times(one.ratio)}{SIGNS.get(one.verdict, '')}"


def _chosen(sizes: Sequence[AtSize]) -> list[AtSize]:
    """All sizes, or so many of them, evenly spread with both ends."""
    if len(sizes) <= MOST_SIZES:
        return list(sizes)
    step = (len(sizes) - 1) / (MOST_SIZES - 1)
    return [sizes[round(index * step)] for index in range(MOST_SIZES)]


def guideline_tables(findings: Sequence[GuidelineResult]) -> list[Table]:
    """One table of the guidelines that are violated, and how many were checked."""
    if not findings:
        return []
    rows = tuple(
        (one.rule, one.case.where.image or "", _place(one), str(one.case.where.ranks), format_size(one.case["size"]),
         one.against, times(one.ratio)) for one in findings if one.violated
    )  # fmt: skip
    held, open_ = sum(one.held for one in findings), sum(not one.held and not one.violated for one in findings)
    note = f"{len(findings)} checked: {held} hold, {len(rows)} violated, {open_} not decided"
    columns = ("guideline", "image", "place", "ranks", "size (B)", "against", "times as long")
    return [Table("performance guidelines that are violated", columns if rows else (), rows, (note,))]


def _place(one: GuidelineResult) -> str:
    return f"{one.case.workload} {one.case.where.text}"
