"""Programs of others that make requests to storage: dd, fio and ioping.

dd writes zeros block by block to a new file, and brings them to the device before it ends (fdatasync). Storage that
compresses zeros stores nothing of them, and its case fails.

fio makes requests to one file, at random or in sequence, through the system calls of one of its engines. A job is a
thread: as a process it would leave fio's process group, and go on when that is ended.

ioping reads 4 KiB at random in a file of 1 MiB: in mode `latency` once a second, after the pages were dropped from the
cache, in the other modes without a pause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

from collbench.schema.case import Case
from collbench.workloads.host.files import SHORTEST, cached, explained, no_direct, no_io_uring
from collbench.workloads.program import Measure, Program, SideCommand, parameter
from collbench.workloads.software import Software

_COPIED = re.compile(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s,", re.MULTILINE)
_FILE = re.compile(r"^size (\d+) in (\d+) x (\d+)$", re.MULTILINE)


def written(case: Case) -> int:
    return int(case["bs"] * case["count"])


def _dd_argv(case: Case, times: int) -> Sequence[str]:
    dd = f"dd if=/dev/zero of=zeros bs={case['bs']} count={case['count']} conv=fdatasync"
    return explained("^dd: ", "sh", "-c", f"{dd} && stat --format='size %s in %b x %B' zeros")


def _dd_wrong(case: Case, output: str) -> int:
    """Of the bytes that dd counted, and the size of the file, how many are others than asked for."""
    copied, file = _COPIED.search(output), _FILE.search(output)
    if copied is None or file is None:
        raise ValueError("no line with the bytes that dd copied, or none with the size of the file")
    wrong = sum(int(line[1]) != written(case) for line in (copied, file))
    if not wrong and (stored := int(file[2]) * int(file[3])) < written(case):
        raise ValueError(f"{stored} of {written(case)} bytes are stored: a file with holes, or compressed zeros")
    return wrong


DD = Program(
    name="dd", suite="io", title="dd", summary="zeros written to a new file and brought to the device (fdatasync)",
    measures=(Measure("write", written),), argv=_dd_argv, verify=_dd_wrong,
    parse=lambda output: {"write": [float(seconds) for _, seconds in _COPIED.findall(output)]},
    files=True, disk=written, before=lambda case: (SideCommand(("rm", "-f", "zeros")),),
    software=(Software("dd", "coreutils"),), repeated=True,
    axes=(
        parameter("bs", 65_536, "bytes of a block", least=1, most=1 << 30),
        parameter("count", 1600, "blocks", least=1, most=1 << 30),
    ),
)  # fmt: skip


# fio -----------------------------------------------------------------------------------------------------------------

#: The one file that all jobs work on.
FILE = "data"


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


def _fio_argv(case: Case, times: int) -> Sequence[str]:
    """Requests for `runtime` seconds; of a cold file for one pass at most: a second finds it cached."""
    until = () if _cold(case) else ("--time_based",)
    return job(case, *until, f"--runtime={case['runtime']}", f"--ramp_time={_ramp(case)}", "--invalidate=0")


def verified(case: Case) -> SideCommand:
    """The same writes with a checksum (crc32c) in every block, at most 64 MiB, which are then read back."""
    checks = ("--verify=crc32c", "--do_verify=1", "--verify_fatal=1")
    limit = max(min(case["size"], 64 << 20), case["bs"])
    return SideCommand(explained("verify failed\\|^fio: ", *job(case, f"--io_size={limit}", *checks)), _without_error)


def _job_in(output: str) -> Mapping[str, Any]:
    """The only job: fio may print warnings before its JSON, and after it. ValueError where the JSON is not whole."""
    document, _ = json.JSONDecoder().raw_decode(output[max(output.find("{"), 0) :])
    (only,) = document["jobs"]
    return dict(only)


def _without_error(output: str) -> Mapping[str, float]:
    if error := _job_in(output)["error"]:
        raise ValueError(f"fio met error {error}")
    return {}


def _fio_seconds(output: str) -> Mapping[str, Sequence[float]]:
    """The mean time from one completed request to the next, and the 99th percentile of completion latency."""
    reported = _job_in(output)
    side = max(reported["read"], reported["write"], key=lambda side: float(side["total_ios"]))
    request = side["runtime"] * 1e-3 / side["total_ios"]
    return {"request": [request], "p99": [side["clat_ns"]["percentile"]["99.000000"] * 1e-9]}


def _fio_wrong(case: Case, output: str) -> int:
    """Whether fio met an error, made no request of the kind asked for, ended early, or read a cold file twice."""
    reported = _job_in(output)
    side = reported["write" if "write" in case["rw"] else "read"]
    early, twice = side["runtime"] * 1e-3 < SHORTEST * case["runtime"], False
    if _cold(case):
        left = case["size"] - side["io_bytes"]  # a block that is not whole is left out or completed
        early, twice = early and left >= case["bs"], -left >= case["bs"]
    return sum((reported["error"] != 0, side["total_ios"] < 1, early, twice))


def _fio_ms(output: str) -> int:
    """Milliseconds in which fio made its requests, as it says."""
    reported = _job_in(output)
    return int(max(reported["read"]["runtime"], reported["write"]["runtime"]))


def _fio_notes(output: str) -> Sequence[str]:
    short = (ms := _fio_ms(output)) < 100  # of which fio counts whole ones: it cannot show a difference of 1 %
    return (f"fio counts in ms, and a pass of the file took {ms}: make the size larger",) if short else ()


def _fio_refuses(case: Case) -> str | None:
    """What fio would take and not do, without a word."""
    if case["size"] < case["bs"]:
        return "the size is less than one request (bs)"
    waits = case["ioengine"] == "psync" or (case["ioengine"] == "libaio" and not case["direct"])
    if waits and case["depth"] > 1:
        return f"{case['ioengine']} with direct={case['direct']} makes one request at a time: depth must be 1"
    if case["direct"] and case["cache"] == "warm":
        return "direct=1 passes the page cache by: cache=warm needs direct=0"
    return None


def _fio_lacks(case: Case, folder: Path) -> str | None:
    if _cold(case) and case["rw"] == "randread" and case["bs"] % PAGESIZE:
        return f"cache=cold: a read brings whole pages into the page cache; bs must be a multiple of {PAGESIZE}"
    if case["direct"] and (reason := no_direct(folder)) is not None:
        return reason
    return no_io_uring() if case["ioengine"] == "io_uring" else None


FIO = Program(
    name="fio", suite="io", title="fio", summary="requests to a file: how many a second, and how long the slowest take",
    measures=(
        Measure("request", lambda case: 1, "requests"),
        Measure("p99", lambda case: 1, "requests", shown="time"),
    ),
    argv=_fio_argv, parse=_fio_seconds, verify=_fio_wrong, notes=_fio_notes, refuses=_fio_refuses, lacks=_fio_lacks,
    elapsed=lambda case, output: _fio_ms(output) * 1e-3 + _ramp(case),
    files=True, disk=lambda case: int(case["size"]), prepare=lambda case: (layout(case),),
    before=lambda case: () if case["direct"] else (cached(case["cache"], FILE),),
    # O_DIRECT passes the page cache by; a cold file is measured from the first request on
    unused=lambda case: ("cache",) if case["direct"] else ("ramp",) if _cold(case) else (),
    # with the writing of the file, at so many bytes a second on a device that is neither fast nor slow
    seconds=lambda case: float(case["runtime"] + _ramp(case) + case["size"] / 5e8),
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


# ioping --------------------------------------------------------------------------------------------------------------

_MODES = {"latency": (), "cached": ("-C", "-R"), "direct": ("-D", "-R")}


def _ioping_argv(case: Case, times: int) -> Sequence[str]:
    limit = ("-c", str(case["count"])) if case["mode"] == "latency" else ("-w", str(case["seconds"]))
    return ("ioping", "-B", *_MODES[case["mode"]], *limit, ".")


def _numbers(output: str) -> list[float]:
    """Of the requests without the first: how many, and their time (ns); six more; of all: how many, and the time."""
    if len(values := [float(word) for word in output.split()]) != 10:
        raise ValueError(f"{len(values)} numbers; ioping 1.0 and later print 10")
    return values


def _ioping_seconds(output: str) -> Mapping[str, Sequence[float]]:
    count, time, *_ = _numbers(output)
    return {"request": [time / count * 1e-9]}


def _ioping_wrong(case: Case, output: str) -> int:
    """Requests that are lacking, where so many were asked for; else whether there is none, or it ended early."""
    count = int(_numbers(output)[0])
    if case["mode"] == "latency":
        return max(int(case["count"]) - 1 - count, 0)
    return int(count < 1 or _ioping_elapsed(case, output) < SHORTEST * case["seconds"])


def _ioping_elapsed(case: Case, output: str) -> float:
    """Seconds from the first request to the end, with the pauses between requests."""
    return _numbers(output)[9] * 1e-9


IOPING = Program(
    name="ioping", suite="io", title="ioping",
    summary="time of a read of 4 KiB: from the device, from the page cache, or by O_DIRECT",
    measures=(Measure("request", lambda case: 1, "requests", shown="time"),),
    files=True, argv=_ioping_argv, parse=_ioping_seconds, verify=_ioping_wrong, elapsed=_ioping_elapsed,
    lacks=lambda case, folder: no_direct(folder) if case["mode"] == "direct" else None,
    unused=lambda case: ("seconds",) if case["mode"] == "latency" else ("count",),
    seconds=lambda case: float(case["count"] if case["mode"] == "latency" else case["seconds"]),
    software=(Software("ioping", "ioping", version=("-v",), oldest=(1, 0)),), repeated=True,
    axes=(
        parameter("mode", "latency", "how a request is made", among=tuple(_MODES), kind="how"),
        parameter("count", 10, "requests of a sample in mode latency, one a second", least=2, most=100_000),
        parameter("seconds", 5, "time of a sample in the other modes", least=1, most=86_400),
    ),
)  # fmt: skip

#: By name.
WORKLOADS = {program.name: program for program in (DD, FIO, IOPING)}
