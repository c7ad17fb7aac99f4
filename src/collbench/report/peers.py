"""Styles `nccl-tests` and `osu`: what parsers of these suites' output expect, and one table of OSU for each operation.

Of nccl-tests columns, blocks and footer: `time` is the median in microseconds (nccl-tests prints a mean), `#wrong` the
elements that differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from collbench.report.caveats import of_records
from collbench.report.headings import is_program, size_text
from collbench.report.styles import RowGroup, group_of, library_names
from collbench.schema.axes import DTYPES, Sizes
from collbench.schema.manifest import Host, Manifest
from collbench.schema.record import Record
from collbench.units import parse_size

#: Without data there is no type, but parsers count the columns.
_TYPE = {"float16": "half", "float32": "float", "float64": "double", "": "int8"}
_NAME = {
    "allreduce": "all_reduce_perf", "allgather": "all_gather_perf", "bcast": "broadcast_perf",
    "reduce": "reduce_perf", "reduce_scatter": "reduce_scatter_perf", "alltoall": "alltoall_perf",
    "gather": "gather_perf", "scatter": "scatter_perf", "sendrecv": "sendrecv_perf",
}  # fmt: skip


class _Grouped(ABC):
    """What both styles keep: the manifest, the heading of the rows that are printed, and these rows."""

    manifest: Manifest

    def __init__(self) -> None:
        self._group: RowGroup | None = None
        self._rows: list[Record] = []

    def begin(self, manifest: Manifest) -> str:
        self.manifest = manifest
        return ""

    def add(self, record: Record) -> str:
        """The row, with a header where the heading changes; a comment in place of a program's row."""
        case = record.case
        if is_program(case):
            words = " ".join(filter(None, (case.workload, case["measure"], size_text(case))))
            return f"{self.end()}# {words}: not a collective; --style table prints it\n"
        group = group_of(record)
        return (self.end() if group != self._group else "") + self._added(record, group)

    @abstractmethod
    def _added(self, record: Record, group: RowGroup) -> str: ...

    @abstractmethod
    def end(self) -> str: ...


class NcclTestsStyle(_Grouped):
    """Holds at most one row: the out-of-place half waits for its in-place half."""

    def __init__(self) -> None:
        super().__init__()
        self._half: Record | None = None

    def _added(self, record: Record, group: RowGroup) -> str:
        """With the previous row when it is complete."""
        text = self._header(record) if group != self._group else ""
        self._group = group
        self._rows.append(record)
        if record.status != "ok":
            return text + self._flush() + f"# {record.status} at {record.case['size']} B: {record.reason}\n"
        if record.case["in_place"]:
            out = self._half if self._half is not None and self._half.case["size"] == record.case["size"] else None
            if out is not None:
                self._half = None
            return text + self._flush() + _row(out, record)
        text += self._flush()
        self._half = record
        return text

    def end(self) -> str:
        """The footer of the heading."""
        if self._group is None:
            return ""
        text = self._flush()
        rates = [record.busbw or 0.0 for record in self._rows if record.seconds is not None]
        wrong = sum(record.check.wrong or 0 for record in self._rows if record.check is not None)
        failed = any(record.status == "failed" for record in self._rows)
        text += f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong or failed else 'OK'}\n"
        text += f"# {'Avg bus bandwidth':<20} : {sum(rates) / max(len(rates), 1):g} \n#\n"
        text += "".join(f"# NOTE: {line}\n" for line in of_records(self._rows))
        text += f"# Collective test concluded: {_program(self._group.case.workload)}\n"
        self._group, self._rows = None, []
        return text

    def _flush(self) -> str:
        half, self._half = self._half, None
        return "" if half is None else _row(half, None)

    def _header(self, record: Record) -> str:
        manifest = self.manifest
        hosts = {rank: host for host in reversed(manifest.hosts) for rank in host.ranks}
        form = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6} "
        half, units = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", "")
        lines = (
            f"# collbench version {manifest.collbench} in the style of nccl-tests; library: {library_names(manifest)}"
            + "; SIMULATED times" * manifest.simulated,
            f"# Collective test starting: {_program(record.case.workload)}", _settings(manifest, record),
            *([f"# {where}"] if (where := group_of(record).place) else []), "#", "# Using devices",
            *(_device(manifest, hosts.get(rank), rank) for rank in range(record.case.where.ranks)),
            f"# time: median of the samples; backend {record.case['backend']}, "
            f"driver {record.driver or record.case['driver'] + ' (asked for)'}", "#",
            f"# {'':50}           out-of-place                       in-place          ",
            form.format("size", "count", "type", "redop", "root", *half, *half),
            form.format("(B)", "(elements)", "", "", "", *units, *units),
        )  # fmt: skip
        return "\n".join(lines) + "\n"


def _program(collective: str) -> str:
    return _NAME.get(collective, f"{collective}_perf")


def _settings(manifest: Manifest, record: Record) -> str:
    """The sweep in plain numbers of bytes, as parsers expect; a list of sizes shows as its first one."""
    try:
        sizes = msgspec.convert((manifest.plan or {}).get("sizes"), Sizes)
    except msgspec.ValidationError:
        sizes = Sizes(min=record.case["size"], max=record.case["size"])
    step = f"{sizes.factor}(factor)" if sizes.step is None else f"{parse_size(sizes.step)}(bytes)"
    protocol = manifest.protocol
    return (
        f"# nThread 1 nGpus 1 minBytes {parse_size(sizes.min)} maxBytes {parse_size(sizes.max)} step: {step} "
        f"warmup iters: {protocol.warmup} iters: {protocol.iters or 0} agg iters: 1 "
        f"validation: {protocol.check} graph: {(manifest.plan or {}).get('cudagraph', 0)}"
    )


