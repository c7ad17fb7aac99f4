"""The rows of a benchmark in style `table`: its parameters, and each measure in the unit that people know it by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from collbench.report.parameters import column_heading, value_text
from collbench.report.scales import Scale, each_of, rate_scale, time_each, time_scale
from collbench.schema.record import Record, Work
from collbench.schema.summary import Seconds

_NUMBERED = re.compile(r"(.+ of \w+) \d+")


def is_numbered(name: str) -> bool:
    return _NUMBERED.fullmatch(name) is not None


def numbered(by_row: Sequence[Mapping[str, float]]) -> dict[str, list[str]]:
    """By heading, such as `steps of workers`, an entry for each row."""
    by_stem = [_by_stem(row) for row in by_row]
    return {f"{stem}s": [_range(row.get(stem, ())) for row in by_stem]
            for stem in dict.fromkeys(stem for row in by_stem for stem in row)}  # fmt: skip


def _by_stem(figures: Mapping[str, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in figures.items():
        if match := _NUMBERED.fullmatch(name):
            found.setdefault(match[1], []).append(value)
    return found


def _range(values: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{value:g}" for value in (min(values), max(values))) if values else ()
    return " .. ".join(ends)


#: Of fewer samples no order statistics enclose the median with 95 %.
FEWEST = 6


def program_columns(measured: Sequence[Record], parameters: Sequence[str]) -> dict[str, list[str]]:
    """Entries by heading; `measured` are records with times, which differ in these parameters."""
    columns = {
        _head(column_heading(name)): [value_text(record.case, name) for record in measured] for name in parameters
    }
    columns |= _rates(measured)
    columns |= _times(measured)
    columns["samples"] = [str(_valid(record)) for record in measured]
    columns |= _figures(measured)
    columns["CPU\ns/s"] = [_cpus(record) for record in measured]
    return columns


def _head(name: str) -> str:
    """The unit on a line of its own."""
    return name.replace(" (", "\n(")


def _work(record: Record) -> Work:
    assert record.work is not None
    return record.work


def _seconds(record: Record) -> Seconds:
    assert record.seconds is not None
    return record.seconds


def _valid(record: Record) -> int:
    return 0 if record.samples is None else record.samples.n - record.samples.invalid


def _rates(measured: Sequence[Record]) -> dict[str, list[str]]:
    shown = [(_work(record), _seconds(record).p50) for record in measured]
    scale = rate_scale([(work, seconds) for work, seconds in shown if work.shown == "rate"])
    cells = [scale.text(work, seconds) if work.shown == "rate" else "" for work, seconds in shown]
    return {_head(scale.heading("rate")): cells} if any(cells) else {}


def _times(measured: Sequence[Record]) -> dict[str, list[str]]:
    """Of the times of one request each, where these are what is shown."""
    works, times = [_work(record) for record in measured], [_seconds(record) for record in measured]
    scale = time_scale([time_each(work, time.p50) for work, time in zip(works, times, strict=True)])
    each = scale._replace(unit=scale.unit and scale.unit + each_of(works))

    def column(name: str, values: Sequence[float], scale: Scale = scale) -> dict[str, list[str]]:
        cells = [scale.text(time_each(*one)) for one in zip(works, values, strict=True)]
        return {_head(scale.heading(name)): cells}

    intervals = [
        scale.span((time_each(work, time.ci95[0]), time_each(work, time.ci95[1]))) if _valid(record) >= FEWEST else "-"
        for record, work, time in zip(measured, works, times, strict=True)
    ]
    return (column("median", [time.p50 for time in times], each) | {_head(scale.heading("95 % interval")): intervals}
            | column("min", [time.min for time in times]) | column("max", [time.max for time in times]))  # fmt: skip


def _figures(measured: Sequence[Record]) -> dict[str, list[str]]:
    """What checks measured, such as a residual; then wrong results, of which a measured case has none."""
    by_row = [_told(record) for record in measured]
    names = dict.fromkeys(name for figures in by_row for name in figures if not is_numbered(name))
    columns = {name.replace("_", " "): [row.get(name, "") for row in by_row] for name in names}
    columns |= numbered([{} if record.check is None else record.check.figures for record in measured])
    wrong = ["N/A" if r.check is None or r.check.wrong is None else str(r.check.wrong) for r in measured]
    return columns | {"wrong": wrong}


def _told(record: Record) -> dict[str, str]:
    """Figures that must come out equal with all the digits that are compared."""
    if record.check is None:
        return {}
    figures = {name: f"{value:.3g}" for name, value in record.check.figures.items()}
    return figures | {name: f"{value:.6g}" for name, value in record.check.repeatable.items()}


def _cpus(record: Record) -> str:
    """Processor time over the time that passed, of all executions."""
    cpu = record.cpu
    return "" if cpu is None or cpu.wall <= 0.0 else f"{(cpu.user + cpu.system) / cpu.wall:.2f}"
