"""Style `table`: for people. One table per heading, skips and remarks below it."""

from __future__ import annotations

from collbench.report.remarks import remarks
from collbench.report.style import Group, format_rate, format_us, gpu_lines, group_of
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.units import format_size

_HEADERS = (
    "size\n(B)", "count", "median\n(us)", "95 % interval\n(us)", "min\n(us)", "p99\n(us)",
    "algbw\n(GB/s)", "busbw\n(GB/s)", "samples", "late", "wrong",
)  # fmt: skip


class TableStyle:
    """Holds the rows of one heading until the next begins, so that columns line up."""

    def __init__(self) -> None:
        self._rows: list[Record] = []
        self._manifest: Manifest | None = None

    def begin(self, manifest: Manifest) -> str:
        """Where it was measured."""
        self._manifest = manifest
        libraries = ", ".join(f"{library.name} {library.version}" for library in manifest.libraries)
        machines = "; ".join(f"{host.name} ({host.cpu}, {host.cores} cores)" for host in manifest.hosts)
        lines = [f"# collbench {manifest.collbench}: {libraries}; {_ranks(manifest.ranks)} on {machines}"]
        lines += [f"# {line}" for line in gpu_lines(manifest)]
        if manifest.simulated:
            lines.append("# SIMULATED: the fake backend makes its times up; they say nothing about this machine")
        if manifest.ranks == 1 and not manifest.simulated:
            lines.append("# one rank communicates with nobody; start more: mpirun -n 4 collbench ...")
        return "\n".join(lines) + "\n"

    def add(self, record: Record) -> str:
        """The finished table when this record opens another heading."""
        done = ""
        if self._rows and group_of(self._rows[-1]) != group_of(record):
            done = self.end()
        self._rows.append(record)
        return done

    def end(self) -> str:
        """The table that was held."""
        if not self._rows:
            return ""
        rows, self._rows = self._rows, []
        measured = [record for record in rows if record.seconds is not None]
        parts = ["", _heading(group_of(rows[0]), measured)]
        if measured:
            parts.append(_tabulated(measured))
        parts.extend(remarks(rows))
        return "\n".join(parts) + "\n"


def _tabulated(measured: list[Record]) -> str:
    """The table; a column more for each fact in which its rows differ beside the size."""
    from tabulate import tabulate

    places = ["in" if record.in_place else "out" for record in measured]
    gates = [record.gate or "" for record in measured]
    more = {name: cells for name, cells in (("place", places), ("gate", gates)) if len(set(cells)) > 1}
    more |= _measured_apart(measured)
    rows = [(*_cells(record), *extra) for record, *extra in zip(measured, *more.values(), strict=True)]
    headers = (*_HEADERS, *more)
    alignment = ("right",) * len(headers)
    text: str = tabulate(rows, headers=headers, tablefmt="simple", colalign=alignment, disable_numparse=True)
    return text


def _measured_apart(measured: list[Record]) -> dict[str, list[str]]:
    """Columns for what only devices have: legs, time by their own clock, and what the library chose."""
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


def _ranks(n: int) -> str:
    return "1 rank" if n == 1 else f"{n} ranks"


def _heading(group: Group, measured: list[Record]) -> str:
    dtype = None if group.collective == "barrier" else group.dtype
    what = " ".join(word for word in (group.collective, group.op, dtype) if word)
    root = None if group.root is None else f"root {group.root}"
    drivers = "/".join(sorted({record.driver or group.driver for record in measured})) or group.driver
    gates = "/".join(sorted({record.gate for record in measured if record.gate}))
    clock = "last out - first in" if all(record.clock == "common" for record in measured) else "largest local time"
    place = "in place" if measured and all(record.in_place for record in measured) else None
    facts = [what, root, place, f"backend {group.backend}", f"driver {drivers}",
             group.variant, _cadence(measured),
             f"thread level {group.thread_level}", f"gate {gates} ({clock})" if measured else None,
             group.place]  # fmt: skip
    return ", ".join(fact for fact in facts if fact)


def _cadence(measured: list[Record]) -> str | None:
    streaming = [record for record in measured if record.cadence == "streaming"]
    return f"streaming, {streaming[0].burst} operations a sample" if streaming else None


def _cells(record: Record) -> tuple[str, ...]:
    seconds, work, samples = record.seconds, record.work, record.samples
    assert seconds is not None and work is not None and samples is not None
    wrong = "N/A" if record.check is None or record.check.wrong is None else str(record.check.wrong)
    return (
        format_size(work.bytes), str(work.count), format_us(seconds.p50),
        f"{format_us(seconds.ci95[0])} .. {format_us(seconds.ci95[1])}", format_us(seconds.min),
        format_us(seconds.p99), format_rate(record.algbw), format_rate(record.busbw),
        str(samples.n - samples.invalid), str(samples.invalid), wrong,
    )  # fmt: skip


STYLE = TableStyle
