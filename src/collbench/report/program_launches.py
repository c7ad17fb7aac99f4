"""What the launches of one program took, place by place: a row for its parameters, its measure and where it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median

from collbench.analysis.observations import Cell
from collbench.report.headings import place_order, software
from collbench.report.numbered import is_numbered
from collbench.report.parameters import column_heading, row_order, value_text, varying
from collbench.report.scales import each_of, rate_scale, time_each, time_scale
from collbench.report.tables import Table, without_empty

#: The ratio of a cell to the one on the host.
OverHost = Callable[[Cell, Cell], str]


def program_table(title: str, cells: Sequence[Cell], over_host: OverHost, notes: Sequence[str] = ()) -> Table:
    """The cells of one program, by its parameters; of these the host first."""
    names = varying([cell.case for cell in cells])
    ordered = sorted(cells, key=lambda cell: row_order(cell.case, names))
    ordered = [cell for same in _alike(ordered, names) for cell in sorted(same, key=lambda one: place_order(one.case))]
    columns = {column_heading(name): [value_text(cell.case, name) for cell in ordered] for name in names}
    columns |= _places(ordered)
    columns["launches"] = [str(len(cell.medians)) for cell in ordered]
    columns["failed"] = [str(cell.failed or "") for cell in ordered]
    columns |= _measured(ordered)
    columns["over the host (95 % interval)"] = _over_hosts(ordered, names, over_host)
    columns |= _figures(ordered)
    columns["transport"] = [", ".join(sorted(cell.transports)) for cell in ordered]
    rows = tuple(zip(*columns.values(), strict=True))
    return without_empty(Table(title, tuple(columns), rows, tuple(notes)))


def _alike(cells: Sequence[Cell], names: Sequence[str]) -> list[list[Cell]]:
    """Those of equal parameters, whatever the place; measures in the order in which they were met."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(value_text(cell.case, name) for name in names), []).append(cell)
    return list(groups.values())


def _places(cells: Sequence[Cell]) -> dict[str, list[str]]:
    wheres = [cell.case.where for cell in cells]
    steps = [where.text.removeprefix(where.policy).strip() for where in wheres]
    return {"image": [software(where) for where in wheres], "policy": [where.policy for where in wheres],
            "isolation": steps}  # fmt: skip


def _measured(cells: Sequence[Cell]) -> dict[str, list[str]]:
    measured = [cell for cell in cells if cell.medians]
    rated = rate_scale([(one.work, median(one.medians)) for one in measured if one.work.shown == "rate"])
    scale = time_scale([time_each(one.work, median(one.medians)) for one in measured])
    each = scale._replace(unit=scale.unit and scale.unit + each_of([one.work for one in measured]))

    def rate(cell: Cell) -> str:
        return rated.text(cell.work, median(cell.medians)) if cell.medians and cell.work.shown == "rate" else ""

    def time(cell: Cell) -> str:
        return scale.text(time_each(cell.work, median(cell.medians))) if cell.medians else ""

    def span(cell: Cell) -> str:
        ends = [time_each(cell.work, end(cell.medians)) for end in (min, max)] if cell.medians else []
        return " .. ".join(map(scale.text, ends))

    return {rated.heading("rate"): list(map(rate, cells)), each.heading("median"): list(map(time, cells)),
            scale.heading("launches: min .. max"): list(map(span, cells))}  # fmt: skip


def _figures(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """What checks measured, such as the accuracy of what was trained: the median over the launches."""
    names = dict.fromkeys(name for cell in cells for name in cell.by_figure if not is_numbered(name))
    return {name: [f"{median(cell.by_figure[name]):.3g}" if name in cell.by_figure else "" for cell in cells]
            for name in names}  # fmt: skip


def _over_hosts(cells: Sequence[Cell], names: Sequence[str], over_host: OverHost) -> list[str]:
    ratios = []
    for _, same in groupby(cells, key=lambda cell: tuple(value_text(cell.case, name) for name in names)):
        rows = list(same)
        hosts = {
            (software(cell.case.where), cell.case.where.affinity): cell for cell in rows if cell.case.where.on_host
        }
        for cell in rows:
            host = hosts.get((software(cell.case.where), cell.case.where.affinity))
            ratios.append("" if host is None or host is cell else over_host(cell, host))
    return ratios
