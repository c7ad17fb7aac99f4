"""deepbench_gemm: DeepBench's products of dense matrices, C = A B + C, by torch or by the cuBLAS that CuPy loads."""

from __future__ import annotations

from collbench.schema.case import Case
from collbench.workloads._deepbench import Gemm, benchmark
from collbench.workloads._gpu import Cupy
from collbench.workloads._torch import Torch
from collbench.workloads.program import parameter
from collbench.workloads.software import Alternatives, Required

LIBRARIES: dict[str, Required] = {"torch": Torch(), "cupy": Cupy()}


def refuses(case: Case) -> str | None:
    if case["blas"] != "cupy":
        return None
    if case["device"] != "cuda":
        return "CuPy computes on GPUs; use device=cuda, or blas=torch"
    return None if case["precision"] == "float32" else "CuPy's gemm has float32; use precision=float32, or blas=torch"


WORKLOAD = benchmark(
    Gemm,
    "DeepBench gemm",
    "products of dense matrices, as training of neural networks has them",
    ("multiply",),
    parameter("blas", "torch", "what calls the BLAS: torch, or on GPUs cupy", among=tuple(LIBRARIES), kind="how"),
    usual="1760x16x1760_NN",
    most=2e9,
    flags=lambda case: ("--blas", case["blas"]),
    refuses=refuses,
    alternatives=Alternatives("blas", LIBRARIES),
)
