"""Style `table`: for people. One table per heading, skips and remarks below it."""

from __future__ import annotations

from collections.abc import Callable

from collbench.report.headings import operation, variant
from collbench.report.rates import rate_heading, rate_text
from collbench.report.remarks import remarks
from collbench.report.style import Group, format_rate, format_us, gpu_lines, group_of
from collbench.schema.axes import AXES
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.schema.summary import Seconds
from collbench.units import counted, format_size


class TableStyle:
    """Holds the rows of one heading until the next begins, so that columns line up."""

    def __init__(self) -> None:
        self._rows: list[Record] = []

    def begin(self, manifest: Manifest) -> str:
        """What it was measured with, and where; a program has no libraries."""
        libraries = ", ".join(f"{library.name} {library.version}" for library in manifest.libraries)
        machines = "; ".join(f"{host.name} ({host.cpu}, {host.cores} cores)" for host in manifest.hosts)
        facts = [libraries] * bool(libraries) + [f"{counted(manifest.ranks, 'rank')} on {machines}"]
        lines = [f"# collbench {manifest.collbench}: {'; '.join(facts)}"]
        lines += [f"# {line}" for line in gpu_lines(manifest)]
        if manifest.simulated:
            lines.append("# SIMULATED: the fake backend generates its times; they say nothing about this machine")
        alone = manifest.ranks == 1 and bool((manifest.plan or {}).get("collectives", True))
        if alone and manifest.libraries and not manifest.simulated:
            lines.append("# one rank communicates with nobody; start more: mpirun -n 4 collbench ...")
        return "\n".join(lines) + "\n"

    def add(self, record: Record) -> str:
        """The finished table when this record begins another one."""
        done = ""
        if self._rows and _group(self._rows[-1]) != _group(record):
            done = self.end()
        self._rows.append(record)
        return done

    def end(self) -> str:
        if not self._rows:
            return ""
        rows, self._rows = self._rows, []
        measured = [record for record in rows if record.seconds is not None]
        parts = ["", _heading(_group(rows[0]), measured)]
        if measured:
            parts.append(_tabulated(measured))
        parts.extend(remarks(rows))
        return "\n".join(parts) + "\n"


def _group(record: Record) -> Group:
    """The measures of a workload share a table."""
    group = group_of(record)
    return Group(group.case.without(("measure",)), group.launch)


def _tabulated(measured: list[Record]) -> str:
    """The table, without empty columns; with one more for each fact in which its rows differ."""
    from tabulate import tabulate

    columns = {head: list(map(cell, measured)) for head, cell in _COLUMNS.items()}
    columns |= _rates(measured)
    columns |= {name: list(map(cell, measured)) for name, cell in _COUNTS.items()}
    places = ["in" if record.in_place else "out" for record in measured]
    gates: list[str] = [record.gate or "" for record in measured]
    columns |= {name: cells for name, cells in (("place", places), ("gate", gates)) if len(set(cells)) > 1}
    columns |= _measured_apart(measured)
    kept = {head: cells for head, cells in columns.items() if any(cells)}
    text: str = tabulate(list(zip(*kept.values(), strict=True)), headers=list(kept), tablefmt="simple",
                         colalign=("right",) * len(kept), disable_numparse=True)  # fmt: skip
    return text


def _rates(measured: list[Record]) -> dict[str, list[str]]:
    """Both bandwidths of collectives; the rate of other measures that are shown as a rate."""
    works = [record.work for record in measured if record.work is not None]
    if any(work.bus_factor is not None for work in works):
        return {"algbw\n(GB/s)": [format_rate(record.algbw) for record in measured],
                "busbw\n(GB/s)": [format_rate(record.busbw) for record in measured]}  # fmt: skip
    if not any(work.shown == "rate" for work in works):
        return {}
    units = {rate_heading(work) for work in works if work.shown == "rate"}
    if len(units) == 1:
        return {f"rate\n({units.pop()})": [_rate(record) for record in measured]}
    return {"rate": [_rate(record, with_unit=True) for record in measured]}


