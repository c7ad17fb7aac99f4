"""Style `osu`: size, average, minimum, maximum, iterations, as the OSU micro-benchmarks print with `-f`.

Size is what OSU means: for allgather, gather, scatter and alltoall the share of one rank, else the whole buffer.
Average, minimum and maximum are over samples, where OSU's are over ranks.
"""

from __future__ import annotations

from collbench.report.remarks import cautions
from collbench.report.style import Group, group_of, not_of_mpi
from collbench.schema.choices import DTYPES
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record

_TITLE = {
    "allreduce": "Allreduce", "reduce": "Reduce", "bcast": "Broadcast", "gather": "Gather", "scatter": "Scatter",
    "allgather": "Allgather", "reduce_scatter": "Reduce_scatter", "alltoall": "All-to-All Personalized Exchange",
    "barrier": "Barrier",
}  # fmt: skip
_SIZE_IS_A_SHARE = {"allgather", "gather", "scatter", "alltoall"}


class OsuStyle:
    """Prints every row at once; in-place rows follow out-of-place ones in a table of their own."""

    def __init__(self) -> None:
        self._manifest: Manifest | None = None
        self._group: Group | None = None
        self._in_place = False
        self._held: list[Record] = []
        self._rows: list[Record] = []
        self._titles = 0

    def begin(self, manifest: Manifest) -> str:
        self._manifest = manifest
        return ""

    def add(self, record: Record) -> str:
        """The row, with a title where the heading changes."""
        if other := not_of_mpi(record):
            return self.end() + other
        group = group_of(record)
        text = self.end() if group != self._group else ""
        if self._group == group and record.case["in_place"] and not self._in_place:
            self._held.append(record)
            return text
        return text + self._shown(record, group)

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
        return "".join(f"# {line}\n" for line in cautions(rows))

    def _shown(self, record: Record, group: Group) -> str:
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
        assert self._manifest is not None
        case = record.case
        title = _TITLE.get(case.workload, case.workload)
        simulated = ", SIMULATED" if self._manifest.simulated else ""
        place = ", in place" if case["in_place"] else ""
        lines = [
            f"# OSU MPI {title} Latency Test",
            f"# Datatype: {case['dtype'] or 'none'}. Written by collbench {self._manifest.collbench}{simulated}: "
            f"backend {case['backend']}, driver {record.driver or case['driver']}, {case.where.ranks} ranks{place}",
        ]
        if where := group_of(record).place:
            lines.append(f"# {where}")
        columns = f"{'Avg Latency(us)':>20}{'Min Latency(us)':>20}{'Max Latency(us)':>20}{'Iterations':>12}"
        lines.append(f"{'# Size':<10}{columns}" if "size" in case.what else f"#{columns[1:]}")
        first, self._titles = self._titles == 0, self._titles + 1
        return ("" if first else "\n") + "\n".join(lines) + "\n"


STYLE = OsuStyle
