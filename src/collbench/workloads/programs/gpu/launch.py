"""`python -m collbench.workloads.programs.gpu.launch --burst N --times N`: what launching an empty kernel costs.

Prints JSON: `ns`, the times of `burst` launches in three ways; `wrong`, how many launches a counting kernel misses;
`figures`, the median of one launch by the GPU's own clock.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid
from collbench.bindings.gpu.device import Device
from collbench.timing.call import Stage
from collbench.workloads.programs.gpu.opened import OpenGpu, printed, source
from collbench.workloads.programs.gpu.timer import Timer, in_turn, waiting

#: Launches in a graph.
GRAPH = 100

ONE_THREAD = Grid((1, 1), (1, 1))


@dataclass(frozen=True)
class Way:
    """How launches are made: an operation, how many of them are a burst, and whether there is a wait after that."""

    operation: Stage
    burst: int
    waits: bool = False


def ways(device: Device, launch: Stage, burst: int) -> dict[str, Way]:
    """`issue` does not wait for the kernels; `issue_wait` waits for each; `graph` for each graph of them."""
    wait = waiting(device)
    return {
        "issue": Way(launch, burst),
        "issue_wait": Way(in_turn(launch, wait), burst),
        "graph": Way(in_turn(device.capture(launch.python, GRAPH), wait), burst // GRAPH),
    }


def missed(gpu: OpenGpu, counting: Stage, counter: int, burst: int) -> int:
    """Of one burst in each way, with a kernel that counts: launches too few or too many."""
    wrong, counted = 0, np.zeros(1, np.uint32)
    for name, way in ways(gpu.device, counting, burst).items():
        gpu.device.write(counter, np.zeros(1, np.uint32))
        Timer(gpu.device, 1).take(name, way.operation, way.burst, way.waits)
        gpu.device.read(counter, counted)
        wrong += abs(int(counted[0]) - burst)
    return wrong


def run(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """The check first: what is timed does nothing that could be checked."""
    kernels, timer = gpu.compute.compile(source("launch"), {}), Timer(gpu.device, flags.times)
    counter = gpu.device.allocate(4)
    nothing, counting = kernels.launch("nothing", ONE_THREAD), kernels.launch("count", ONE_THREAD, counter)
    timer.warm(nothing, counting)
    wrong = missed(gpu, counting, counter.address, flags.burst)
    for name, way in ways(gpu.device, nothing, flags.burst).items():
        timer.take(name, way.operation, way.burst, way.waits)
    timer.by_events(nothing)
    return timer.result(wrong)


if __name__ == "__main__":
    sys.exit(printed(__doc__, (("burst", int, "launches in a sample"),), run))