def _rate(record: Record, with_unit: bool = False) -> str:
    work, seconds = record.work, record.seconds
    if work is None or seconds is None or work.shown != "rate":
        return ""
    return f"{rate_text(work, seconds.p50)}{f' {rate_heading(work)}' if with_unit else ''}"


def _measured_apart(measured: list[Record]) -> dict[str, list[str]]:
    """Columns that only devices have: legs, time by their own clock, and what the library chose."""
    columns: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for record in measured for name in record.legs):
        columns["\n".join((*name.split(" ", 1), "(us)"))] = [
            format_us(r.legs[name].p50) if name in r.legs else "" for r in measured
        ]
    if any(record.device is not None for record in measured):
        columns["device\n(us)"] = ["" if r.device is None else format_us(r.device.p50) for r in measured]
    if any(record.algorithm for record in measured):
        columns["algorithm\nprotocol"] = [f"{r.algorithm or '?'} {r.protocol or '?'}" for r in measured]
    return columns


def _heading(group: Group, measured: list[Record]) -> str:
    case = group.case
    drivers = "/".join(sorted({record.driver or case["driver"] for record in measured})) or case["driver"]
    gates = "/".join(sorted({record.gate for record in measured if record.gate}))
    clock = "last out - first in" if all(record.clock == "common" for record in measured) else "largest local time"
    place = "in place" if measured and all(record.in_place for record in measured) else None
    words = [AXES[name].words(value) for name, value in
             (("backend", case["backend"]), ("driver", drivers), ("thread_level", case["thread_level"]))]  # fmt: skip
    facts = [operation(case), place, *words[:2], variant(case), _cadence(measured), words[2],
             f"gate {gates} ({clock})" if gates else None, group.place]  # fmt: skip
    return ", ".join(fact for fact in facts if fact)


def _cadence(measured: list[Record]) -> str | None:
    streaming = [record for record in measured if record.cadence == "streaming"]
    return f"streaming, {streaming[0].burst} operations a sample" if streaming else None


def _of_seconds(form: Callable[[Seconds], str]) -> Callable[[Record], str]:
    return lambda record: "" if record.seconds is None else form(record.seconds)


def _moved(record: Record) -> str:
    """The bytes that a collective moves."""
    if record.work is None or record.work.bus_factor is None:
        return ""
    return format_size(int(record.work.amount))


def _size(record: Record) -> str:
    """The size asked for, of a program."""
    collective = record.work is not None and record.work.bus_factor is not None
    return format_size(record.case["size"]) if "size" in record.case.what and not collective else ""


def _count(record: Record) -> str:
    return "" if record.work is None or record.work.count is None else str(record.work.count)


def _wrong(record: Record) -> str:
    return "N/A" if record.check is None or record.check.wrong is None else str(record.check.wrong)


#: Heading and entry of every column that is not a rate. What moves is the size asked for, rounded to whole blocks.
_COLUMNS: dict[str, Callable[[Record], str]] = {
    "measure": lambda record: record.case["measure"] or "", "moved\n(B)": _moved, "size\n(B)": _size, "count": _count,
    "median\n(us)": _of_seconds(lambda s: format_us(s.p50)),
    "95 % interval\n(us)": _of_seconds(lambda s: f"{format_us(s.ci95[0])} .. {format_us(s.ci95[1])}"),
    "min\n(us)": _of_seconds(lambda s: format_us(s.min)), "p99\n(us)": _of_seconds(lambda s: format_us(s.p99)),
}  # fmt: skip
_COUNTS: dict[str, Callable[[Record], str]] = {
    "samples": lambda record: str(record.samples.n - record.samples.invalid) if record.samples else "",
    "late": lambda record: str(record.samples.invalid) if record.samples and record.gate else "",
    "wrong": _wrong,
}


STYLE = TableStyle
