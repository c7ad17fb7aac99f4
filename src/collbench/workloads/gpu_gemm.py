"""gpu_gemm: the product of two matrices of float32 by cuBLAS, without TF32."""

from __future__ import annotations

from collbench.schema.case import Case
from collbench.workloads._gpu import benchmark
from collbench.workloads.program import Measure, parameter

#: So many products of small whole numbers have a sum that float32 holds (`programs/gpu/gemm.py`).
MOST_PRODUCTS = 16_000_000


def flop(case: Case) -> float:
    """A multiplication and an addition for each product."""
    return 2.0 * float(case["m"]) * float(case["n"]) * float(case["k"])


WORKLOAD = benchmark(
    "gemm", "Matrix product on a GPU", "C = A B of float32 by cuBLAS, TF32 off; A is m x k, B is k x n",
    parameter("m", 4096, "rows of A and C", least=1, most=1_000_000),
    parameter("n", 4096, "columns of B and C", least=1, most=1_000_000),
    parameter("k", 4096, "columns of A, rows of B", least=1, most=MOST_PRODUCTS),
    measures=(Measure("multiply", flop, "flop"),),
    memory=lambda case: 512 << 20,
)  # fmt: skip
