"""A run of many launches in one table: per case and place the median of launch medians, and what it is over the host's.

The ratio is the median of the blocks' ratios with its interval (`analysis.estimate`): a description. Verdicts are the
business of `collbench compare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, zip_longest
from statistics import median

from collbench.analysis.estimate import FEWEST, Estimate, ratio_in_blocks
from collbench.analysis.observations import Cell
from collbench.analysis.ordering import place, place_order
from collbench.report.cells import cautions, heading_of, times_over
from collbench.report.headings import heading_key
from collbench.report.rates import rate_text, rate_unit
from collbench.report.style import format_us
from collbench.schema.case import Case
from collbench.units import format_size

_HEADERS = ("image", "policy", "isolation", "size\n(B)", "launches", "failed", "median\n(us)",
            "launches: min .. max\n(us)", "over the host\n(95 % interval)", "transport")  # fmt: skip
#: A rate stands behind the median that it is made of.
_RATE = _HEADERS.index("median\n(us)") + 1


def summary(cells: Mapping[Case, Cell]) -> str:
    """Tables by collective, dtype, driver and ranks; in each the sizes in order, the host first."""
    text = ""
    keyed = [(heading_key(case), case["size"], place_order(case), cell) for case, cell in cells.items()]
    for _, group in groupby(sorted(keyed, key=lambda one: one[:3]), key=lambda one: one[0]):
        rows = [cell for *_, cell in group]
        text += f"{heading_of(rows)}\n{_table(rows)}\n"
        text += "".join(f"* {line}\n" for line in [*cautions(rows), *_about_hosts(rows)]) + "\n"
    return text


def _table(cells: list[Cell]) -> str:
    rows = []
    for _, same in groupby(cells, key=lambda cell: cell.case["size"]):
        sized = list(same)
        hosts = {(where.image, where.affinity): cell for cell in sized if (where := cell.case.where).on_host}
        for cell in sized:
            host = hosts.get((cell.case.where.image, cell.case.where.affinity))
            rows.append(_row(cell, None if host is cell else host))
    unit = rate_unit(cell.work for cell in cells)
    if not unit:
        return _lined_up(_HEADERS, rows)
    rates = (rate_text(cell.work, median(cell.medians)) if cell.medians else "" for cell in cells)
    rows = [(*row[:_RATE], rate, *row[_RATE:]) for row, rate in zip(rows, rates, strict=True)]
    return _lined_up((*_HEADERS[:_RATE], f"rate\n({unit})", *_HEADERS[_RATE:]), rows)


def _lined_up(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """As tabulate's style `simple` does it, which needs six times as long: a run may have a hundred thousand cells."""
    heads = list(zip_longest(*([f"{part}  " for part in head.split("\n")] for head in headers), fillvalue=""))
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    line = "  ".join(f"{{:<{width}}}" for width in widths)
    rule = ["-" * width for width in widths]
    return "\n".join(line.format(*row).rstrip() for row in (*heads, rule, *rows))


def _row(cell: Cell, host: Cell | None) -> tuple[str, ...]:
    case, found = cell.case, cell.medians
    transports = ", ".join(sorted(cell.transports))
    size = format_size(case["size"])
    where = case.where
    step = " ".join(word for word in (where.isolation, "" if where.affinity == "near" else where.affinity) if word)
    start = (where.image or "", where.policy, step, size, str(len(found)), str(cell.failed))
    if not found:
        return (*start, "", "", "", transports)
    over = "" if host is None else times_over(over_host(cell, host))
    return (*start, format_us(median(found)), f"{format_us(min(found))} .. {format_us(max(found))}", over, transports)


def over_host(cell: Cell, host: Cell) -> Estimate | None:
    """How many times as long as the host, over the blocks that both have; None where they have none in common."""
    mine, theirs = cell.by_launch, host.by_launch
    both = [launch for launch in mine if theirs.get(launch, 0.0) > 0.0 and mine[launch] > 0.0]
    if not both:
        return None
    steps = (cell.half_step, host.half_step)
    return ratio_in_blocks([mine[launch] for launch in both], [theirs[launch] for launch in both], half_steps=steps)


def _about_hosts(cells: Iterable[Cell]) -> list[str]:
    launches: dict[str, list[int]] = {}
    for cell in cells:
        launches.setdefault(f"{cell.case.where.image} {place(cell.case)}", []).append(len(cell.medians))
    if not any(cell.case.where.on_host for cell in cells):
        return []
    few = any(min(counts) < FEWEST for counts in launches.values())
    hint = f"; it takes {FEWEST} blocks to have an interval" if few else ""
    return [f"over the host: the median of the ratios within each block of launches{hint}"]