def _device(manifest: Manifest, host: Host | None, rank: int) -> str:
    name, cpu = (host.name, host.cpu) if host else ("?", "?")
    uuid = manifest.rank_gpus[rank] if rank < len(manifest.rank_gpus) else None
    gpus = host.gpus if host else ()
    place, gpu = next(((at, gpu) for at, gpu in enumerate(gpus) if gpu.uuid == uuid), (0, None))
    bus, what = (gpu.bus.rsplit(".", 1)[0], gpu.name) if gpu else ("0000:00:00", cpu)
    return f"#  Rank {rank:2d} Group  0 Pid {0:6d} on {name:>10} device {place:2d} [{bus}] {what}"


def _row(out: Record | None, inside: Record | None) -> str:
    record = out or inside
    assert record is not None and record.work is not None
    case = record.case
    root = -1 if case["root"] is None else case["root"]
    dtype = case["dtype"] or "int8"
    count = "N/A" if record.work.count is None else record.work.count
    return (f"{int(record.work.amount):12d}  {count:>12}  {_TYPE.get(dtype, dtype):>8}  {case['op'] or 'none':>6}  "
            f"{root:6d}{_half(out)}{_half(inside)}\n")  # fmt: skip


def _half(record: Record | None) -> str:
    if record is None or record.seconds is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    wrong = None if record.check is None else record.check.wrong
    time, algbw, busbw = _fit(record.seconds.p50 * 1e6, 7), _fit(record.algbw or 0.0, 6), _fit(record.busbw or 0.0, 6)
    return f"  {time}  {algbw}  {busbw}  {'N/A' if wrong is None else f'{wrong:g}':>6}"


def _fit(value: float, width: int) -> str:
    """Two decimals if they fit the column, else one, none, or an exponent."""
    for digits in (2, 1, 0):
        text = f"{value:{width}.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


_TITLE = {
    "allreduce": "Allreduce", "reduce": "Reduce", "bcast": "Broadcast", "gather": "Gather", "scatter": "Scatter",
    "allgather": "Allgather", "reduce_scatter": "Reduce_scatter", "alltoall": "All-to-All Personalized Exchange",
    "barrier": "Barrier",
}  # fmt: skip
_SIZE_IS_A_SHARE = {"allgather", "gather", "scatter", "alltoall"}


class OsuStyle(_Grouped):
    """Prints every row at once; in-place rows follow out-of-place ones in a table of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._in_place = False
        self._held: list[Record] = []
        self._titles = 0

    def _added(self, record: Record, group: RowGroup) -> str:
        if self._group == group and record.case["in_place"] and not self._in_place:
            self._held.append(record)
            return ""
        return self._shown(record, group)

    def end(self) -> str:
        """The in-place rows that were held; OSU prints no footer, so remarks are comments."""
        text = self._remarks()
        held, self._held = self._held, []
        if not held:
            return text
        self._group = None
        return text + "".join(self._shown(record, group_of(record)) for record in held) + self._remarks()

    def _remarks(self) -> str:
        rows, self._rows = self._rows, []
        return "".join(f"# {line}\n" for line in of_records(rows))

    def _shown(self, record: Record, group: RowGroup) -> str:
        text = ""
        if group != self._group:
            text = self._title(record)
            self._group, self._in_place = group, record.case["in_place"]
        if record.seconds is None or record.work is None:
            return text + f"# {record.status} at {record.case['size']} B: {record.reason}\n"
        self._rows.append(record)
        s = record.seconds
        valid = record.samples.n - record.samples.invalid if record.samples else 0
        share = (record.work.count or 0) * DTYPES.get(record.case["dtype"], 0)
        size = f"{share if record.case.workload in _SIZE_IS_A_SHARE else int(record.work.amount):<10d}"
        numbers = f"{s.mean * 1e6:20.2f}{s.min * 1e6:20.2f}{s.max * 1e6:20.2f}{valid:12d}"
        return text + (size + numbers if "size" in record.case.what else numbers) + "\n"

    def _title(self, record: Record) -> str:
        case = record.case
        title = _TITLE.get(case.workload, case.workload)
        simulated = ", SIMULATED" if self.manifest.simulated else ""
        place = ", in place" if case["in_place"] else ""
        lines = [
            f"# OSU MPI {title} Latency Test",
            f"# Datatype: {case['dtype'] or 'none'}. Written by collbench {self.manifest.collbench}{simulated}: "
            f"backend {case['backend']}, driver {record.driver or case['driver']}, {case.where.ranks} ranks{place}",
        ]
        lines += [f"# {where}"] if (where := group_of(record).place) else []
        columns = f"{'Avg Latency(us)':>20}{'Min Latency(us)':>20}{'Max Latency(us)':>20}{'Iterations':>12}"
        lines.append(f"{'# Size':<10}{columns}" if "size" in case.what else f"#{columns[1:]}")
        first, self._titles = self._titles == 0, self._titles + 1
        return ("" if first else "\n") + "\n".join(lines) + "\n"
