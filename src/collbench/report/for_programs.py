"""Styles `csv` and `json`, for programs: every field of a record by name; seconds and bytes, not rounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import msgspec

from collbench.report.tables import spreadsheet_cell
from collbench.schema.axes import AXES
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record

_AXES = tuple(axis.heading for axis in AXES.values())

#: A column for each axis, then what was measured. A workload's own axes are in `settings`, as `name=value`.
COLUMNS = (
    "status", "reason", "workload", *_AXES, "settings", "launch", "driver", "gate", "cadence", "clock", "amount",
    "unit", "count", "median_s", "ci95_low_s", "ci95_high_s", "min_s", "p95_s", "p99_s", "max_s", "mean_s", "lag1",
    "algbw_GBps", "busbw_GBps", "bus_factor", "samples", "invalid", "warmup", "wrong", "contended", "oversubscribed",
    "simulated", "burst", "device_median_s", "legs_median_s", "algorithm", "protocol", "transport", "shared_gpu",
    "figures", "cpu_user_s", "cpu_system_s", "cpu_wall_s", "rank_hosts",
)  # fmt: skip


class CsvStyle:
    """A header, then rows as they come."""

    def __init__(self) -> None:
        self._simulated = False

    def begin(self, manifest: Manifest) -> str:
        self._simulated = manifest.simulated
        return _line(COLUMNS)

    def add(self, record: Record) -> str:
        fields = fields_of(record) | {"simulated": self._simulated}
        return _line([fields.get(name) for name in COLUMNS])

    def end(self) -> str:
        return ""


def fields_of(record: Record) -> dict[str, object]:
    """A record as flat names and values."""
    case, w, s, n = record.case, record.work, record.seconds, record.samples
    own = (f"{axis.name}={case[axis.name]}" for axis in case.axes if axis.name not in AXES)
    fields: dict[str, object] = {
        "status": record.status, "reason": record.reason, "workload": case.workload,
        **{axis.heading: case[axis.name] for axis in AXES.values()}, "settings": "; ".join(own) or None,
        "driver": record.driver, "launch": record.launch, "gate": record.gate,
        "cadence": record.cadence, "clock": record.clock, "algbw_GBps": record.algbw, "busbw_GBps": record.busbw,
        "wrong": record.check.wrong if record.check else None, "contended": record.contended,
        "oversubscribed": record.oversubscribed, "burst": record.burst,
        "algorithm": record.algorithm, "protocol": record.protocol, "transport": record.transport,
        "shared_gpu": record.shared_gpu, "device_median_s": record.device.p50 if record.device else None,
        "legs_median_s": "; ".join(f"{name}={leg.p50!r}" for name, leg in record.legs.items()) or None,
    }  # fmt: skip
    if record.check is not None:
        figures = {**record.check.figures, **record.check.repeatable}
        fields["figures"] = "; ".join(f"{name}={value!r}" for name, value in figures.items()) or None
    if record.cpu is not None:
        fields |= {f"cpu_{name}_s": getattr(record.cpu, name) for name in ("user", "system", "wall")}
    if record.ranks is not None:
        machines = (f"{machine.name} x {machine.ranks}" for machine in record.ranks.machines)
        fields["rank_hosts"] = "; ".join(record.ranks.host or machines) or None
    if w is not None:
        fields |= {"amount": w.amount, "unit": w.unit, "count": w.count, "bus_factor": w.bus_factor}
    if s is not None:
        fields |= {"median_s": s.p50, "ci95_low_s": s.ci95[0], "ci95_high_s": s.ci95[1], "min_s": s.min,
                   "p95_s": s.p95, "p99_s": s.p99, "max_s": s.max, "mean_s": s.mean, "lag1": s.lag1}  # fmt: skip
    if n is not None:
        fields |= {"samples": n.n - n.invalid, "invalid": n.invalid, "warmup": n.warmup}
    return fields


def _line(cells: Iterable[object]) -> str:
    buffer = io.StringIO()
    texts = (spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in cells)
    csv.writer(buffer, lineterminator="\n").writerow(texts)
    return buffer.getvalue()


class JsonStyle:
    """Holds everything until the end."""

    def __init__(self) -> None:
        self._manifest: Manifest | None = None
        self._records: list[dict[str, Any]] = []

    def begin(self, manifest: Manifest) -> str:
        self._manifest = manifest
        return ""

    def add(self, record: Record) -> str:
        """Adds bandwidths to the record: `algbw` and `busbw` in GB/s."""
        fields = msgspec.to_builtins(record)
        self._records.append(fields | {"algbw": record.algbw, "busbw": record.busbw})
        return ""

    def end(self) -> str:
        manifest = None if self._manifest is None else msgspec.to_builtins(self._manifest)
        document = msgspec.json.encode({"manifest": manifest, "records": self._records})
        return msgspec.json.format(document, indent=2).decode() + "\n"
