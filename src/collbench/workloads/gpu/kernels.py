"""Programs of suite `gpu` that compute: convolution, matrix product, histogram and transpose, each with its check."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid, Kernels
from collbench.collectives.row import Array
from collbench.timing.loop import Stage
from collbench.workloads.gpu.device import DeviceRows, OpenGpu, Timer, in_turn

#: Of the convolution, as in convolution.cu.
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
        values = np.random.default_rng(band).integers(0, LEVELS, (end - begin, side), np.uint8)
        into, out_of = max(begin, first), min(end, last)
        rows[into - first : out_of - first] = values[into - begin : out_of - begin]
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


def wrong_pixels(side: int, after_rows: DeviceRows, after_columns: DeviceRows) -> int:
    """Of both passes."""
    wrong = 0
    for first, last in checked_rows(side):
        by_rows = filtered(np.pad(image(side, first - RADIUS, last + RADIUS), ((0, 0), (RADIUS, RADIUS))))
        wrong += int(np.count_nonzero(after_rows.read(first, last) != by_rows[RADIUS:-RADIUS]))
        wrong += int(np.count_nonzero(after_columns.read(first, last) != filtered(by_rows.T).T))
    return wrong


def convolution(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """A sample is both passes, along rows and columns; `wrong` are pixels of 64 rows that NumPy computes otherwise."""
    side = flags.side
    image_of, between, result = (DeviceRows(gpu.device, side, side) for _ in range(3))
    for first, last in image_of.parts():
        image_of.write(first, image(side, first, last))
    kernels = gpu.compiled("convolution")
    rows = Grid((-(-side // SPAN), side), (SPAN, 1))
    columns = Grid((-(-side // WIDTH), -(-side // HEIGHT)), (WIDTH, LINES))
    operation = in_turn(
        kernels.launch("rows", rows, image_of, between, side), kernels.launch("columns", columns, between, result, side)
    )

    def spoil() -> None:
        between.spoil()
        result.spoil()

    timer = Timer(gpu.device, flags.times)
    return timer.sampled("convolve", operation, spoil, lambda: wrong_pixels(side, between, result))


#: A whole number that float32 holds and TF32, whose significand has 11 bits, does not.
ODD = 2**12 + 1

#: So many products of small whole numbers have a sum that float32 holds.
MOST_PRODUCTS = 16_000_000

#: The largest element of the matrices, and bounds of whole numbers that float32 holds.
MOST, EXACT = 15, 2**24

#: Elements of the vectors by which the product is checked; none is 0, which would hide a wrong column.
WEIGHTS = np.array([w for w in range(-8, 9) if w])


def largest(k: int) -> int:
    """The largest magnitude of elements for which all sums of k products are exact; 0 where there is none."""
    return max((a for a in range(1, MOST + 1) if k * a * a + ODD * a < EXACT), default=0)


def filled(matrix: DeviceRows, largest: int, seed: int, vectors: Array, odd_row: bool = False) -> Array:
    """Write random whole numbers, of which none is 0; returns the product with the vectors, [rows, vectors]."""
    random, products = np.random.default_rng(seed), []
    for first, last in matrix.parts():
        signs = random.integers(0, 2, (last - first, matrix.columns), np.int8) * 2 - 1
        values = (random.integers(1, largest + 1, signs.shape, np.int8) * signs).astype(np.float32)
        if odd_row and first == 0:
            values[0] = signs[0].astype(np.float32) * ODD
        matrix.write(first, values)
        products.append(values.astype(np.float64) @ vectors)
    return np.concatenate(products)


def wrong_rows(product: DeviceRows, vectors: Array, right: Array) -> int:
    """Rows whose product with the vectors is another. All numbers are whole ones, and all sums are exact in float64.

    After R. Freivalds, "Probabilistic Machines Can Use Less Running Time", IFIP Congress 1977.
    """
    wrong = 0
    for first, last in product.parts():
        rows = product.read(first, last).astype(np.float64) @ vectors
        wrong += int(np.count_nonzero((rows != right[first:last]).any(axis=1)))
    return wrong


def gemm(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """The product of float32 matrices, without TF32; `wrong` are rows for which (A B) r is not A (B r)."""
    device, m, n, k = gpu.device, flags.m, flags.n, flags.k
    a, b, c = DeviceRows(device, m, k), DeviceRows(device, k, n), DeviceRows(device, m, n)
    vectors = np.random.default_rng(0).choice(WEIGHTS, (n, 2)).astype(np.float64)
    right = filled(a, largest(k), 2, filled(b, largest(k), 1, vectors, odd_row=True))
    operation, timer = gpu.compute.sgemm(m, n, k, a, b, c), Timer(device, flags.times)
    check = lambda: wrong_rows(c, vectors, right)  # noqa: E731
    return timer.sampled("multiply", operation, c.spoil, check, "float32 by cuBLAS, TF32 off")


#: Of the histogram.
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


def histogram(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """Two kernels: the blocks' histograms, and their sum; `wrong` are bins that NumPy counts otherwise."""
    device, size, bins = gpu.device, flags.size, flags.bins
    values = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    words = size // 4
    blocks = min(MOST_BLOCKS, -(-words // THREADS))
    data, partial, result = device.allocate(size), device.allocate(4 * bins * blocks), device.allocate(4 * bins)
    device.write(data.address, values)
    kernels = gpu.compiled("histogram", BINS=bins, THREADS=THREADS)
    operation = in_turn(
        kernels.launch("of_blocks", Grid((blocks, 1), (THREADS, 1)), data, partial, words),
        kernels.launch("of_all", Grid((bins, 1), (THREADS, 1)), partial, result, blocks),
    )

    def spoil() -> None:
        for memory, length in ((partial, bins * blocks), (result, bins)):
            device.write(memory.address, np.full(length, 2**32 - 1, np.uint32))

    def check() -> int:
        counts = np.empty(bins, np.uint32)
        device.read(result.address, counts)
        return int(np.count_nonzero(counts != counted(values, bins)))

    return Timer(device, flags.times).sampled("histogram", operation, spoil, check)


#: Of the transpose, as in NVIDIA's sample: each block of threads takes a tile of so many rows and columns.
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


def misplaced(target: DeviceRows, right: Array) -> int:
    """Elements that differ."""
    return sum(int(np.count_nonzero(target.read(first, last) != right[first:last])) for first, last in target.parts())


def launched(kernels: Kernels, variant: str, source: DeviceRows, target: DeviceRows) -> Stage:
    grid = Grid((source.rows // TILE,) * 2, (TILE, ROWS))
    return kernels.launch(variant, grid, source, target, source.rows)


def transpose(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """`wrong` are elements that are misplaced; of half a transpose also in what the other half makes of it."""
    device, side, variant = gpu.device, flags.side, flags.variant
    original, result = DeviceRows(device, side, side), DeviceRows(device, side, side)
    values = matrix(side)
    original.write(0, values)
    kernels = gpu.compiled("transpose", TILE=TILE, ROWS=ROWS)
    timer = Timer(device, flags.times)

    def check() -> int:
        wrong = misplaced(result, placed(values, variant))
        if variant in OTHER_HALF:
            whole = DeviceRows(device, side, side)
            whole.spoil()
            timer.warm(launched(kernels, OTHER_HALF[variant], result, whole))
            wrong += misplaced(whole, values.T)
        return wrong

    return timer.sampled("transpose", launched(kernels, variant, original, result), result.spoil, check)
