"""gpu_histogram: how often each value occurs among bytes, counted in shared memory."""

from __future__ import annotations

from collbench.schema.case import Case
from collbench.workloads._gpu import benchmark
from collbench.workloads.program import Measure, parameter


def refuses(case: Case) -> str | None:
    if case["bins"] not in (64, 256):
        return "bins must be 64 or 256"
    if case["size"] < 4 or case["size"] % 4 or case["size"] >> 32:
        return "the size must be a multiple of 4 bytes, at least 4 and less than 4G"
    return None


WORKLOAD = benchmark(
    "histogram", "Histogram on a GPU", "the histogram of bytes, in 64 or 256 bins",
    parameter("bins", 256, "bins of the histogram: 64 or 256"),
    measures=(Measure("histogram", lambda case: case["size"]),),
    memory=lambda case: 2 * int(case["size"]),
    refuses=refuses, sizes=("64M",),
)  # fmt: skip
