"""gpu_copy: copies between host and GPU, and within the GPU's memory."""

from __future__ import annotations

from collbench.workloads._gpu import benchmark
from collbench.workloads.program import Measure, parameter

WORKLOAD = benchmark(
    "copy", "Copies of a GPU", "copies from the host (h2d), to the host (d2h), and on the GPU (d2d)",
    parameter("memory", "pinned", "of the host: page-locked or not", among=("pinned", "pageable"), kind="how"),
    measures=tuple(Measure(way, lambda case: case["size"]) for way in ("h2d", "d2h", "d2d")),
    memory=lambda case: 5 * int(case["size"]),  # the buffer, what is sent, what is read back, and the comparison
    refuses=lambda case: None if case["size"] >= 1 else "the size must be at least 1 byte",
    sizes=("32M", "256M"),
)  # fmt: skip
