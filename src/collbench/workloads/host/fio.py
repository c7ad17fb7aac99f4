"""fio: requests to one file, at random or in sequence, through the system calls of one of its engines.

A job is a thread: as a process it would leave fio's process group, and go on when that is ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

from collbench.schema.case import Case
from collbench.workloads.host.files import SHORTEST, cached, explained, no_direct, no_io_uring
from collbench.workloads.program import Measure, Program, SideCommand, parameter
from collbench.workloads.software import Software

#: The one file that all jobs work on.
FILE = "data"

#: A file is written at about this rate, on a device that is neither fast nor slow (bytes/s).
_WRITTEN = 5e8

#: A pass of fewer milliseconds, which fio counts in whole numbers, cannot show a difference of 1 %.
FEWEST_MS = 100

#: Most bytes that the pass which verifies writes and reads back.
_MOST_VERIFIED = 64 << 20


def job(case: Case, *options: str) -> tuple[str, ...]:
    """The requests of the case, without what ends them."""
    return (
        "fio", "--name=collbench", f"--filename={FILE}", f"--rw={case['rw']}", f"--bs={case['bs']}",
        f"--size={case['size']}", f"--ioengine={case['ioengine']}", f"--iodepth={case['depth']}",
        f"--direct={case['direct']}", "--thread", "--output-format=json", *options,
    )  # fmt: skip


def layout(case: Case) -> SideCommand:
    """Write the whole file, and bring it to the device."""
    fio = ("fio", "--name=layout", f"--filename={FILE}", "--rw=write", "--bs=1M", f"--size={case['size']}",
           "--end_fsync=1", "--thread", "--output-format=json")  # fmt: skip
    return SideCommand(fio, _without_error)


def _cold(case: Case) -> bool:
    return bool(not case["direct"] and case["cache"] == "cold")


def _ramp(case: Case) -> int:
    """Seconds before the measured ones: none if cold."""
    return 0 if _cold(case) else int(case["ramp"])


def timed(case: Case) -> Sequence[str]:
    """Requests for `runtime` seconds; of a cold file for one pass at most, each block once: a second finds it cached.

    fio leaves the state of the page cache alone, and begins to measure at once if it is cold.
    """
    until = () if _cold(case) else ("--time_based",)
    return job(case, *until, f"--runtime={case['runtime']}", f"--ramp_time={_ramp(case)}", "--invalidate=0")


def verified(case: Case) -> SideCommand:
    """The same writes with a checksum (crc32c) in every block, which are then read back."""
    checks = ("--verify=crc32c", "--do_verify=1", "--verify_fatal=1")
    limit = max(min(case["size"], _MOST_VERIFIED), case["bs"])
    return SideCommand(explained("verify failed\\|^fio: ", *job(case, f"--io_size={limit}", *checks)), _without_error)


def job_in(output: str) -> Mapping[str, Any]:
    """The only job: fio may print warnings before its JSON, and after it.

    Raises:
        ValueError: no JSON, or not all of it.
    """
    document, _ = json.JSONDecoder().raw_decode(output[max(output.find("{"), 0) :])
    (only,) = document["jobs"]
    return dict(only)


def seconds(output: str) -> Mapping[str, Sequence[float]]:
    """The mean time from one completed request to the next, and the 99th percentile of completion latency."""
    reported = job_in(output)
    side = max(reported["read"], reported["write"], key=lambda side: float(side["total_ios"]))
    request = side["runtime"] * 1e-3 / side["total_ios"]
    return {"request": [request], "p99": [side["clat_ns"]["percentile"]["99.000000"] * 1e-9]}


def wrong(case: Case, output: str) -> int:
    """Whether fio met an error, made no request of the kind asked for, ended early, or read a cold file twice."""
    reported = job_in(output)
    side = reported["write" if "write" in case["rw"] else "read"]
    early = side["runtime"] * 1e-3 < SHORTEST * case["runtime"]
    twice = False
    if _cold(case):
        left = case["size"] - side["io_bytes"]  # a block that is not whole is left out or completed
        early, twice = early and left >= case["bs"], -left >= case["bs"]
    return sum((reported["error"] != 0, side["total_ios"] < 1, early, twice))


def elapsed(case: Case, output: str) -> float:
    """Seconds in which fio made its requests, as it says."""
    return _runtime(output) * 1e-3 + _ramp(case)


def _runtime(output: str) -> int:
    """Milliseconds."""
    reported = job_in(output)
    return int(max(reported["read"]["runtime"], reported["write"]["runtime"]))


def notes(output: str) -> Sequence[str]:
    """What a reader must know of a pass that ended within a few of the milliseconds that fio counts."""
    runtime = _runtime(output)
    if runtime >= FEWEST_MS:
        return ()
    return (f"fio counts in ms, and a pass of the file took {runtime}: make the size larger",)


def _without_error(output: str) -> Mapping[str, float]:
    error = job_in(output)["error"]
    if error:
        raise ValueError(f"fio met error {error}")
    return {}


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
    if case["direct"] and (reason := no_direct(folder)) is not None:
        return reason
    return no_io_uring() if case["ioengine"] == "io_uring" else None


WORKLOAD = Program(
    name="fio", suite="io", title="fio", summary="requests to a file: how many a second, and how long the slowest take",
    measures=(
        Measure("request", lambda case: 1, "requests"),
        Measure("p99", lambda case: 1, "requests", shown="time"),
    ),
    argv=lambda case, times: timed(case), parse=seconds, verify=wrong, notes=notes, elapsed=elapsed, refuses=refuses,
    lacks=lacks, files=True, disk=lambda case: int(case["size"]), prepare=lambda case: (layout(case),),
    before=lambda case: () if case["direct"] else (cached(case["cache"], FILE),),
    # O_DIRECT passes the page cache by; a cold file is measured from the first request on
    unused=lambda case: ("cache",) if case["direct"] else ("ramp",) if _cold(case) else (),
    seconds=lambda case: float(case["runtime"] + _ramp(case) + case["size"] / _WRITTEN),  # with the writing of the file
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
