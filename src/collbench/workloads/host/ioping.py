"""ioping: the time of a read of 4 KiB at random in a file of 1 MiB.

`latency` reads once a second, after the pages were dropped from the cache; the other modes read without a pause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.workloads.host.files import SHORTEST, no_direct
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.software import Software

_MODES = {"latency": (), "cached": ("-C", "-R"), "direct": ("-D", "-R")}


def argv(case: Case, times: int) -> Sequence[str]:
    limit = ("-c", str(case["count"])) if case["mode"] == "latency" else ("-w", str(case["seconds"]))
    return ("ioping", "-B", *_MODES[case["mode"]], *limit, ".")


def numbers(output: str) -> list[float]:
    """Of the requests without the first: how many, and their time (ns); six more; of all: how many, and the time."""
    if len(values := [float(word) for word in output.split()]) != 10:
        raise ValueError(f"{len(values)} numbers; ioping 1.0 and later print 10")
    return values


def parse(output: str) -> Mapping[str, Sequence[float]]:
    count, time, *_ = numbers(output)
    return {"request": [time / count * 1e-9]}


def verify(case: Case, output: str) -> int:
    """Requests that are lacking, where so many were asked for; else whether there is none, or it ended early."""
    count = int(numbers(output)[0])
    if case["mode"] == "latency":
        return max(int(case["count"]) - 1 - count, 0)
    return int(count < 1 or elapsed(case, output) < SHORTEST * case["seconds"])


def elapsed(case: Case, output: str) -> float:
    """Seconds from the first request to the end, with the pauses between requests."""
    return numbers(output)[9] * 1e-9


WORKLOAD = Program(
    name="ioping", suite="io", title="ioping",
    summary="time of a read of 4 KiB: from the device, from the page cache, or by O_DIRECT",
    measures=(Measure("request", lambda case: 1, "requests", shown="time"),),
    files=True, argv=argv, parse=parse, verify=verify, elapsed=elapsed,
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
