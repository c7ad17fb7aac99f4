"""The workloads of suite `gpu`, and the programs that they start.

`python -m collbench.workloads.gpu.suite NAME`, with the workload's parameters and `--times` as flags, prints JSON:
`ns`, the times of each measure; `wrong`, how much of the result is not what NumPy computes; `figures`, medians by the
GPU's own clock; and `notes`. Where there is no CuPy, no NVRTC or no GPU, it prints the reason, with exit code 77.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

from collbench.bindings.gpu.device import how_to_install
from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.workloads.gpu import kernels, transfers
from collbench.workloads.gpu.device import OpenGpu, opened, printed
from collbench.workloads.gpu.kernels import MOST_PRODUCTS, TILE
from collbench.workloads.gpu.transfers import GRAPH
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.protocol import arguments_of, figures, notes, started, times, wrong
from collbench.workloads.software import Described

#: CuPy with a GPU and NVRTC: tried in a process of its own, because it takes seconds and memory of the GPU. It may take
#: a minute: where no process holds the GPU open, the driver starts it first.
CUPY = Described(
    "CuPy", lambda: started("gpu.device"), lambda output: Library(name="CuPy", **json.loads(output)), limit=60.0,
    absent=lambda: None if importlib.util.find_spec("cupy") else f"CuPy is not installed; {how_to_install()}",
)  # fmt: skip


def benchmark(
    name: str, title: str, summary: str, *axes: Axis, measures: tuple[Measure, ...], **fields: Any
) -> Program:  # fmt: skip
    """A benchmark `gpu_NAME`, which is the program of that name; it gets the parameters, and the size, as flags."""
    flags = (*(axis.name for axis in axes), *(("size",) if "sizes" in fields else ()))
    return Program(
        name=f"gpu_{name}", suite="gpu", title=title, summary=summary, measures=measures, axes=axes,
        argv=lambda case, times: started("gpu.suite", name, **{flag: case[flag] for flag in flags}, times=times),
        parse=times, verify=wrong, figures=figures, notes=notes, software=(CUPY,), **fields,
    )  # fmt: skip


def _histogram_refuses(case: Case) -> str | None:
    if case["bins"] not in (64, 256):
        return "bins must be 64 or 256"
    if case["size"] < 4 or case["size"] % 4 or case["size"] >> 32:
        return "the size must be a multiple of 4 bytes, at least 4 and less than 4G"
    return None


VARIANTS = (
    "simple_copy", "shared_memory_copy", "naive", "coalesced", "optimized", "coarse_grained", "fine_grained", "diagonal"
)  # fmt: skip


#: By name.
WORKLOADS = {program.name: program for program in (
    benchmark(
        "convolution", "Separable convolution on a GPU", "an image of float32 filtered with 17 x 17 separable taps",
        parameter("side", 4096, "rows and columns of the image", least=1, most=65_535),
        measures=(Measure("convolve", lambda case: case["side"] ** 2, "pixels"),),
        memory=lambda case: 64 << 22,
    ),
    benchmark(
        "copy", "Copies of a GPU", "copies from the host (h2d), to the host (d2h), and on the GPU (d2d)",
        parameter("memory", "pinned", "of the host: page-locked or not", among=("pinned", "pageable"), kind="how"),
        measures=tuple(Measure(way, lambda case: case["size"]) for way in ("h2d", "d2h", "d2d")),
        memory=lambda case: 5 * int(case["size"]),  # the buffer, what is sent, what is read back, and the comparison
        refuses=lambda case: None if case["size"] >= 1 else "the size must be at least 1 byte",
        sizes=("32M", "256M"),
    ),
    benchmark(
        "gemm", "Matrix product on a GPU", "C = A B of float32 by cuBLAS, TF32 off; A is m x k, B is k x n",
        parameter("m", 4096, "rows of A and C", least=1, most=1_000_000),
        parameter("n", 4096, "columns of B and C", least=1, most=1_000_000),
        parameter("k", 4096, "columns of A, rows of B", least=1, most=MOST_PRODUCTS),
        measures=(Measure("multiply", lambda case: 2.0 * case["m"] * case["n"] * case["k"], "flop"),),
        memory=lambda case: 512 << 20,
    ),
    benchmark(
        "histogram", "Histogram on a GPU", "the histogram of bytes, in 64 or 256 bins",
        parameter("bins", 256, "bins of the histogram: 64 or 256"),
        measures=(Measure("histogram", lambda case: case["size"]),),
        memory=lambda case: 2 * int(case["size"]),
        refuses=_histogram_refuses, sizes=("64M",),
    ),
    benchmark(
        "launch", "Launches of a kernel", "launches of an empty kernel: issued, each waited for, and in graphs of 100",
        parameter("burst", 1000, "launches in a sample", least=GRAPH, most=1_000_000),
        measures=tuple(Measure(way, lambda case: case["burst"], "launches")
                       for way in ("issue", "issue_wait", "graph")),
        refuses=lambda case: (
            f"burst must be a multiple of {GRAPH}, the launches of a graph" if case["burst"] % GRAPH else None),
    ),
    benchmark(
        "transpose", "Transpose on a GPU", "a square matrix of float32 transposed, by eight kernels",
        parameter("side", 8192, "rows and columns", least=TILE, most=32_768),
        parameter("variant", "optimized", "which kernel; all: each", among=VARIANTS, groups={"all": VARIANTS},
                  kind="how"),
        measures=(Measure("transpose", lambda case: 8 * case["side"] ** 2),),  # bytes read and written
        memory=lambda case: 20 * case["side"] ** 2,
        refuses=lambda case: f"the side must be a multiple of {TILE}" if case["side"] % TILE else None,
    ),
)}  # fmt: skip

RUNS: dict[str, Callable[[OpenGpu, argparse.Namespace], dict[str, Any]]] = {
    "convolution": kernels.convolution, "copy": transfers.copy, "gemm": kernels.gemm, "histogram": kernels.histogram,
    "launch": transfers.launch, "transpose": kernels.transpose,
}  # fmt: skip


def main() -> int:
    """Print what the program of the name in the first argument finds; returns the exit code."""
    flags = arguments_of(__doc__, {name: WORKLOADS[f"gpu_{name}"] for name in RUNS})
    return printed(lambda: RUNS[flags.name](opened(), flags))


if __name__ == "__main__":
    sys.exit(main())
