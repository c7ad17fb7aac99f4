"""Style `osu`: size, average, minimum, maximum, iterations, as the OSU micro-benchmarks print with `-f`.

Size is what OSU means: bytes per block, so for allgather, gather, scatter and alltoall the share of one rank. Average,
minimum and maximum are over samples, where OSU's are over ranks.
"""

from __future__ import annotations

from collbench.report.style import Group, group_of
from collbench.schema.case import DTYPES
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record

_TITLE = {
    "allreduce": "Allreduce", "reduce": "Reduce", "bcast": "Broadcast", "gather": "Gather", "scatter": "Scatter",
    "allgather": "Allgather", "reduce_scatter": "Reduce_scatter", "alltoall": "All-to-All Personalized Exchange",
    "barrier": "Barrier",
}  # fmt: skip


class OsuStyle:
    """Prints every row at once."""

    def __init__(self) -> None:
        self._manifest: Manifest | None = None
        self._group: Group | None = None

    def begin(self, manifest: Manifest) -> str:
        """Nothing yet: the title names the collective."""
        self._manifest = manifest
        return ""

    def add(self, record: Record) -> str:
        """The row, with a title where the heading changes."""
        if record.seconds is None or record.work is None:
            return f"# {record.status} at {record.case.bytes} B: {record.reason}\n"
        text = ""
        group = group_of(record)
        if group != self._group:
            text = self._title(record, first=self._group is None)
            self._group = group
        s = record.seconds
        valid = record.samples.n - record.samples.invalid if record.samples else 0
        size = f"{record.work.count * DTYPES[record.case.dtype]:<10d}"
        numbers = f"{s.mean * 1e6:20.2f}{s.min * 1e6:20.2f}{s.max * 1e6:20.2f}{valid:12d}"
        return text + (numbers if record.case.collective == "barrier" else size + numbers) + "\n"

    def end(self) -> str:
        """OSU prints no footer."""
        return ""

    def _title(self, record: Record, first: bool) -> str:
        assert self._manifest is not None
        case = record.case
        title = _TITLE.get(case.collective, case.collective)
        simulated = ", SIMULATED" if self._manifest.simulated else ""
        lines = [
            f"# OSU MPI {title} Latency Test",
            f"# Datatype: {case.dtype}. Written by collbench {self._manifest.collbench}{simulated}: "
            f"backend {case.backend}, driver {record.driver}, {case.ranks} ranks",
        ]
        columns = f"{'Avg Latency(us)':>20}{'Min Latency(us)':>20}{'Max Latency(us)':>20}{'Iterations':>12}"
        lines.append(("#" + columns[1:]) if case.collective == "barrier" else f"{'# Size':<10}" + columns)
        return ("" if first else "\n") + "\n".join(lines) + "\n"


STYLE = OsuStyle
