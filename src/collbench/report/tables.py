"""A table independent of formats, and the formats: for the terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from collbench.errors import in_one_line

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Table:
    """`columns` are headings with the unit in them; every row has a cell for each. `notes` stand below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, columns: Mapping[str, Sequence[str]], notes: Iterable[str] = ()) -> Table:
        """From the cells of each column, without columns that have none."""
        kept = {name: cells for name, cells in columns.items() if any(cells)}
        return cls(title, tuple(kept), tuple(zip(*kept.values(), strict=True)), tuple(notes))

    @property
    def by_column(self) -> dict[str, list[str]]:
        return {name: [row[index] for row in self.rows] for index, name in enumerate(self.columns)}


def in_columns_of(rows: Sequence[_Row], columns: Mapping[str, Callable[[_Row], str]]) -> dict[str, list[str]]:
    """The cells of each column, of rows as data: a column is its heading and what it says of a row."""
    return {name: list(map(cell, rows)) for name, cell in columns.items()}


def without_empty(table: Table) -> Table:
    return Table.of(table.title, table.by_column, table.notes)


def more(number: int, words: str) -> list[str]:
    """`3 more rows: --all`, of what is left out; no line where that is nothing."""
    return [f"{number} {words}"] * (number > 0)


#: What is not broken if it need not be: short brackets, such as an interval, a range, and a number with its unit.
_WHOLE = re.compile(r"\([^()]{1,30}\)|\S+ \.\. \S+|[0-9] %")


def wrapped(heading: str, width: int) -> str:
    """A heading in lines no longer than the entries below it, so that columns are narrow."""
    return "\n".join(_filled(_words(heading, whole=True), max(width, 12)))


#: A column of intervals has the name of the column before it, with this in place of the unit.
INTERVAL = " 95 %"


def joined(table: Table) -> Table:
    """The table as people read it: an interval in brackets behind its value."""
    columns: dict[str, list[str]] = {}
    for name, cells in table.by_column.items():
        if name.endswith(INTERVAL) and columns:
            head, values = columns.popitem()
            joint = [f"{value} ({ends})" if ends else value for value, ends in zip(values, cells, strict=True)]
            columns[f"{head} ({INTERVAL.strip()})"] = joint
        else:
            columns[name] = cells
    return Table(table.title, tuple(columns), tuple(zip(*columns.values(), strict=True)), table.notes)


#: Columns of a grid, and of lines of text.
WIDTH = LONGEST_LINE = 100


