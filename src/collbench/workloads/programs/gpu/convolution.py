"""`python -m collbench.workloads.programs.gpu.convolution --side N --times N`: filter an image, rows and then columns.

Prints JSON: `ns`, the time of each; `wrong`, pixels of 64 rows that are not what NumPy computes, after either pass;
`figures`, the median by the GPU's own clock.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid
from collbench.collectives.row import Array
from collbench.workloads.programs.gpu.opened import OpenGpu, Rows, printed, source
from collbench.workloads.programs.gpu.timer import Timer, in_turn

#: As in convolution.cu.
TAPS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2)
RADIUS, SPAN, WIDTH, LINES, HEIGHT = 8, 256, 32, 8, 64

#: Values of pixels are below this: every sum of products is a whole number below 2^24, which float32 holds.
LEVELS = 16

#: Rows of the image that are made from one seed.
BAND = 64


def image(side: int, first: int, last: int) -> Array:
    """Rows `first` to before `last` of a random image of whole numbers; zeros outside of it."""
    rows = np.zeros((last - first, side), np.float32)
    for band in range(max(first, 0) // BAND, -(-min(last, side) // BAND)):
        begin, end = band * BAND, min(band * BAND + BAND, side)
        made = np.random.default_rng(band).integers(0, LEVELS, (end - begin, side), np.uint8)
        into, out_of = max(begin, first), min(end, last)
        rows[into - first : out_of - first] = made[into - begin : out_of - begin]
    return rows


def filtered(padded: Array) -> Array:
    """Along the last axis, [n, m + 2 RADIUS] to [n, m]: the sum over taps of TAPS[RADIUS + t] x[i - t]."""
    length = padded.shape[1] - 2 * RADIUS
    result = np.zeros((len(padded), length), padded.dtype)
    for i, tap in enumerate(TAPS):
        result += tap * padded[:, 2 * RADIUS - i : 2 * RADIUS - i + length]
    return result


def checked_rows(side: int) -> Iterator[tuple[int, int]]:
    """64 of them: the first, the last, and some where two blocks of the grid meet; of a small image all."""
    if side <= 2 * HEIGHT:
        yield 0, side
        return
    middle = side // 2 // HEIGHT * HEIGHT
    yield from ((0, 16), (middle - 16, middle + 16), (side - 16, side))


def wrong_pixels(side: int, after_rows: Rows, after_columns: Rows) -> int:
    """Of both passes."""
    wrong = 0
    for first, last in checked_rows(side):
        by_rows = filtered(np.pad(image(side, first - RADIUS, last + RADIUS), ((0, 0), (RADIUS, RADIUS))))
        wrong += int(np.count_nonzero(after_rows.read(first, last) != by_rows[RADIUS:-RADIUS]))
        wrong += int(np.count_nonzero(after_columns.read(first, last) != filtered(by_rows.T).T))
    return wrong


def run(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """A sample is both passes."""
    device, side = gpu.device, flags.side
    given, between, result = (Rows(device, side, side) for _ in range(3))
    for first, last in given.parts():
        given.write(first, image(side, first, last))
    kernels = gpu.compute.compile(source("convolution"), {})
    rows = Grid((-(-side // SPAN), side), (SPAN, 1))
    columns = Grid((-(-side // WIDTH), -(-side // HEIGHT)), (WIDTH, LINES))
    operation = in_turn(
        kernels.launch("rows", rows, given, between, side), kernels.launch("columns", columns, between, result, side)
    )
    timer = Timer(device, flags.times)
    timer.warm(operation)
    between.spoil()
    result.spoil()
    timer.take("convolve", operation)
    wrong = wrong_pixels(side, between, result)
    timer.by_events(operation)
    return timer.result(wrong)


if __name__ == "__main__":
    sys.exit(printed(__doc__, (("side", int, "rows and columns of the image"),), run))
