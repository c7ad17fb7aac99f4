"""gpu_transpose: a matrix transposed in each of the ways of NVIDIA's sample, two of which only copy it."""

from __future__ import annotations

from collbench.schema.case import Case
from collbench.workloads._gpu import benchmark
from collbench.workloads.program import Measure, parameter

VARIANTS = (
    "simple_copy", "shared_memory_copy", "naive", "coalesced", "optimized", "coarse_grained", "fine_grained", "diagonal"
)  # fmt: skip

#: Each block of threads takes a tile of so many rows and columns.
TILE = 16


def refuses(case: Case) -> str | None:
    return f"the side must be a multiple of {TILE}" if case["side"] % TILE else None


WORKLOAD = benchmark(
    "transpose", "Transpose on a GPU", "a square matrix of float32 transposed, by eight kernels",
    parameter("side", 8192, "rows and columns", least=TILE, most=32_768),
    parameter("variant", "optimized", "which kernel; all: each", among=VARIANTS, groups={"all": VARIANTS}, kind="how"),
    measures=(Measure("transpose", lambda case: 8 * case["side"] ** 2),),  # bytes read and written
    memory=lambda case: 20 * case["side"] ** 2, refuses=refuses,
)  # fmt: skip
