"""`python -m collbench.workloads.programs.gpu.transpose --side N --variant NAME --times N`: transpose a matrix.

Prints JSON: `ns`, the time of each; `wrong`, elements that are elsewhere than they should be; `figures`, the median by
the GPU's own clock.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid, Kernels
from collbench.collectives.row import Array
from collbench.timing.call import Stage
from collbench.workloads.programs.gpu.opened import OpenGpu, Rows, printed, source
from collbench.workloads.programs.gpu.timer import Timer

#: As in NVIDIA's sample.
TILE, ROWS = 16, 16

#: What is no transpose by itself, and what makes one of it.
OTHER_HALF = {"coarse_grained": "fine_grained", "fine_grained": "coarse_grained"}
COPIES = ("simple_copy", "shared_memory_copy")


def matrix(side: int) -> Array:
    """Neighbours differ, and so do rows: integers below 2^24, which float32 holds."""
    numbers = np.arange(side * side, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(8)
    return numbers.astype(np.float32).reshape(side, side)


def placed(values: Array, variant: str) -> Array:
    """Where every element should be."""
    side = len(values)
    tiles = values.reshape(side // TILE, TILE, side // TILE, TILE)  # row of tiles, row in it, column of tiles, column
    order = {"coarse_grained": (2, 1, 0, 3), "fine_grained": (0, 3, 2, 1)} | dict.fromkeys(COPIES, (0, 1, 2, 3))
    return tiles.transpose(order.get(variant, (2, 3, 0, 1))).reshape(side, side)


def misplaced(found: Rows, right: Array) -> int:
    """Elements that differ."""
    return sum(int(np.count_nonzero(found.read(first, last) != right[first:last])) for first, last in found.parts())


def launched(kernels: Kernels, variant: str, source: Rows, target: Rows) -> Stage:
    grid = Grid((source.rows // TILE,) * 2, (TILE, ROWS))
    return kernels.launch(variant, grid, source, target, source.rows)


def run(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """The last timed result is checked; of half a transpose also what the other half makes of it."""
    device, side, variant = gpu.device, flags.side, flags.variant
    given, result = Rows(device, side, side), Rows(device, side, side)
    values = matrix(side)
    given.write(0, values)
    kernels = gpu.compute.compile(source("transpose"), {"TILE": TILE, "ROWS": ROWS})
    operation = launched(kernels, variant, given, result)
    timer = Timer(device, flags.times)
    timer.warm(operation)
    result.spoil()
    timer.take("transpose", operation)
    wrong = misplaced(result, placed(values, variant))
    if variant in OTHER_HALF:
        whole = Rows(device, side, side)
        whole.spoil()
        timer.warm(launched(kernels, OTHER_HALF[variant], result, whole))
        wrong += misplaced(whole, values.T)
    timer.by_events(operation)
    return timer.result(wrong)


if __name__ == "__main__":
    sys.exit(printed(__doc__, (("side", int, "rows and columns"), ("variant", str, "which kernel")), run))
