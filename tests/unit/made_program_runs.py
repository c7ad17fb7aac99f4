"""Records of programs that are made up: one process on the host or in a container, which computes or works in files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tests.unit.made_runs import made_record

from collbench.schema.case import Case, case_of
from collbench.schema.manifest import Library
from collbench.schema.record import CpuTime, Record, Samples, Work

_CASE = case_of("sysbench_cpu", {"measure": "total", "threads": 1})


def program_case(policy: str = "host", isolation: str | None = None, **values: Any) -> Case:
    """A program on the host, or in a container of Docker beside it."""
    engine = "host" if policy == "host" else "docker"
    where = {"engine": engine, "policy": policy, "isolation": isolation, "image": "tools"}
    return _CASE.having(**where | values)


def program_record(case: Case, launch: int, seconds: float, cpu: float | None = None, **fields: Any) -> Record:
    """Nine samples and a warm-up of one executed program, which took so many CPU seconds for each (else: all)."""
    used = CpuTime(user=10 * (seconds if cpu is None else cpu), system=0.0, wall=10 * seconds)
    facts = {"driver": None, "align": None, "cadence": None, "clock": "local", "in_place": None, "transport": None}
    work = Work(amount=1000, unit="events", shown="rate")
    taken = Samples(n=9, invalid=0, warmup=1)
    return made_record(case, launch, seconds, **facts | {"work": work, "cpu": used, "samples": taken} | fields)


def launches_of(
    case: Case, seconds: Sequence[float], contended: Collection[int] = (), cpu: float | None = None, **fields: Any
) -> list[Record]:
    """A record for each launch; `contended` are the numbers of those during which tasks waited for a CPU."""
    return [
        program_record(case, number, time, cpu, contended=number in contended, **fields)
        for number, time in enumerate(seconds)
    ]


def program(version: str = "1.0.20", **fields: Any) -> Library:
    """What a side has of the program."""
    return Library(**{"name": "sysbench", "version": version, "path": "/usr/bin/sysbench", "sha256": "a" * 64,
                      "used_by": ("sysbench_cpu",)} | fields)  # fmt: skip
