"""What a style is: records go in as they are measured, text comes out when it can be printed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from collbench.report.headings import software
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.units import counted, format_size


class Style(Protocol):
    """All three return text to print, with its newlines; empty when there is nothing yet."""

    def begin(self, manifest: Manifest) -> str:
        """Before the first record."""

    def add(self, record: Record) -> str:
        """A record, in the order of measurement."""

    def end(self) -> str:
        """After the last record, also when the run was cut short."""


class Group(NamedTuple):
    """What rows under one heading have in common: `case` is without size, and without in or out of place."""

    case: Case
    launch: int

    @property
    def place(self) -> str:
        """`mpich, multi strict, 2 ranks, launch 3` in a run of many launches; else empty."""
        where = self.case.where
        if where.image is None:
            return ""
        return f"{software(where)}, {where.text}, {counted(where.ranks, 'rank')}, launch {self.launch}"


def group_of(record: Record) -> Group:
    """The heading of a record; by the driver asked for, which skips and failures have too."""
    return Group(record.case.without(("size", "in_place")), record.launch)


def library_names(manifest: Manifest) -> str:
    """`Open MPI 5.0.11, MPICH 5.0.2`: each once, though several images have it."""
    return ", ".join(dict.fromkeys(f"{library.name} {library.version}".rstrip() for library in manifest.libraries))


def not_of_mpi(record: Record) -> str:
    """A comment in place of a program's record, for which styles of collective benchmarks lack columns; else empty."""
    if record.case["backend"]:
        return ""
    case = record.case
    words = (case.workload, case["measure"], format_size(case["size"]) if "size" in case.what else None)
    return f"# {' '.join(word for word in words if word)}: not a collective; --style table prints it\n"


def gpu_lines(manifest: Manifest) -> list[str]:
    """`rank 0: GPU-1a2b (NVIDIA H200, 0000:65:00.0)`, a line for each rank; none where no rank has a GPU."""
    known = {gpu.uuid: gpu for host in manifest.hosts for gpu in host.gpus}
    lines = []
    for rank, uuid in enumerate(manifest.rank_gpus):
        gpu = known.get(uuid or "")
        detail = f" ({gpu.name}, {gpu.bus})" if gpu else ""
        lines.append(f"rank {rank}: {uuid or 'no GPU'}{detail}")
    return lines


def format_us(seconds: float) -> str:
    """Microseconds with four significant digits where they matter, at most nanoseconds: `0.412`, `12.35`, `1234`."""
    return four_digits(seconds * 1e6)


def four_digits(value: float) -> str:
    """At most three decimals: `0.412`, `12.35`, `1234`."""
    return f"{value:.{(value < 10) + (value < 100) + (value < 1000)}f}"


def format_rate(gigabytes: float | None) -> str:
    """GB/s with three significant digits; `-` where there is no bandwidth."""
    if gigabytes is None or gigabytes == 0:
        return "-"
    digits = 4 if gigabytes < 0.1 else 1 + sum(gigabytes < bound for bound in (10, 100))
    return f"{gigabytes:.{digits}f}"
