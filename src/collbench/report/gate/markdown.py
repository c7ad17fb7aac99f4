"""The answer of a gate as Markdown, for a comment on a change: losses first, and never too long for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.report.comparison import row_launches
from collbench.report.gate.names import Names
from collbench.report.gate.quoted import block, quoted, quoted_in_table, shortened
from collbench.report.gate.sentence import sentence, shown_difference
from collbench.report.gate.tables import LONGEST as LONGEST_REASON
from collbench.report.gate.tables import in_order, long_reasons, notes, why
from collbench.units import format_duration

#: GitHub takes 65,536 characters, and counts some of them twice.
LONGEST = 59_000

#: Characters that are kept for what comes last, for reasons in full, and for each of these; the longest name of a cell.
_RESERVE, _REASONS, _REASON, _LONGEST_NAME = 6_000, 12_000, 5_000, 300

_HEADINGS = {"loss": "Losses", "no answer": "Not answered", "no loss": "No loss"}
_COLUMNS = ("| what | size (B) | difference (95 %) | base | other | launches | why |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n")  # fmt: skip


def markdown(judgement: Judgement, names: Names) -> str:
    """The sentence, the cells by their answers, notes, and how many cells were planned. Below 60,000 characters."""
    text = f"**{sentence(judgement, names, quoted)}**\n"
    text += f"\n{quoted(shortened(names.shared, _LONGEST_NAME))}\n" if names.shared else ""
    closing = _reasons(judgement) + _closing(judgement)
    room = LONGEST - _RESERVE - len(closing)
    ordered = in_order(judgement)
    for state, heading in _HEADINGS.items():
        group = [one for one in ordered if one.state == state]
        if group:
            text += _section(heading, group, names, room - len(text), state == "no loss")
    return text + closing


def _section(heading: str, group: Sequence[Answer], names: Names, room: int, folded: bool) -> str:
    """The rows for which there is room; the others are counted."""
    rows, length = [], len(_COLUMNS)
    for line in (_row(one, names) for one in group):
        length += len(line)
        if length > room:
            break
        rows.append(line)
    more = len(group) - len(rows)
    counted = f"{heading}: {len(group)}{f', of which {len(rows)} are shown' if more else ''}"
    table = f"{_COLUMNS}{''.join(rows)}" if rows else ""
    return _folded(counted, table) if folded else f"\n### {counted}\n\n{table}"


def _folded(summary: str, text: str) -> str:
    return f"\n<details><summary>{summary}</summary>\n\n{text}\n</details>\n"


def _row(answer: Answer, names: Names) -> str:
    comparison = answer.comparison
    sides = (comparison.base, comparison.other) if comparison else (None, None)
    times = ("" if side is None else format_duration(side.value) for side in sides)
    launches = row_launches(comparison) if comparison else ""
    name, reason = shortened(names.cells[id(answer)], _LONGEST_NAME), shortened(why(answer), LONGEST_REASON)
    words = (quoted_in_table(name), names.sizes[id(answer)], shown_difference(answer), *times, launches,
             quoted_in_table(reason))  # fmt: skip
    return f"| {' | '.join(words)} |\n"


def _reasons(judgement: Judgement) -> str:
    """Those that rows have shortened, as far as there is room for them."""
    blocks: list[str] = []
    for reason in long_reasons(judgement, most=5):
        found = block(shortened(reason, _REASON))
        if sum(map(len, blocks)) + len(found) <= _REASONS:
            blocks.append(found)
    return _folded("Reasons in full", "\n".join(blocks)) if blocks else ""


def _closing(judgement: Judgement) -> str:
    lines = [quoted(shortened(line, 600)) for line in notes(judgement)[:7]]
    return "\n" + "".join(f"- {line}\n" for line in (*lines, accounted(judgement)))


def accounted(judgement: Judgement) -> str:
    """`28 cells planned: 2 lost, 25 without a loss, 1 not answered; exit code 1`."""
    counts = Counter(one.state for one in judgement.answers)
    return (f"{len(judgement.answers)} cells planned: {counts['loss']} lost, {counts['no loss']} without a loss, "
            f"{counts['no answer']} not answered; exit code {judgement.code}")  # fmt: skip
