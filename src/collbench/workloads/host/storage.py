"""Programs of others that make requests to storage: dd, fio and ioping.

dd writes zeros block by block to a new file, and brings them to the device before it ends (fdatasync). Storage that
compresses zeros stores nothing of them, and its case fails.

fio makes requests at random or in sequence, through the system calls of one of its engines. Each job has a file of its
own: in one file, jobs would wait for the lock of its inode. A job is a thread: as a process it would leave fio's
process group, and go on when that is ended.

ioping reads 4 KiB at random in a file of 1 MiB: in mode `latency` once a second, after the pages were dropped from the
cache, in the other modes without a pause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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

#: By the name of a measure, what fio calls the percentile.
PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}

#: The first version that flushes only after writes: earlier ones flush again after each read, and, where the engine
#: flushes asynchronously (io_uring), again until the first flush is over.
FLUSHES = Software("fio", "fio", oldest=(3, 38))


def directions(case: Case) -> list[str]:
    return [name for name in ("read", "write") if name in case["rw"] or case["rw"].endswith("rw")]


def _mixed(case: Case) -> bool:
    return len(directions(case)) > 1


def _flushes(case: Case) -> bool:
    return bool(case["fsync"]) and "write" in directions(case)


def _jobs(case: Case) -> tuple[str, ...]:
    """Each with a file of its own, reported together."""
    return ("--filename_format=data.$jobnum", f"--size={case['size'] // case['jobs']}", f"--numjobs={case['jobs']}",
            "--group_reporting", "--thread", "--output-format=json")  # fmt: skip


def job(case: Case, *options: str) -> tuple[str, ...]:
    """The requests of the case, without what ends them."""
    share = (f"--rwmixread={case['read_percent']}",) if _mixed(case) else ()
    flushes = (f"--fsync={case['fsync']}",) if _flushes(case) else ()
    return (
        "fio", "--name=collbench", f"--rw={case['rw']}", *share, f"--bs={case['bs']}", *flushes, *_jobs(case),
        f"--ioengine={case['ioengine']}", f"--iodepth={case['depth']}", f"--direct={case['direct']}", *options,
    )  # fmt: skip


def layout(case: Case) -> SideCommand:
    """Write all files to their last byte, which requests of one size may leave out, and bring them to the device."""
    bs = min(1 << 20, case["size"] // case["jobs"])
    fio = ("fio", "--name=layout", "--rw=read", "--create_only=1", f"--bs={bs}", *_jobs(case))
    return SideCommand(fio, _without_error)


def _cold(case: Case) -> bool:
    return bool(not case["direct"] and case["cache"] == "cold")


def _ramp(case: Case) -> int:
    """Seconds before the measured ones: none if cold."""
    return 0 if _cold(case) else int(case["ramp"])


def _fio_argv(case: Case, times: int) -> Sequence[str]:
    """Requests for `runtime` seconds; of cold files for one pass at most: a second finds them cached."""
    until = () if _cold(case) else ("--time_based",)
    return job(case, *until, f"--runtime={case['runtime']}", f"--ramp_time={_ramp(case)}", "--invalidate=0")


def verified(case: Case) -> SideCommand:
    """The same writes with a checksum (crc32c) in every block, at most 64 MiB, which are then read back."""
    writes = case.having(rw="randwrite" if "rand" in case["rw"] else "write")
    checks = ("--verify=crc32c", "--do_verify=1", "--verify_fatal=1")
    limit = max(min(case["size"], 64 << 20) // case["jobs"], case["bs"])
    return SideCommand(explained("verify failed\\|^fio: ", *job(writes, f"--io_size={limit}", *checks)), _without_error)


def _job_in(output: str) -> Mapping[str, Any]:
    """All jobs together: fio may print warnings before its JSON, and after it. ValueError: the JSON is not whole."""
    document, _ = json.JSONDecoder().raw_decode(output[max(output.find("{"), 0) :])
    (only,) = document["jobs"]
    return dict(only)


def _without_error(output: str) -> Mapping[str, float]:
    if error := _job_in(output)["error"]:
        raise ValueError(f"fio met error {error}")
    return {}


def _fio_seconds(output: str) -> Mapping[str, Sequence[float]]:
    """By direction the mean time from one completed request to the next, and percentiles of completion latency."""
    reported, seconds = _job_in(output), dict[str, Sequence[float]]()
    sides = {name: reported[name] for name in ("read", "write") if reported[name]["total_ios"]}
    for name, side in sides.items():
        seconds[name if len(sides) > 1 else "request"] = [side["runtime"] * 1e-3 / side["total_ios"]]
        seconds |= _percentiles(f"{name}_" * (len(sides) > 1), side["clat_ns"])
    return seconds | (_percentiles("sync_", reported["sync"]["lat_ns"]) if _syncs(reported) else {})


def _percentiles(prefix: str, latency: Mapping[str, Any]) -> dict[str, Sequence[float]]:
    return {f"{prefix}{name}": [latency["percentile"][key] * 1e-9] for name, key in PERCENTILES.items()}


def _syncs(reported: Mapping[str, Any]) -> int:
    return int(reported.get("sync", {}).get("total_ios", 0))


def _fio_wrong(case: Case, output: str) -> int:
    """Whether fio met an error, lacks requests of a kind, ended early, read cold files twice, or flushed too often."""
    reported = _job_in(output)
    sides = [reported[name] for name in directions(case)]
    early, twice = max(side["runtime"] for side in sides) * 1e-3 < SHORTEST * case["runtime"], False
    if _cold(case):
        left = case["size"] - sum(side["io_bytes"] for side in sides)
        slack = case["jobs"] * case["bs"]  # of each file, a block that is not whole is left out or completed
        early, twice = early and left >= slack, -left >= slack
    none, often = any(side["total_ios"] < 1 for side in sides), False
    if _flushes(case):
        expected = reported["write"]["total_ios"] / case["fsync"]  # a job may leave one out at each end
        often = abs(_syncs(reported) - expected) > 2 * case["jobs"] + 0.1 * expected
    return sum((reported["error"] != 0, none, early, twice, often))


def _fio_ms(output: str) -> int:
    """Milliseconds in which fio made its requests, as it says."""
    reported = _job_in(output)
    return int(max(reported["read"]["runtime"], reported["write"]["runtime"]))


def _fio_notes(output: str) -> Sequence[str]:
    notes, reported = list[str](), _job_in(output)
    if (ms := _fio_ms(output)) < 100:  # of which fio counts whole ones: it cannot show a difference of 1 %
        notes.append(f"fio counts in ms, and a pass of the file took {ms}: make the size larger")
    if 0 < min(filter(None, (reported["read"]["total_ios"], reported["write"]["total_ios"], _syncs(reported)))) < 1000:
        notes.append("p99.9 of fewer than 1000 requests is that of the slowest one: make the runtime longer")
    return notes


def _fio_refuses(case: Case) -> str | None:
    """What fio would take and not do, without a word."""
    if case["size"] % case["jobs"]:
        return "each job has a file of its own, all of one size: the size must be a multiple of jobs"
    if case["size"] // case["jobs"] < case["bs"]:
        return "the size, divided by jobs, is less than one request (bs)"
    waits = case["ioengine"] == "psync" or (case["ioengine"] == "libaio" and not case["direct"])
    if waits and case["depth"] > 1:
        return f"{case['ioengine']} with direct={case['direct']} makes one request at a time: depth must be 1"
    if case["direct"] and case["cache"] == "warm":
        return "direct=1 passes the page cache by: cache=warm needs direct=0"
    if _cold(case) and case["rw"] == "rw":  # of each direction fio keeps its own place in the file
        return "rw=rw reads what it has just written, from the page cache: cache=cold needs rw=randrw"
    return None


def _fio_unused(case: Case) -> Sequence[str]:
    """O_DIRECT passes the page cache by; cold files are measured from the first request on."""
    used = {"read_percent": _mixed(case), "fsync": _flushes(case), "cache": not case["direct"], "ramp": not _cold(case)}
    return [name for name, effective in used.items() if not effective]


def _fio_lacks(case: Case, folder: Path) -> str | None:
    asynchronous = case["ioengine"] == "io_uring" and case["depth"] > 1
    if _flushes(case) and (_mixed(case) or asynchronous) and (old := FLUSHES.missing()) is not None:
        return f"fsync={case['fsync']}: {old}; earlier ones flush more often where requests are mixed or asynchronous"
    if _cold(case) and case["rw"] in ("randread", "randrw") and case["bs"] % PAGESIZE:
        return f"cache=cold: a read brings whole pages into the page cache; bs must be a multiple of {PAGESIZE}"
    if case["direct"] and (reason := no_direct(folder)) is not None:
        return reason
    return no_io_uring() if case["ioengine"] == "io_uring" else None


def _measures(name: str, prefix: str, applies: Callable[[Case], bool]) -> Iterator[Measure]:
    """Of one direction: requests a second, or bytes a second where they are in sequence, and percentiles."""
    if name:
        yield Measure(name, lambda case: 1, "requests", applies=lambda case: applies(case) and "rand" in case["rw"])
        yield Measure(name, lambda case: case["bs"], applies=lambda case: applies(case) and "rand" not in case["rw"])
    for percentile in PERCENTILES:
        yield Measure(f"{prefix}{percentile}", lambda case: 1, "requests", shown="time", applies=applies)


FIO = Program(
    name="fio", suite="io", title="fio", summary="requests to files: how many a second, and how long the slowest take",
    measures=(
        *_measures("request", "", lambda case: not _mixed(case)),
        *_measures("read", "read_", _mixed), *_measures("write", "write_", _mixed), *_measures("", "sync_", _flushes),
    ),
    argv=_fio_argv, parse=_fio_seconds, verify=_fio_wrong, notes=_fio_notes, refuses=_fio_refuses, lacks=_fio_lacks,
    elapsed=lambda case, output: _fio_ms(output) * 1e-3 + _ramp(case),
    files=True, disk=lambda case: int(case["size"]), prepare=lambda case: (layout(case),),
    before=lambda case: () if case["direct"] else (
        cached(case["cache"], *(f"data.{number}" for number in range(case["jobs"]))),),
    unused=_fio_unused,
    # with the writing of the file, at so many bytes a second on a device that is neither fast nor slow
    seconds=lambda case: float(case["runtime"] + _ramp(case) + case["size"] / 5e8),
    after=lambda case: (verified(case),) if "write" in directions(case) else (),
    software=(Software("fio", "fio", oldest=(3, 0)),), repeated=True, sizes=("1G",),
    axes=(
        parameter("rw", "randread", "which requests", among=("randread", "randwrite", "randrw", "read", "write", "rw")),
        parameter("read_percent", 50, "reads among mixed requests (rw, randrw), in percent", least=1, most=99),
        parameter("fsync", 0, "writes of a job before each fsync; 0: none", least=0, most=1 << 30),
        parameter("bs", 4096, "bytes of a request", least=512, most=1 << 30),
        parameter("depth", 1, "requests of a job in flight", least=1, most=65_536),
        parameter("jobs", 1, "threads, each with a file of its own", least=1, most=4096),
        parameter("ioengine", "psync", "how they are made", among=("psync", "libaio", "io_uring"), kind="how"),
        parameter("direct", 1, "1: by O_DIRECT, 0: through the page cache", least=0, most=1, kind="how"),
        parameter("cache", "cold", "of the files, before a sample", among=("cold", "warm"), kind="how"),
        parameter("runtime", 10, "seconds of a sample; of cold files one pass at most", least=1, most=86_400),
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
