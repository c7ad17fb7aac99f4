"""dgemm: multiply two square matrices by a BLAS: what its kernel for this processor can reach at most."""

from __future__ import annotations

from collbench.workloads._blas import benchmark
from collbench.workloads.program import Measure, parameter

#: Relative errors of sums of n products are below n times this; there are three such sums on one side or the other.
EPS = 2.0**-52

WORKLOAD = benchmark(
    "dgemm",
    "DGEMM",
    "multiply two square matrices of doubles by a BLAS",
    Measure("multiply", lambda case: 2.0 * case["n"] ** 3, "flop"),
    parameter("n", 2000, "order of the matrices", least=1, most=200_000),
    figure="relative error",
    most=lambda case: 2 * case["n"] * EPS,
    memory=lambda case: 3 * 8 * case["n"] ** 2,
)
