"""A table independent of formats, and the formats: for the terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from collbench.characters import in_one_line


@dataclass(frozen=True)
class Table:
    """`columns` are headings with the unit in them; every row has a cell for each. `notes` stand below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def without_empty(table: Table) -> Table:
    """Without the columns in which no row has an entry."""
    kept = [index for index, _ in enumerate(table.columns) if any(row[index] for row in table.rows)]
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    return Table(table.title, tuple(table.columns[index] for index in kept), rows, table.notes)


def wrapped(heading: str, width: int = 0) -> str:
    """A heading in lines no longer than the entries below it, so that columns are narrow."""
    lines = [""]
    for word in heading.split():
        fits = len(lines[-1]) + len(word) < max(width, 12)
        lines[-1:] = [f"{lines[-1]} {word}".strip()] if fits or not lines[-1] else [lines[-1], word]
    return "\n".join(lines)


#: A column of intervals has the name of the column before it, with this in place of the unit.
INTERVAL = " 95 %"


def joined(table: Table) -> Table:
    """The table as people read it: an interval in brackets behind its value."""
    columns: list[str] = []
    rows: list[list[str]] = [[] for _ in table.rows]
    for index, name in enumerate(table.columns):
        joins = name.endswith(INTERVAL) and bool(columns)
        if joins:
            columns[-1] += f" ({INTERVAL.strip()})"
        else:
            columns.append(name)
        for row, cells in zip(rows, table.rows, strict=True):
            if not joins:
                row.append(cells[index])
            elif cells[index]:
                row[-1] += f" ({cells[index]})"
    return Table(table.title, tuple(columns), tuple(map(tuple, rows)), table.notes)


#: Columns of a grid, and of lines of text.
WIDTH = 100
LONGEST_LINE = WIDTH


def in_columns(text: str, start: str = "", further: str = "") -> str:
    """A paragraph in lines of `LONGEST_LINE` columns at most: `start` before the first, `further` before the others."""
    return textwrap.fill(text, LONGEST_LINE, initial_indent=start, subsequent_indent=further, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def terminal(tables: Iterable[Table]) -> str:
    """Aligned columns, notes as paragraphs that begin with `*`."""
    parts = []
    for table in map(joined, tables):
        widths = [max(map(len, cells)) for cells in zip(*table.rows, strict=True)] if table.rows else []
        heads = [wrapped(name, width) for name, width in zip(table.columns, widths, strict=False)]
        body = [_tabulated(table.rows, heads, "simple")] if table.rows else []
        notes = [in_columns(note, "* ", "  ") for note in table.notes]
        parts.append("\n".join((in_columns(table.title), *body, *notes)) + "\n")
    return "\n".join(parts)


def markdown(tables: Iterable[Table]) -> str:
    """A heading, a table, a list of notes. Markup characters are escaped."""
    parts = []
    for table in map(joined, tables):
        rows = [[plain_markdown(cell) for cell in row] for row in table.rows]
        body = _tabulated(rows, [plain_markdown(name) for name in table.columns], "pipe")
        notes = "".join(f"- {plain_markdown(note)}\n" for note in table.notes)
        parts.append(f"### {plain_markdown(table.title)}\n\n{body}\n" + (f"\n{notes}" if notes else ""))
    return "\n".join(parts)


def csv_text(tables: Iterable[Table]) -> str:
    """One header for all: title of the table, then every column that any of them has; intervals as two. No notes."""
    tables = [_with_ends(table) for table in tables]
    columns = list(dict.fromkeys(name for table in tables for name in table.columns))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", *columns])
    for table in tables:
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            writer.writerow(
                [spreadsheet_cell(cell) for cell in (table.title, *(cells.get(name, "") for name in columns))]
            )
    return out.getvalue()


def _with_ends(table: Table) -> Table:
    """The table with two columns of numbers in place of each column of intervals."""
    spans = [name.endswith(INTERVAL) for name in table.columns]
    columns: list[str] = []
    for name, span in zip(table.columns, spans, strict=True):
        stem = name.removesuffix(INTERVAL)
        columns += [f"{stem} low", f"{stem} high"] if span else [name]
    rows = []
    for row in table.rows:
        cells: list[str] = []
        for cell, span in zip(row, spans, strict=True):
            if span:
                cells += cell.split(" .. ") if " .. " in cell else ["", ""]
            else:
                cells.append(cell)
        rows.append(tuple(cells))
    return Table(table.title, tuple(columns), tuple(rows))


def latex(tables: Iterable[Table]) -> str:
    """`tabular` environments with the rules of the package booktabs, each in a `table` with a caption."""
    parts = []
    for table in map(joined, tables):
        rows = [[in_one_line(cell) for cell in row] for row in table.rows]
        body = _tabulated(rows, list(table.columns), "latex_booktabs")
        notes = "".join(f"% {_latex(' '.join(note.split()))}\n" for note in table.notes)
        parts.append(f"\\begin{{table}}\n\\caption{{{_latex(table.title)}}}\n{body}\n{notes}\\end{{table}}\n")
    return "\n".join(parts)


FORMATS: dict[str, Callable[[Iterable[Table]], str]] = {
    "table": terminal, "markdown": markdown, "csv": csv_text, "latex": latex,
}  # fmt: skip


def _tabulated(rows: Sequence[Sequence[str]], headers: Sequence[str], style: str) -> str:
    from tabulate import tabulate

    text: str = tabulate(rows, headers=headers, tablefmt=style, disable_numparse=True)
    return text


def plain_markdown(text: str) -> str:
    """Text without markup, in one line."""
    text = " ".join(text.split())
    for letter in "\\`*_[]<>|#":
        text = text.replace(letter, f"\\{letter}")
    return text


_LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


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
