"""The answer of a gate as Markdown, for a comment on a change: losses first, and never too long for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.report.comparison import row_launches
from collbench.report.gate.names import Names
from collbench.report.gate.sentence import sentence, shown_difference
from collbench.report.gate.tables import in_order, notes
from collbench.report.tables import plain_markdown
from collbench.units import format_duration

#: GitHub takes 65,536 characters, and counts some of them twice.
LONGEST = 59_000

#: Characters that are kept for what comes last, and the longest text of a cell.
_RESERVE, _LONGEST_CELL = 6_000, 300

_HEADINGS = {"loss": "Losses", "no answer": "Not answered", "no loss": "No loss"}
_COLUMNS = ("| what | size (B) | difference (95 %) | base | other | launches | why |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n")  # fmt: skip


def markdown(judgement: Judgement, names: Names) -> str:
    """The sentence, the cells by their answers, notes, and how many cells were planned. Below 60,000 characters."""
    text = f"**{_plain(sentence(judgement, names), 2_000)}**\n"
    text += f"\n{_plain(names.shared)}\n" if names.shared else ""
    closing = _closing(judgement)
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
    if folded:
        return f"\n<details><summary>{counted}</summary>\n\n{table}\n</details>\n"
    return f"\n### {counted}\n\n{table}"


def _row(answer: Answer, names: Names) -> str:
    comparison, doubt = answer.comparison, answer.doubt
    sides = (comparison.base, comparison.other) if comparison else (None, None)
    words = (names.cells[id(answer)], names.sizes[id(answer)], shown_difference(answer),
             *("" if side is None else format_duration(side.value) for side in sides),
             row_launches(comparison) if comparison else "", f"{doubt.name}: {doubt.why}" if doubt else "")  # fmt: skip
    return f"| {' | '.join(map(_plain, words))} |\n"


def _closing(judgement: Judgement) -> str:
    lines = [_plain(line, 600) for line in notes(judgement)[:7]]
    return "\n" + "".join(f"- {line}\n" for line in (*lines, accounted(judgement)))


def accounted(judgement: Judgement) -> str:
    """`28 cells planned: 2 losses, 25 without a loss, 1 not answered (1 contended)`."""
    counts = Counter(one.state for one in judgement.answers)
    return (f"{len(judgement.answers)} cells planned: {counts['loss']} lost, {counts['no loss']} without a loss, "
            f"{counts['no answer']} not answered; exit code {judgement.code}")  # fmt: skip


def _plain(text: str, longest: int = _LONGEST_CELL) -> str:
    """Without markup, and no longer than so many characters."""
    short = text if len(text) <= longest else f"{text[:longest]} ..."
    return plain_markdown(short)