def in_columns(text: str, start: str = "", further: str = "") -> str:
    """A paragraph in lines of `LONGEST_LINE` columns at most: `start` before the first, `further` before the others."""
    return textwrap.fill(text, LONGEST_LINE, initial_indent=start, subsequent_indent=further, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def lined_up(heads: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Like tabulate's style `simple`; where that is wider than `LONGEST_LINE`, cells are broken into lines."""
    titles = [head.split("\n") for head in heads]
    columns = [[line for cell in column for line in cell.split("\n")] for column in zip(*rows, strict=True)]
    widths = [max(*(len(line) + 2 for line in head), *map(len, cells))
              for head, cells in zip(titles, columns, strict=True)]  # fmt: skip
    whole, gap = True, 2
    if sum(widths) + gap * (len(widths) - 1) > LONGEST_LINE:
        widths, whole, gap = _narrowed(titles, columns)
    line = (" " * gap).join(f"{{:{'>' if right else '<'}{width}}}" for width in widths)

    def in_lines(row: Sequence[str]) -> list[str]:
        cells = [[part for text in cell.split("\n") for part in _wrapped(text, width, whole)]
                 for cell, width in zip(row, widths, strict=True)]  # fmt: skip
        return [line.format(*parts).rstrip() for parts in zip_longest(*cells, fillvalue="")]

    rule = line.format(*("-" * width for width in widths))
    return "\n".join((*in_lines(heads), rule, *(text for row in rows for text in in_lines(row))))


def _narrowed(heads: Sequence[Sequence[str]], columns: Sequence[Sequence[str]]) -> tuple[list[int], bool, int]:
    """Widths that fit, whether intervals remain whole, and the gap between columns.

    The widest lose first, none its longest word; then columns move together, headings break, intervals.
    """
    both = [[*head, *cells] for head, cells in zip(heads, columns, strict=True)]
    for whole, gap, held in ((True, 2, both), (True, 1, both), (True, 1, columns), (False, 1, columns)):
        widths = [max(map(len, column)) for column in both]
        least = [max(len(word) for line in column for word in _words(line, whole) or [""]) for column in held]
        while sum(widths) + gap * (len(widths) - 1) > LONGEST_LINE and widths != least:
            index = max(range(len(widths)), key=lambda column: (widths[column] > least[column], widths[column]))
            widths[index] -= 1
        if sum(widths) + gap * (len(widths) - 1) <= LONGEST_LINE:
            break
    return widths, whole, gap


def _words(line: str, whole: bool) -> list[str]:
    return line.split() if not whole else _WHOLE.sub(lambda match: match[0].replace(" ", "\0"), line).split()


def _wrapped(line: str, width: int, whole: bool) -> list[str]:
    if len(line) <= width:
        return [line]
    width = max(width, 1)
    parts = [word[start : start + width] for word in _words(line, whole) for start in range(0, len(word), width)]
    return _filled(parts, width) or [""]


def _filled(words: Iterable[str], width: int) -> list[str]:
    """Lines of words, which are not broken."""
    lines = textwrap.wrap(" ".join(words), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def terminal(tables: Iterable[Table]) -> str:
    """Aligned columns, notes as paragraphs that begin with `*`."""
    parts = []
    for table in map(joined, tables):
        widths = [max(map(len, cells)) for cells in zip(*table.rows, strict=True)] if table.rows else []
        heads = [wrapped(name, width) for name, width in zip(table.columns, widths, strict=False)]
        body = [lined_up(heads, table.rows)] if table.rows else []
        notes = [in_columns(note, "* ", "  ") for note in table.notes]
        parts.append("\n".join((in_columns(table.title), *body, *notes)) + "\n")
    return "\n".join(parts)


def markdown(tables: Iterable[Table]) -> str:
    """A heading, a table, a list of notes. Markup characters are escaped."""
    from tabulate import tabulate

    parts = []
    for table in map(joined, tables):
        rows = [[plain_markdown(cell) for cell in row] for row in table.rows]
        body = tabulate(rows, [plain_markdown(name) for name in table.columns], "pipe", disable_numparse=True)
        notes = "".join(f"- {plain_markdown(note)}\n" for note in table.notes)
        parts.append(f"### {plain_markdown(table.title)}\n\n{body}\n" + (f"\n{notes}" if notes else ""))
    return "\n".join(parts)


def csv_text(tables: Iterable[Table]) -> str:
    """One header for all: title of the table, then every column that any of them has; intervals as two. No notes."""
    tables = [_with_ends(table) for table in tables]
    columns = ("table", *dict.fromkeys(name for table in tables for name in table.columns))
    rows = [{"table": table.title, **dict(zip(table.columns, cells, strict=True))}
            for table in tables for cells in table.rows]  # fmt: skip
    lines = [columns, *([row.get(name, "") for name in columns] for row in rows)]
    return csv_lines(map(spreadsheet_cell, line) for line in lines)


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _with_ends(table: Table) -> Table:
    """The table with two columns of numbers in place of each column of intervals."""
    columns: dict[str, Sequence[str]] = {}
    for name, cells in table.by_column.items():
        if name.endswith(INTERVAL):
            for place, end in enumerate(("low", "high")):
                ends = [cell.split(" .. ")[place] if " .. " in cell else "" for cell in cells]
                columns[f"{name.removesuffix(INTERVAL)} {end}"] = ends
        else:
            columns[name] = cells
    return Table(table.title, tuple(columns), tuple(zip(*columns.values(), strict=True)))


#: So many characters of a row fit into 85 mm in type of 9 points.
_LATEX_WIDTH = 48


def latex(tables: Iterable[Table]) -> str:
    """`tabular` environments with the rules of the package booktabs, each in a `table` with a caption.

    For a column of a paper: small type, headings no wider than the entries, and in the caption what all rows share.
    """
    parts = []
    for table in map(joined, tables):
        columns = table.by_column
        shared = [name for name, cells in columns.items() if len(cells) > 1 and len(set(cells)) == 1]
        caption = ", ".join((table.title, *(f"{name} {columns.pop(name)[0]}" for name in shared)))
        heads = [wrapped(name, max(map(len, cells), default=0)).split("\n") for name, cells in columns.items()]
        lines = [*zip_longest(*heads, fillvalue=""), None, *zip(*columns.values(), strict=True)]
        body = "".join(f"{' & '.join(map(_latex, line))} \\\\\n" if line else "\\midrule\n" for line in lines)
        width = sum(max(map(len, cells), default=0) for cells in columns.values())
        size = "small" if width <= _LATEX_WIDTH else "footnotesize"
        notes = "".join(f"% {_latex(' '.join(note.split()))}\n" for note in table.notes)
        rules = f"\\toprule\n{body}\\bottomrule\n"
        tabular = f"\\begin{{tabular}}{{@{{}}{'l' * len(columns)}@{{}}}}\n{rules}\\end{{tabular}}\n"
        parts.append(
            f"\\begin{{table}}\n\\caption{{{_latex(caption)}}}\n\\{size}\\setlength{{\\tabcolsep}}{{3pt}}\n"
            f"{tabular if columns else ''}{notes}\\end{{table}}\n"
        )
    return "\n".join(parts)


FORMATS: dict[str, Callable[[Iterable[Table]], str]] = {
    "table": terminal, "markdown": markdown, "csv": csv_text, "latex": latex,
}  # fmt: skip


#: An underscore within a word is no markup.
_MARKUP = re.compile(r"[\\`*\[\]<>|#]|(?<![^\W_])_|_(?![^\W_])")


def plain_markdown(text: str) -> str:
    """Text without markup, in one line."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


_LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          "<": r"\textless{}", ">": r"\textgreater{}"}  # fmt: skip


def _latex(text: str) -> str:
    text = in_one_line(text)
    return "".join(f"\\{letter}" if letter in "&%$#_" else _LATEX.get(letter, letter) for letter in text)


def spreadsheet_cell(cell: str) -> str:
    """A text that a spreadsheet would take for a formula is quoted; numbers with a sign are not."""
    try:
        float(cell)
    except ValueError:
        return f"'{cell}" if cell[:1] in "=+-@\t\r" and cell else cell
    return cell
