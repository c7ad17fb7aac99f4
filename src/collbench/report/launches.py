"""What launches took in tables: a row for each case or set of parameters, place by place, and over the host.

The ratio is the median of the blocks' ratios with its interval (`analysis.estimate`): a description. For verdicts see
`collbench compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from statistics import median

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST, Estimate
from collbench.analysis.observations import Cell, Pair, without_collector
from collbench.analysis.pairs import alike, undisturbed
from collbench.analysis.sequential import ratio_in_blocks_of
from collbench.report.cells import cautions, heading_of, image_and_place, interval
from collbench.report.headings import place_order, software, table_key
from collbench.report.parameters import column_heading, is_program, row_order, value_text, varying
from collbench.report.programs import is_numbered
from collbench.report.scales import RateScale, Scale, each_of, rate_scale, time_each, time_scale
from collbench.report.style import format_us
from collbench.report.tables import INTERVAL, Table, without_empty
from collbench.schema.case import Case
from collbench.schema.record import Work
from collbench.units import format_size

#: The ratio of a cell to the one on the host.
RatioText = Callable[[Cell, Cell], str]


def program_table(title: str, cells: Sequence[Cell], over_host: RatioText, notes: Sequence[str] = ()) -> Table:
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


def _over_hosts(cells: Sequence[Cell], names: Sequence[str], over_host: RatioText) -> list[str]:
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


class OverHost:
    """Ratios as texts, and what the table must say of them: cells that have none, and launches that do not count."""

    def __init__(self) -> None:
        self._refused: dict[str, dict[str, None]] = {}
        self._left_out = 0
        self._few = False

    def __call__(self, cell: Cell, host: Cell) -> str:
        """`1.72 (1.65 .. 1.80)`: the time over that of the host, in blocks that both have; empty without one."""
        pair, _ = undisturbed(Pair(host, cell, "host", cell.case.where.policy), in_blocks=True)
        both = alike(pair, in_blocks=True)
        if both.refused:
            self._refused.setdefault(both.refused, {})[image_and_place(cell)] = None
            return ""
        self._left_out += both.left_out
        times = [
            (time, of_host) for time, of_host in zip(both.other, both.base, strict=True) if time > 0.0 and of_host > 0.0
        ]
        if not times:
            return ""
        steps, estimated = (cell.half_step, host.half_step), ratio_in_blocks_of(cell)
        ratio = estimated([time for time, _ in times], [of_host for _, of_host in times], half_steps=steps)
        self._few |= ratio.interval is None
        return f"{ratio.value:.2f}{interval(ratio.interval, '{:.2f}'.format)}"

    def notes(self, cells: Sequence[Cell]) -> list[str]:
        """What a ratio is, and where there is none although both sides were measured; `cells`: the table's."""
        if len({cell.case.where.on_host for cell in cells if cell.medians}) < 2:
            return []
        hint = f"; an interval needs {FEWEST} blocks" if self._few else ""
        quiet = " in which no task waited for a CPU" if any(cell.disturbed for cell in cells) else ""
        lines = [f"over the host: the median of the ratios within each block of launches{quiet}{hint}"]
        lines += [f"not over the host ({', '.join(places)}), because it was measured differently: {why}"
                  for why, places in self._refused.items()]  # fmt: skip
        if self._left_out:
            lines.append(f"over the host: launches left out, because they were measured differently: {self._left_out}")
        return lines


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
