"""What a gate answers: a sentence, a table, Markdown for a comment, JUnit XML, and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from collbench.analysis.gate import Answer, Judgement
from collbench.analysis.observations import Cell
from collbench.characters import in_one_line
from collbench.report.comparison import difference, entry, row_launches
from collbench.report.gate.sentence import (
    LONGEST_SENTENCE,
    Names,
    block,
    margins_text,
    quoted,
    quoted_in_table,
    sentence,
    shortened,
    shown_difference,
    side_title,
    upper,
)
from collbench.report.tables import Table, without_empty
from collbench.report.verdict import remarks
from collbench.units import format_duration

COLUMNS = ("answer", "what", "size (B)", "difference (%)", "difference 95 %", "base", "other", "launches", "why")

#: Rows without `--all`: of what is lost or not answered, and of the rest.
MOST_ROWS, NEAREST = 20, 5

#: Characters of a reason in a row; longer ones stand below the table, so many of them.
LONGEST_REASON, MOST_REASONS = 120, 5


def tables(judgement: Judgement, names: Names, every: bool = False, whole: bool = False) -> list[Table]:
    """The sentence with what must be known of it, a table of cells, and reasons that are too long for it.

    In rows they are shortened unless they are to be `whole`.
    """
    first = sentence(judgement, names)
    ordered = in_order(judgement)
    shown = ordered if every else _chosen(judgement)
    left_out = len(ordered) - len(shown)
    lines = [*notes(judgement), *([f"every cell: --all ({left_out} more)"] if left_out else [])]
    rows = tuple(row(one, names, None if whole else LONGEST_REASON) for one in shown)
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
    found = list(dict.fromkeys(reason for one in in_order(judgement) if len(reason := why(one)) > LONGEST_REASON))
    return [*found[:most], *([f"{len(found) - most} more: gate.json"] if len(found) > most else [])]


def why(answer: Answer) -> str:
    """`broken: other alone: failed in 10 of 10 launches: it hangs`; empty where there is an answer."""
    return "" if answer.doubt is None else f"{answer.doubt.name}: {answer.doubt.why}"


def in_order(judgement: Judgement) -> list[Answer]:
    """Every planned cell: what is broken, losses, what is not answered, and no losses, those nearest to one first."""
    passed = sorted(judgement.of("no loss"), key=lambda one: -upper(one))
    return [*judgement.of("broken"), *judgement.of("loss"), *judgement.of("no answer"), *passed]


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
        percent, ends = difference(comparison)
        measured = (percent or shown_difference(answer), ends, *sides, row_launches(comparison))
    reason = why(answer) if longest is None else shortened(why(answer), longest)
    return (answer.state, names.cells[id(answer)], names.sizes[id(answer)], *measured, reason)


def notes(judgement: Judgement) -> list[str]:
    """What the sides are, what was accepted, and what could mislead; each line once."""
    lines = ["; ".join(f"{side.name}: {side_title(side.overrides)}" for side in judgement.sides), *judgement.alike]
    lines += [f"margins: {margins_text(judgement.margins)}"] if len(judgement.margins) > 1 else []
    lines += [f"accepted: {', '.join(judgement.accepted)}"] if judgement.accepted else []
    lines += judgement.refused
    compared = [one.comparison for one in judgement.answers if one.comparison is not None]
    return list(dict.fromkeys((*lines, *(remarks(compared) if compared else ()))))


def document(judgement: Judgement, names: Names) -> dict[str, Any]:
    """`cells` has every planned cell, in the plan's order; the counts of the four answers add up to `planned`."""
    from msgspec import to_builtins

    plan = judgement.plan
    return {
        "answer": sentence(judgement, names),
        "exit_code": judgement.code,
        "unfinished": to_builtins(judgement.unfinished),
        "margins": to_builtins(judgement.margins),
        "plan": plan.plan,
        **{side.name: {**to_builtins(side.overrides), "files": dict(side.files)} for side in judgement.sides},
        "planned": len(judgement.answers),
        "broken": len(judgement.of("broken")),
        "lost": len(judgement.of("loss")),
        "no_loss": len(judgement.of("no loss")),
        "not_answered": len(judgement.of("no answer")),
        "accepted": list(judgement.accepted),
        "differences": list(judgement.differences),
        "refused": list(judgement.refused),
        "notes": notes(judgement),
        "cells": [_cell(one, names) for one in judgement.answers],
    }


def _cell(answer: Answer, names: Names) -> dict[str, Any]:
    from msgspec import to_builtins

    doubt = answer.doubt
    return {
        "name": names.of(answer),
        "answer": answer.state,
        "reason": None if doubt is None else doubt.name,
        "why": None if doubt is None else doubt.why,
        "base": to_builtins(answer.base),
        "other": to_builtins(answer.other),
        "comparison": None if answer.comparison is None else entry(answer.comparison),
    }


