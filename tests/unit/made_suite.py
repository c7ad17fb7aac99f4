"""A run of programs, made up: benchmarks as they are measured on the host and in a container, with planted effects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.unit.made_runs import Entry, made_failure, made_record, spread, write_run

from collbench.schema.case import Case, case_of
from collbench.schema.record import CpuTime, Record, ResultCheck, Samples, Work


class Made(NamedTuple):
    """One measure of a benchmark: its time on the host (s), its work, and what its check measured."""

    case: Case
    seconds: float
    work: Work
    figures: dict[str, float] = {}  # noqa: RUF012 - nobody changes it


def of(workload: str, seconds: float, work: Work, figures: dict[str, float] | None = None, **values: Any) -> Made:
    return Made(case_of(workload, values), seconds, work, figures or {})


def _rate(amount: float, unit: str) -> Work:
    return msgspec.convert({"amount": amount, "unit": unit, "shown": "rate"}, Work)


_REQUEST = Work(amount=1, unit="requests", shown="time")
_FOURTH = 1 << 26

CPU = (
    *(of("linpack", n**3 / 6e10, _rate(n**3 * 2 / 3, "flop"), {"residual": 0.0021}, n=n, lda=lda, measure="solve")
      for n, lda in ((2000, 2000), (5000, 5008))),
    of("dgemm", 0.19, _rate(2 * 2048.0**3, "flop"), {"residual": 0.0004}, n=2048, threads=2, measure="total"),
    *(of("stream", arrays * _FOURTH / 1.2e10, _rate(arrays * _FOURTH, "bytes"), size=_FOURTH, measure=name)
      for name, arrays in (("copy", 2), ("triad", 3))),
    *(of("sysbench_cpu", 0.61 / threads, _rate(1000, "events"), threads=threads, max_prime=20000, measure="total")
      for threads in (1, 2)),
)  # fmt: skip
IO = (
    *(of("dd", count * 8e-4, _rate(count * 1048576.0, "bytes"), count=count, storage=storage, measure="total")
      for count in (16, 1600) for storage in ("overlay", "volume")),
    *(of("ioping", seconds, _REQUEST, mode=mode, storage="overlay", measure="request")
      for mode, seconds in (("cached", 1.4e-6), ("direct", 91e-6))),
    of("fio", 1.9, _rate(20000, "requests"), {"resident": 0.0}, rw="randread", bs=4096, storage="volume",
       measure="request"),
    of("fio", 263e-6, _REQUEST, rw="randread", bs=4096, storage="volume", measure="p99"),
)  # fmt: skip


def recorded(made: Made, case: Case, launch: int, seconds: float, **fields: Any) -> Record:
    """A launch of a program, with five samples of 1 % around the median."""
    found = made_record(
        case, launch, seconds, work=made.work, check=ResultCheck(wrong=0, figures=made.figures),
        samples=Samples(n=5, invalid=0, warmup=1),
        cpu=CpuTime(user=5.4 * seconds, system=0.3 * seconds, wall=6 * seconds),
        driver=None, align=None, cadence=None, clock="local", in_place=None, transport=None,
    )  # fmt: skip
    assert found.seconds is not None
    ends = {"min": 0.99, "p95": 1.01, "p99": 1.01, "max": 1.01}
    times = msgspec.structs.replace(found.seconds, **{name: seconds * end for name, end in ends.items()})
    return msgspec.structs.replace(found, seconds=times, **fields)


def inside(case: Case, policy: str = "single", isolation: str = "strict") -> Case:
    return case.having(engine="docker", policy=policy, isolation=isolation)


def write_suite(
    path: Path, made: tuple[Made, ...] = CPU + IO, slower: Mapping[str, float] | None = None, launches: int = 8,
    share: Mapping[str, float] | None = None, policies: tuple[str, ...] = ("single",), **fields: Any,
) -> Path:  # fmt: skip
    """Host and containers. By benchmark: `slower` takes so many times as long inside; launches vary by `share`."""
    slower, share = slower or {}, share or {}
    cells: dict[Case, list[Entry]] = {}
    for number, one in enumerate(made):
        case, name = one.case.having(image="tools"), one.case.workload
        times = spread(one.seconds, launches, share.get(name, 0.002))
        cells[case] = [recorded(one, case, launch, seconds) for launch, seconds in enumerate(times)]
        for policy in policies:
            within = inside(case, policy)
            wobble = spread(slower.get(name, 1.0), launches + number % 2, share.get(name, 0.002))
            cells[within] = [
                recorded(one, within, launch, seconds * factor)
                for launch, (seconds, factor) in enumerate(zip(times, wobble, strict=False))
            ]
    return write_run(path, cells, title="suite", ranks=1, libraries=(), **fields)


def of_one_launch() -> list[Record]:
    """Each case once, on the host; one of them cannot be had."""
    return [
        made_failure(one.case, 0, "its files cannot be opened with O_DIRECT", "skipped") if one.case["mode"] == "direct"
        else recorded(one, one.case, 0, one.seconds, contended=one.case["threads"] == 2) for one in CPU + IO
    ]  # fmt: skip
