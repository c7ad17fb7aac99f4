"""fio: requests to one file, at random or in sequence, through the system calls of one of three engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from mmap import PAGESIZE
from pathlib import Path

from collbench.schema.case import Case
from collbench.workloads._files import no_direct, no_io_uring
from collbench.workloads._fio import FILE, elapsed, layout, notes, seconds, takes, timed, unused, verified, wrong
from collbench.workloads.parameters import parameter
from collbench.workloads.program import Measure, Program, Step
from collbench.workloads.software import Software


def refuses(case: Case) -> str | None:
    """What fio would take and not do, without a word."""
    if case["size"] < case["bs"]:
        return "the size is less than one request (bs)"
    waits = case["ioengine"] == "psync" or (case["ioengine"] == "libaio" and not case["direct"])
    if waits and case["depth"] > 1:
        return f"{case['ioengine']} with direct={case['direct']} makes one request at a time: depth must be 1"
    if case["direct"] and case["cache"] == "warm":
        return "direct=1 passes the page cache by: cache=warm needs direct=0"
    return None


def lacks(case: Case, folder: Path) -> str | None:
    if not case["direct"] and case["cache"] == "cold" and case["rw"] == "randread" and case["bs"] % PAGESIZE:
        return f"cache=cold: a read brings whole pages into the page cache; bs must be a multiple of {PAGESIZE}"
    asked = (case["direct"], case["ioengine"] == "io_uring")
    return (no_direct(folder) if asked[0] else None) or (no_io_uring() if asked[1] else None)


def before(case: Case) -> Sequence[Step]:
    page_cache = (sys.executable, "-m", "collbench.workloads.programs.page_cache", case["cache"], FILE)
    return () if case["direct"] else (Step(page_cache, json.loads),)


WORKLOAD = Program(
    name="fio", suite="io", title="fio", summary="requests to a file: how many a second, and how long the slowest take",
    measures=(
        Measure("request", lambda case: 1, "requests"),
        Measure("p99", lambda case: 1, "requests", shown="time"),
    ),
    argv=lambda case, times: timed(case), parse=seconds, verify=wrong, notes=notes, elapsed=elapsed, refuses=refuses,
    lacks=lacks, files=True, disk=lambda case: int(case["size"]), prepare=lambda case: (layout(case),), before=before,
    unused=unused, seconds=takes,
    after=lambda case: (verified(case),) if "write" in case["rw"] else (),
    software=(Software("fio", "fio", oldest=(3, 0)),), repeated=True, sizes=("1G",),
    axes=(
        parameter("rw", "randread", "which requests", among=("randread", "randwrite", "read", "write")),
        parameter("bs", 4096, "bytes of a request", least=512, most=1 << 30),
        parameter("depth", 1, "requests under way at a time", least=1, most=65_536),
        parameter("ioengine", "psync", "how they are made", among=("psync", "libaio", "io_uring"), kind="how"),
        parameter("direct", 1, "1: by O_DIRECT, 0: through the page cache", least=0, most=1, kind="how"),
        parameter("cache", "cold", "of the file, before a sample", among=("cold", "warm"), kind="how"),
        parameter("runtime", 10, "seconds of a sample; one of a cold file ends with the file", least=1, most=86_400),
        parameter("ramp", 2, "seconds that are left out before, unless the cache is cold", least=0, most=3600),
    ),
)  # fmt: skip
