"""Columns of programs in tables: parameters, each measure in the unit that people know it by, and CPU seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.launches import ProcessorTime, only_waited
from collbench.report.parameters import column_heading, row_words, value_text, varying
from collbench.report.scales import Scale, each_of, rate_scale, time_each, time_scale
from collbench.schema.record import Record, Work
from collbench.schema.summary import Seconds

_NUMBERED = re.compile(r"(.+ of \w+) \d+")


def is_numbered(name: str) -> bool:
    return _NUMBERED.fullmatch(name) is not None


def numbered(by_row: Sequence[Mapping[str, float]]) -> dict[str, list[str]]:
    """By heading, such as `steps of workers`, an entry for each row: from the least to the largest of its ranks."""
    found: dict[str, list[list[float]]] = {}
    for number, figures in enumerate(by_row):
        for name, value in figures.items():
            if match := _NUMBERED.fullmatch(name):
                found.setdefault(f"{match[1]}s", [[] for _ in by_row])[number].append(value)
    return {name: list(map(_range, rows)) for name, rows in found.items()}


def _range(values: Sequence[float]) -> str:
    ends = (min(values), max(values)) if values else ()
    return " .. ".join(dict.fromkeys(f"{end:g}" for end in ends))


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
    by_row = [_figures_of(record) for record in measured]
    names = dict.fromkeys(name for figures in by_row for name in figures if not is_numbered(name))
    columns = {name.replace("_", " "): [row.get(name, "") for row in by_row] for name in names}
    columns |= numbered([{} if record.check is None else record.check.figures for record in measured])
    wrong = ["N/A" if r.check is None or r.check.wrong is None else str(r.check.wrong) for r in measured]
    return columns | {"wrong": wrong}


def _figures_of(record: Record) -> dict[str, str]:
    """Figures that must come out equal with all the digits that are compared."""
    if record.check is None:
        return {}
    figures = {name: f"{value:.3g}" for name, value in record.check.figures.items()}
    return figures | {name: f"{value:.6g}" for name, value in record.check.repeatable.items()}


def _cpus(record: Record) -> str:
    """Processor time over the time that passed, of all executions."""
    cpu = record.cpu
    return "" if cpu is None or cpu.wall <= 0.0 else f"{(cpu.user + cpu.system) / cpu.wall:.2f}"


# Two sides: whether one computes for longer, or waits.

CPU_COLUMN = "CPU s/s"


def cpu_shares(comparison: Comparison) -> str:
    """`0.99 and 0.47`: CPU seconds in a second of each side, one number where they agree; empty where unknown."""
    if None in comparison.cpu:
        return ""
    base, other = (f"{used.share:.2f}" for used in comparison.cpu if used is not None)
    return base if base == other else f"{base} and {other}"


def cpu_remarks(rows: Sequence[Comparison]) -> list[str]:
    """What the column means, and where a difference is time that a side waited."""
    differ = any(" and " in share for share in map(cpu_shares, rows))
    lines = [f"{CPU_COLUMN}: CPU seconds in each second of the program, its start included, base and other"] * differ
    cases = [comparison.pair.base.case for comparison in rows]
    names = [name for name in varying(cases) if name != "measure" and len({case[name] for case in cases}) > 1]
    return list(dict.fromkeys(lines + [line for comparison in rows if (line := _waited(comparison, names))]))


def _waited(comparison: Comparison, names: Sequence[str]) -> str:
    """The remark where one side took longer for the same CPU seconds, with the values of `names`; empty elsewhere."""
    base, other = comparison.cpu
    established = comparison.verdict in ("slower", "faster")
    if base is None or other is None or not established or not only_waited(base, other):
        return ""
    pair = comparison.pair
    at = f"{row_words(pair.base.case, names)}: " if names else ""
    both = f"{pair.base_name} {base.seconds:.3g} s, {pair.other_name} {other.seconds:.3g} s"
    longer, shorter = sorted(((base.wall, pair.base_name), (other.wall, pair.other_name)), reverse=True)
    times = f"{longer[0]:.3g} s against {shorter[0]:.3g} s"
    return f"{at}same CPU seconds for each sample ({both}), in {times}: {longer[1]} waited"


def cpu_document(used: ProcessorTime | None) -> dict[str, float] | None:
    """For programs: seconds, and what `cpu_shares` shows."""
    return None if used is None else {"seconds": used.seconds, "wall": used.wall, "share": used.share}
