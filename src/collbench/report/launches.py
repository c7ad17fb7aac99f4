"""What launches took in tables: a row for each case or set of parameters, place by place; and the times of two sides.

They describe. What differs, and whether by more than chance, `collbench compare` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.results import Cell, without_collector
from collbench.report.cells import cautions, heading_of, image_and_place
from collbench.report.headings import place_order, software, table_key
from collbench.report.parameters import column_heading, is_program, row_order, value_text, varying
from collbench.report.programs import is_numbered
from collbench.report.scales import RateScale, Scale, each_of, rate_scale, time_each, time_scale
from collbench.report.tables import INTERVAL, Table, without_empty
from collbench.schema.case import Case
from collbench.schema.record import Work
from collbench.units import counted


@without_collector()
def launch_tables(cells: Mapping[Case, Cell]) -> list[Table]:
    """One for each collective, dtype, driver and number of ranks, and for each program."""
    keyed = sorted(((table_key(case), cell) for case, cell in cells.items()), key=lambda entry: entry[0])
    return [launch_table([cell for _, cell in group]) for _, group in groupby(keyed, key=lambda entry: entry[0])]


def launch_table(cells: Sequence[Cell]) -> Table:
    """The cells of one operation or program by its parameters; of these the host first."""
    names = varying([cell.case for cell in cells])
    measures = list(dict.fromkeys(cell.case["measure"] for cell in cells))
    ordered = sorted(
        (cell for cell in cells if cell.medians or cell.failed),
        key=lambda cell: (row_order(cell.case, names), measures.index(cell.case["measure"]), place_order(cell.case)),
    )
    columns = {column_heading(name): [value_text(cell.case, name) for cell in ordered] for name in names}
    images = [software(cell.case.where) for cell in ordered]
    columns |= {"image": images} if len(set(images)) > 1 else {}
    columns["place"] = [cell.case.where.text for cell in ordered]
    columns |= _measured(ordered) | _figures(ordered)
    columns["failed"] = [str(cell.failed or "") for cell in ordered]
    numbers = {len(cell.medians) for cell in ordered}
    if len(numbers) > 1:
        columns["launches"] = [str(len(cell.medians)) for cell in ordered]
    program = is_program(cells[0].case)
    title = heading_of(cells, cells[0].case.without(names) if program else None)
    title += "".join(f", {image}" for image in dict.fromkeys(images) if image and "image" not in columns)
    title += f", {counted(numbers.pop(), 'launch', 'launches')}" if len(numbers) == 1 else ""
    rows = tuple(zip(*columns.values(), strict=True))
    return without_empty(Table(title, tuple(columns), rows, (*_transports(ordered), *cautions(cells))))


def _transports(cells: Sequence[Cell]) -> list[str]:
    """`transport ob1: sm (openmpi host, openmpi multi ipc)`, without the places where it is the same in all."""
    places: dict[str, dict[str, None]] = {}
    for cell in cells:
        for transport in sorted(cell.transports):
            places.setdefault(transport, {})[image_and_place(cell)] = None
    alone = len(places) == 1
    return [f"transport {name}" + ("" if alone else f" ({', '.join(where)})") for name, where in places.items()]


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
            scale.heading("min .. max"): list(map(span, cells))}  # fmt: skip


def _figures(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """What checks measured, such as the accuracy of what was trained: the median over the launches."""
    names = dict.fromkeys(name for cell in cells for name in cell.by_figure if not is_numbered(name))
    return {name: [f"{median(cell.by_figure[name]):.3g}" if name in cell.by_figure else "" for cell in cells]
            for name in names}  # fmt: skip


#: What one side took, where it was measured, and for which work.
Side = tuple[Work, Estimate | None]


def both_sides(rows: Sequence[Comparison], names: tuple[str, str] | None = None) -> dict[str, Sequence[str]]:
    """Entries by heading, in the same units for both sides. These have the `names`, or their own of the first row."""
    base = [(comparison.pair.base.work, comparison.base) for comparison in rows]
    other = [(comparison.pair.other.work, comparison.other) for comparison in rows]
    both = [(work, time.value) for work, time in (*base, *other) if time is not None]
    rates = rate_scale([one for one in both if one[0].shown == "rate"])
    times = time_scale([time_each(*one) for one in both])
    each = times._replace(unit=times.unit and times.unit + each_of([work for work, _ in both]))
    chosen = names or (rows[0].pair.base_name, rows[0].pair.other_name)
    return _side(chosen[0], base, rates, each) | _side(chosen[1], other, rates, each)


def _side(name: str, sides: Sequence[Side], rates: RateScale, times: Scale) -> dict[str, Sequence[str]]:
    rate = [rates.text(work, time.value) if time is not None and work.shown == "rate" else "" for work, time in sides]
    value = ["" if time is None else times.text(time_each(work, time.value)) for work, time in sides]
    spans = [_span(work, time, times) for work, time in sides]
    of_rate = {rates.heading(name) if rates.unit else f"{name} rate": rate} if any(rate) else {}
    head = times.heading(name) if times.unit else f"{name} time"
    return {**of_rate, head: value, f"{name}{INTERVAL}": spans}


def _span(work: Work, time: Estimate | None, times: Scale) -> str:
    if time is None or time.interval is None:
        return ""
    low, high = time.interval
    return times.span((time_each(work, low), time_each(work, high)))