#: What XML 1.0 cannot hold, after control characters are escaped.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def junit(judgement: Judgement, names: Names) -> bytes:
    """The document: losses and broken cells are failures, others without an answer errors; times (s) of all samples."""
    seconds = {id(answer): measured(answer) for answer in judgement.answers}
    attributes = {"name": "collbench gate", **_totals(judgement), "time": f"{sum(seconds.values()):.6f}"}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", {**attributes, **_timestamp(judgement.began)})
    for answer in judgement.answers:
        where = {"classname": _text(names.shared or "collbench"), "name": _text(names.of(answer))}
        taken = {"time": f"{seconds[id(answer)]:.6f}"}
        _outcome(ElementTree.SubElement(suite, "testcase", where | taken), answer)
    ElementTree.SubElement(suite, "system-out").text = _text(sentence(judgement, names))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _totals(judgement: Judgement) -> dict[str, str]:
    """No test case is skipped: a cell that is has no answer."""
    numbers = {"tests": len(judgement.answers), "failures": len(judgement.of("loss")) + len(judgement.of("broken")),
               "errors": len(judgement.of("no answer")), "skipped": 0}  # fmt: skip
    return {name: str(number) for name, number in numbers.items()}


def measured(answer: Answer) -> float:
    """For how long (s) a cell was measured on both sides: its samples, times their mean."""
    pair = answer.comparison.pair if answer.comparison else None
    return 0.0 if pair is None else _sampled(pair.base) + _sampled(pair.other)


def _sampled(cell: Cell) -> float:
    return cell.samples * sum(cell.means) / len(cell.means) if cell.means else 0.0


def _timestamp(began: str) -> dict[str, str]:
    """In UTC without an offset, which the schema of JUnit's reports does not have; none where it is not a time."""
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        return {}
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    return {"timestamp": moment.replace(tzinfo=None).isoformat(timespec="seconds")}


def _outcome(case: ElementTree.Element, answer: Answer) -> None:
    if answer.state == "loss":
        message = f"{shown_difference(answer)} slower, beyond the margin of {answer.margin * 100:g} %"
        ElementTree.SubElement(case, "failure", {"type": "loss", "message": _text(message)})
    elif answer.doubt is not None:
        why = answer.doubt.why
        attributes = {"type": _text(answer.doubt.name), "message": _text(shortened(why, LONGEST_SENTENCE))}
        error = ElementTree.SubElement(case, "failure" if answer.state == "broken" else "error", attributes)
        error.text = _text(why) if len(why) > LONGEST_SENTENCE else None
    else:
        ElementTree.SubElement(case, "system-out").text = _text(shown_difference(answer))


def _text(text: str) -> str:
    """Text that XML can hold, in one line."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", in_one_line(text))


#: Characters of the name of a cell and of a reason in full, and most of these: GitHub takes 65,536 characters in all,
#: and counts some of them twice.
_LONGEST_NAME, _LONGEST_WHY, _MOST_WHYS = 120, 5_000, 3

_HEADINGS = {"broken": "Broken", "loss": "Losses", "no answer": "Not answered", "no loss": "No loss"}


def markdown(judgement: Judgement, names: Names) -> str:
    """The sentence, the first cells by their answers, notes, and how many cells were planned."""
    text = f"**{sentence(judgement, names, quoted)}**\n"
    text += f"\n{quoted(shortened(names.shared, _LONGEST_NAME))}\n" if names.shared else ""
    ordered = in_order(judgement)
    for state, heading in _HEADINGS.items():
        group = [one for one in ordered if one.state == state]
        text += _section(heading, group, names, state == "no loss") if group else ""
    whys = [block(shortened(reason, _LONGEST_WHY)) for reason in long_reasons(judgement, _MOST_WHYS)]
    text += _folded("Reasons in full", "\n".join(whys)) if whys else ""
    lines = [quoted(shortened(line, 600)) for line in notes(judgement)[:7]]
    return f"{text}\n" + "".join(f"- {line}\n" for line in (*lines, accounted(judgement)))


def _section(heading: str, group: Sequence[Answer], names: Names, folded: bool) -> str:
    """The first rows; the others are counted."""
    shown = f", of which {MOST_ROWS} are shown" if len(group) > MOST_ROWS else ""
    lines = [COLUMNS[1:], ("---", *["---:"] * (len(COLUMNS) - 3), "---")]
    for one in group[:MOST_ROWS]:
        _, name, *numbers, reason = row(one, names, LONGEST_REASON)
        lines.append((quoted_in_table(shortened(name, _LONGEST_NAME)), *numbers, quoted_in_table(reason)))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    counted = f"{heading}: {len(group)}{shown}"
    return _folded(counted, table) if folded else f"\n### {counted}\n\n{table}"


def _folded(summary: str, text: str) -> str:
    return f"\n<details><summary>{summary}</summary>\n\n{text}\n</details>\n"


def accounted(judgement: Judgement) -> str:
    """`28 cells planned: 2 lost, 25 without a loss, 1 not answered; exit code 1`; and what is broken, if any is."""
    counts = Counter(one.state for one in judgement.answers)
    broken = f"{counts['broken']} broken, " if counts["broken"] else ""
    return (f"{len(judgement.answers)} cells planned: {broken}{counts['loss']} lost, {counts['no loss']} without a "
            f"loss, {counts['no answer']} not answered; exit code {judgement.code}")  # fmt: skip
