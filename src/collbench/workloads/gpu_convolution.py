"""gpu_convolution: an image filtered along its rows and then along its columns, with 17 taps each."""

from __future__ import annotations

from collbench.workloads._gpu import benchmark
from collbench.workloads.program import Measure, parameter

WORKLOAD = benchmark(
    "convolution", "Separable convolution on a GPU", "an image of float32 filtered with 17 x 17 separable taps",
    parameter("side", 4096, "rows and columns of the image", least=1, most=65_535),
    measures=(Measure("convolve", lambda case: case["side"] ** 2, "pixels"),),
    memory=lambda case: 64 << 22,
)  # fmt: skip
