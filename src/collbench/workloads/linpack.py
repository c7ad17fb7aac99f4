"""linpack: solve a dense system of equations by LAPACK's dgesv.

This is what Intel's shared-memory LINPACK does: the order of the matrix and its leading dimension vary, and there is
neither a block size nor a process grid, as HPL has them.
"""

from __future__ import annotations

from collbench.schema.case import Case
from collbench.workloads._blas import benchmark
from collbench.workloads.program import Measure, parameter

#: The largest scaled residual of a right result: the threshold in HPL's input.
RESIDUAL = 16.0


def flop(case: Case) -> float:
    """Of an elimination and two triangular solutions, as HPL counts them."""
    n: int = case["n"]
    return 2 / 3 * n**3 + 3 / 2 * n**2


def lda(case: Case) -> int:
    return case["lda"] or case["n"]  # type: ignore[no-any-return]


def refuses(case: Case) -> str | None:
    n = case["n"]
    if lda(case) < n:
        return f"the leading dimension must be at least n; use lda=0 or lda={n}"
    if lda(case) != n and case["blas"] == "mkl":
        return f"mkl is called through torch, which has no leading dimension; use lda=0 or lda={n}"
    return None


WORKLOAD = benchmark(
    "linpack",
    "LINPACK",
    "solve a dense system of equations by LAPACK's dgesv",
    Measure("solve", flop, "flop"),
    parameter("n", 2000, "order of the matrix", least=1, most=200_000),
    parameter("lda", 0, "leading dimension of the matrix; 0: n", least=0, most=200_000),
    figure="residual",
    most=lambda case: RESIDUAL,
    flags=lambda case: ("--lda", str(lda(case))),
    memory=lambda case: 8 * case["n"] * lda(case) * (2 if case["blas"] == "mkl" else 1),  # torch solves in a copy
    refuses=refuses,
)
