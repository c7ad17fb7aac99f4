"""The answer of a gate as tables: losses first, then what is not answered, then what came nearest to a loss."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.report.comparison import difference, row_launches
from collbench.report.gate.names import Names, side_title
from collbench.report.gate.quoted import shortened
from collbench.report.gate.sentence import sentence, upper
from collbench.report.tables import Table, without_empty
from collbench.report.verdict import remarks
from collbench.units import format_duration

COLUMNS = ("answer", "what", "size (B)", "difference (%)", "difference 95 %", "base", "other", "launches", "why")

#: Rows without `--all`: of what is lost or not answered, and of the rest.
MOST_ROWS, NEAREST = 20, 5

#: Characters of a reason in a row; longer ones stand below the table, so many of them.
LONGEST, MOST_REASONS = 120, 5


def tables(judgement: Judgement, names: Names, every: bool = False, whole: bool = False) -> list[Table]:
    """The sentence with what must be known of it, a table of cells, and reasons that are too long for it.

    In rows they are shortened unless they are to be `whole`.
    """
    first = sentence(judgement, names)
    ordered = in_order(judgement)
    shown = ordered if every else _chosen(judgement)
    left_out = len(ordered) - len(shown)
    lines = [*notes(judgement), *([f"every cell: --all ({left_out} more)"] if left_out else [])]
    rows = tuple(row(one, names, None if whole else LONGEST) for one in shown)
    doubts = {one.doubt for one in shown if one.doubt is not None}
    long = () if whole else long_reasons(judgement, MOST_REASONS)
    told = all(doubt.why in first or f"{doubt.name}: {doubt.why}" in long for doubt in doubts)
    if len(doubts) == 1 and not every and told:
        rows = tuple((*cells[:-1], "") for cells in rows)  # the sentence says it, or a line below
    table = without_empty(Table(names.shared, COLUMNS, rows))
    below = [Table("reasons in full", (), (), tuple(long))] if long else []
    return [Table(first, (), (), tuple(lines)), table, *below]


def long_reasons(judgement: Judgement, most: int) -> list[str]:
    """Reasons that rows have shortened, each once, as a line; more than `most` are counted."""
    found = list(dict.fromkeys(reason for one in in_order(judgement) if len(reason := why(one)) > LONGEST))
    return [*found[:most], *([f"{len(found) - most} more: gate.json"] if len(found) > most else [])]


def why(answer: Answer) -> str:
    """`broken: other alone: failed in 10 of 10 launches: it hangs`; empty where there is an answer."""
    return "" if answer.doubt is None else f"{answer.doubt.name}: {answer.doubt.why}"


def in_order(judgement: Judgement) -> list[Answer]:
    """Every planned cell: losses, what is not answered, and no losses with those nearest to one first."""
    passed = sorted(judgement.of("no loss"), key=lambda one: -upper(one))
    return [*judgement.of("loss"), *judgement.of("no answer"), *passed]


def _chosen(judgement: Judgement) -> list[Answer]:
    ordered = in_order(judgement)
    grave = [one for one in ordered if one.state != "no loss"]
    return grave[:MOST_ROWS] if grave else ordered[:NEAREST]


def row(answer: Answer, names: Names, longest: int | None) -> tuple[str, ...]:
    """A row of `COLUMNS`, with so many characters of a reason; None: all."""
    comparison = answer.comparison
    if comparison is None:
        measured: Sequence[str] = ("",) * 5
    else:
        sides = ("" if side is None else format_duration(side.value) for side in (comparison.base, comparison.other))
        measured = (*difference(comparison), *sides, row_launches(comparison))
    reason = why(answer) if longest is None else shortened(why(answer), longest)
    return (answer.state, names.cells[id(answer)], names.sizes[id(answer)], *measured, reason)


def notes(judgement: Judgement) -> list[str]:
    """What the sides are, what was accepted, and what could mislead; each line once."""
    lines = ["; ".join(f"{side.name}: {side_title(side.overrides)}" for side in judgement.sides), *judgement.alike]
    lines += [f"accepted: {', '.join(judgement.accepted)}"] if judgement.accepted else []
    lines += judgement.refused
    compared = [one.comparison for one in judgement.answers if one.comparison is not None]
    return list(dict.fromkeys((*lines, *(remarks(compared) if compared else ()))))
