"""`python -m collbench.workloads.programs.gpu.histogram --size BYTES --bins B --times N`: histograms of bytes on a GPU.

Prints JSON: `ns`, the time of each; `wrong`, bins that are not what NumPy counts; `figures`, the median by the GPU's
own clock.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid
from collbench.collectives.row import Array
from collbench.workloads.programs.gpu.opened import OpenGpu, printed, source
from collbench.workloads.programs.gpu.timer import Timer, in_turn

THREADS, MOST_BLOCKS = 256, 1024

#: Bytes that NumPy counts at once.
AT_ONCE = 16 << 20


def counted(values: Array, bins: int) -> Array:
    """The histogram by NumPy: each bin holds the same number of neighbouring values."""
    counts = np.zeros(256, np.int64)
    for first in range(0, len(values), AT_ONCE):  # of which NumPy makes 64-bit integers
        counts += np.bincount(values[first : first + AT_ONCE], minlength=256)
    binned: Array = counts.reshape(bins, -1).sum(axis=1)
    return binned


def run(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """Two kernels: the blocks' histograms, and their sum."""
    device, size, bins = gpu.device, flags.size, flags.bins
    values = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    words = size // 4
    blocks = min(MOST_BLOCKS, -(-words // THREADS))
    data, partial, result = device.allocate(size), device.allocate(4 * bins * blocks), device.allocate(4 * bins)
    device.write(data.address, values)
    kernels = gpu.compute.compile(source("histogram"), {"BINS": bins, "THREADS": THREADS})
    operation = in_turn(
        kernels.launch("of_blocks", Grid((blocks, 1), (THREADS, 1)), data, partial, words),
        kernels.launch("of_all", Grid((bins, 1), (THREADS, 1)), partial, result, blocks),
    )
    timer = Timer(device, flags.times)
    timer.warm(operation)
    for memory, length in ((partial, bins * blocks), (result, bins)):
        device.write(memory.address, np.full(length, 2**32 - 1, np.uint32))
    timer.take("histogram", operation)
    found = np.empty(bins, np.uint32)
    device.read(result.address, found)
    timer.by_events(operation)
    return timer.result(int(np.count_nonzero(found != counted(values, bins))))


if __name__ == "__main__":
    sys.exit(printed(__doc__, (("size", int, "bytes, a multiple of 4"), ("bins", int, "64 or 256")), run))
