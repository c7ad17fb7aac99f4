"""A run of many launches in one table: for each case and place the median of launch medians, and its ratio to the host.

The ratio is the median of the blocks' ratios with its interval (`analysis.estimate`): a description. For verdicts see
`collbench compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from statistics import median

from collbench.analysis.collector import without_collector
from collbench.analysis.observations import Cell
from collbench.report.cells import cautions, heading_of
from collbench.report.headings import place_order, software, table_key
from collbench.report.over_host import OverHost
from collbench.report.parameters import is_program, varying
from collbench.report.program_launches import program_table
from collbench.report.style import format_us
from collbench.report.tables import Table
from collbench.schema.case import Case
from collbench.units import format_size

_HEADERS = ("image", "policy", "isolation", "size\n(B)", "launches", "failed", "median\n(us)",
            "launches: min .. max\n(us)", "over the host\n(95 % interval)", "transport")  # fmt: skip


@without_collector()
def summary(cells: Mapping[Case, Cell]) -> str:
    """Tables by collective, dtype, driver and ranks; in each the sizes in order, the host first."""
    text = ""
    keyed = [(table_key(case), case["size"], place_order(case), cell) for case, cell in cells.items()]
    for _, group in groupby(sorted(keyed, key=lambda entry: entry[:3]), key=lambda entry: entry[0]):
        rows = [cell for *_, cell in group]
        over_host = OverHost()
        shown = _of_program if is_program(rows[0].case) else _of_collective
        text += shown(rows, over_host)
        text += "".join(f"* {line}\n" for line in [*cautions(rows), *over_host.notes(rows)]) + "\n"
    return text


def _of_program(cells: list[Cell], over_host: OverHost) -> str:
    table = _program(cells, over_host)
    heads = tuple(name.replace(" (", "\n(") for name in table.columns)
    return f"{table.title}\n{_lined_up(heads, list(table.rows))}\n"


def program_launches(cells: Sequence[Cell]) -> Table:
    """The cells of one program as a table, with what must be known of its ratios."""
    over_host = OverHost()
    return replace(_program(cells, over_host), notes=tuple(over_host.notes(cells)))


def _program(cells: Sequence[Cell], over_host: OverHost) -> Table:
    common = cells[0].case.without(varying([cell.case for cell in cells]))
    return program_table(heading_of(cells, common), cells, over_host)


def _of_collective(cells: list[Cell], over_host: OverHost) -> str:
    rows = []
    for _, same in groupby(cells, key=lambda cell: cell.case["size"]):
        sized = list(same)
        hosts = {(software(where), where.affinity): cell for cell in sized if (where := cell.case.where).on_host}
        for cell in sized:
            host = hosts.get((software(cell.case.where), cell.case.where.affinity))
            ratio = "" if host is None or host is cell or not cell.medians else over_host(cell, host)
            rows.append(_row(cell, ratio))
    return f"{heading_of(cells)}\n{_lined_up(_HEADERS, rows)}\n"


def _lined_up(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Like tabulate's style `simple`, which takes six times as long: a run may have a hundred thousand cells."""
    heads = list(zip_longest(*([f"{part}  " for part in head.split("\n")] for head in headers), fillvalue=""))
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    line = "  ".join(f"{{:<{width}}}" for width in widths)
    rule = ["-" * width for width in widths]
    return "\n".join(line.format(*row).rstrip() for row in (*heads, rule, *rows))


def _row(cell: Cell, ratio: str) -> tuple[str, ...]:
    where, medians = cell.case.where, cell.medians
    transports = ", ".join(sorted(cell.transports))
    size = format_size(cell.case["size"])
    step = where.text.removeprefix(where.policy).strip()
    start = (software(where), where.policy, step, size, str(len(medians)), str(cell.failed))
    if not medians:
        return (*start, "", "", "", transports)
    span = f"{format_us(min(medians))} .. {format_us(max(medians))}"
    return (*start, format_us(median(medians)), span, ratio, transports)
