"""deepbench_conv: DeepBench's convolutions by torch: forward, and the gradients of the images and of the filters."""

from __future__ import annotations

from collbench.workloads._deepbench import Conv, benchmark
from collbench.workloads._torch import Torch

WORKLOAD = benchmark(
    Conv,
    "DeepBench conv",
    "convolutions of networks for speech and images, forward and backward",
    ("forward", "backward_data", "backward_weights"),
    usual="7x7x512_n8_k512_3x3_s1_p1",
    most=2e9,
    software=(Torch(),),
)
