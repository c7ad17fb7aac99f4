"""The workloads of suite `gpu`, and the programs that they start, each with its check.

`python -m collbench.workloads.gpu.suite NAME`, with the workload's parameters and `--times` as flags, prints JSON:
`ns`, the times of each measure; `wrong`, how much of the result is not what NumPy computes; `figures`, medians by the
GPU's own clock; and `notes`. Where there is no CuPy, no NVRTC or no GPU, it prints the reason, with exit code 77.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid, Kernels
from collbench.bindings.gpu.device import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Device,
    DeviceBlocks,
    buffer_of,
    copy_step,
    how_to_install,
    issued,
)
from collbench.bindings.spec import page_aligned, to_word
from collbench.collectives.row import Array
from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.timing.loop import Stage
from collbench.workloads.gpu.device import DeviceRows, OpenGpu, Timer, as_one, opened, printed, waiting
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.protocol import arguments, figures, notes, started, times, wrong
from collbench.workloads.software import Described

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


def checked_rows(side: int) -> tuple[tuple[int, int], ...]:
    """64 of them: the first, the last, and some where two blocks of the grid meet; of a small image all."""
    middle = side // 2 // HEIGHT * HEIGHT
    return ((0, side),) if side <= 2 * HEIGHT else ((0, 16), (middle - 16, middle + 16), (side - 16, side))


def convolution(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """A sample is both passes, along rows and columns; `wrong` are pixels of 64 rows that NumPy computes otherwise."""
    side = flags.width
    original, after_rows, after_columns = (DeviceRows(gpu.device, side, side) for _ in range(3))
    for first, last in original.parts():
        original.write(first, image(side, first, last))
    kernels = gpu.compiled("convolution")
    rows = Grid((-(-side // SPAN), side), (SPAN, 1))
    columns = Grid((-(-side // WIDTH), -(-side // HEIGHT)), (WIDTH, LINES))
    operation = as_one(kernels.launch("rows", rows, original, after_rows, side),
                       kernels.launch("columns", columns, after_rows, after_columns, side))  # fmt: skip

    def check() -> int:
        wrong = 0
        for first, last in checked_rows(side):
            by_rows = filtered(np.pad(image(side, first - RADIUS, last + RADIUS), ((0, 0), (RADIUS, RADIUS))))
            wrong += int(np.count_nonzero(after_rows.read(first, last) != by_rows[RADIUS:-RADIUS]))
            wrong += int(np.count_nonzero(after_columns.read(first, last) != filtered(by_rows.T).T))
        return wrong

    return Timer(gpu.device, flags.times).sampled("convolve", operation, (after_rows, after_columns), check)


#: cudaMemcpyKind, as those that are imported.
DEVICE_TO_DEVICE = 3


def copy(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """Each way's last timed copy is what is checked: `wrong` are bytes that did not arrive."""
    device, size = gpu.device, flags.size
    # page-locked, or what malloc gives: the driver then copies through memory of its own
    host: Array = page_aligned(1, size, "uint8") if flags.memory == "pageable" else device.pinned(size).reshape(1, size)
    here, there = (DeviceBlocks(device, device.allocate(size), 1, size, "uint8") for _ in range(2))
    copies: tuple[tuple[str, DeviceBlocks | Array, DeviceBlocks | Array, int], ...] = (
        ("h2d", here, host, HOST_TO_DEVICE), ("d2h", host, here, DEVICE_TO_HOST), ("d2d", there, here, DEVICE_TO_DEVICE)
    )  # fmt: skip
    sent = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    timer, wrong = Timer(device, flags.times), 0
    for name, target, source, kind in copies:
        operation = issued(device, copy_step(device, to_word(target), to_word(source), size, kind))
        buffer_of(source).store(0, 0, sent)
        buffer_of(target).store(0, 0, ~sent)
        timer.take(name, operation)
        wrong += int(np.count_nonzero(buffer_of(target).load(0, 0, size) != sent))
        timer.by_events(operation, f"{name} device_ns")
    return timer.result(wrong)


#: A whole number that float32 holds and TF32, whose significand has 11 bits, does not; bounds of what float32 holds.
ODD, EXACT = 2**12 + 1, 2**24

#: So many products of small whole numbers have a sum that float32 holds.
MOST_PRODUCTS = 16_000_000

#: Elements of the vectors by which the product is checked; none is 0, which would hide a wrong column.
WEIGHTS = np.array([w for w in range(-8, 9) if w])


def largest(k: int) -> int:
    """The largest magnitude of elements up to 15 for which all sums of k products are exact; 0 where there is none."""
    return max((a for a in range(1, 16) if k * a * a + ODD * a < EXACT), default=0)


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


def gemm(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """The product of float32 matrices, without TF32; `wrong` are rows for which (A B) r is not A (B r).

    After R. Freivalds (IFIP Congress 1977). All numbers are whole ones, and all sums are exact in float64.
    """
    device, m, n, k = gpu.device, flags.m, flags.n, flags.k
    a, b, c = DeviceRows(device, m, k), DeviceRows(device, k, n), DeviceRows(device, m, n)
    vectors = np.random.default_rng(0).choice(WEIGHTS, (n, 2)).astype(np.float64)
    right = filled(a, largest(k), 2, filled(b, largest(k), 1, vectors, odd_row=True))

    def check() -> int:
        wrong = 0
        for first, last in c.parts():
            rows = c.read(first, last).astype(np.float64) @ vectors
            wrong += int(np.count_nonzero((rows != right[first:last]).any(axis=1)))
        return wrong

    operation, note = gpu.compute.sgemm(m, n, k, a, b, c), "float32 by cuBLAS, TF32 off"
    return Timer(device, flags.times).sampled("multiply", operation, (c,), check, note)


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
    data = device.allocate(size)
    of_blocks, result = DeviceRows(device, blocks, bins), DeviceRows(device, 1, bins)  # of uint32
    device.write(data.address, values)
    kernels = gpu.compiled("histogram", BINS=bins, THREADS=THREADS)
    operation = as_one(
        kernels.launch("of_blocks", Grid((blocks, 1), (THREADS, 1)), data, of_blocks, words),
        kernels.launch("of_all", Grid((bins, 1), (THREADS, 1)), of_blocks, result, blocks),
    )

    def check() -> int:
        return int(np.count_nonzero(result.read(0, 1).view(np.uint32) != counted(values, bins)))

    return Timer(device, flags.times).sampled("histogram", operation, (of_blocks, result), check)


#: Launches in a graph.
GRAPH = 100


def ways(device: Device, launch: Stage, burst: int) -> tuple[tuple[str, Stage, int], ...]:
    """How a burst is made, an operation, and how often: `issue_wait` waits for each launch, `graph` for each graph."""
    wait = waiting(device)
    graph = as_one(device.capture(launch.python, GRAPH), wait)
    return ("issue", launch, burst), ("issue_wait", as_one(launch, wait), burst), ("graph", graph, burst // GRAPH)


def launch(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """`wrong` are launches too few or too many, of one burst in each way, of a kernel that counts."""
    device, burst = gpu.device, flags.burst
    kernels, timer = gpu.compiled("launch"), Timer(device, flags.times)
    counter, launches = device.allocate(4), np.zeros(1, np.uint32)
    one_thread = Grid((1, 1), (1, 1))
    nothing, counting = kernels.launch("nothing", one_thread), kernels.launch("count", one_thread, counter)
    timer.warm(nothing, counting)
    wrong = 0
    for name, operation, repetitions in ways(device, counting, burst):
        device.write(counter.address, np.zeros(1, np.uint32))
        Timer(device, 1).take(name, operation, repetitions, waits=False)
        device.read(counter.address, launches)
        wrong += abs(int(launches[0]) - burst)
    for name, operation, repetitions in ways(device, nothing, burst):
        timer.take(name, operation, repetitions, waits=False)
    timer.by_events(nothing)
    return timer.result(wrong)


#: Of the transpose, as in NVIDIA's sample: each block of threads takes a tile of so many rows and columns.
TILE, ROWS = 16, 16

VARIANTS = (
    "simple_copy", "shared_memory_copy", "naive", "coalesced", "optimized", "coarse_grained", "fine_grained", "diagonal"
)  # fmt: skip

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
    device, side, variant = gpu.device, flags.order, flags.variant
    original, result = DeviceRows(device, side, side), DeviceRows(device, side, side)
    values = matrix(side)
    original.write(0, values)
    kernels, timer = gpu.compiled("transpose", TILE=TILE, ROWS=ROWS), Timer(device, flags.times)

    def check() -> int:
        wrong = misplaced(result, placed(values, variant))
        if variant in OTHER_HALF:
            whole = DeviceRows(device, side, side)
            whole.spoil()
            timer.warm(launched(kernels, OTHER_HALF[variant], result, whole))
            wrong += misplaced(whole, values.T)
        return wrong

    return timer.sampled("transpose", launched(kernels, variant, original, result), (result,), check)


# Workloads -----------------------------------------------------------------------------------------------------------

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
    wrong = case["size"] < 4 or case["size"] % 4 or case["size"] >> 32
    return "the size must be a multiple of 4 bytes, at least 4 and less than 4G" if wrong else None


#: By name.
WORKLOADS = {program.name: program for program in (
    benchmark(
        "convolution", "Separable convolution on a GPU", "an image of float32 filtered with 17 x 17 separable taps",
        parameter("width", 4096, "rows and columns of the image", least=1, most=65_535),
        measures=(Measure("convolve", lambda case: case["width"] ** 2, "pixels"),), memory=lambda case: 64 << 22,
    ),
    benchmark(
        "copy", "Copies of a GPU", "copies from the host (h2d), to the host (d2h), and on the GPU (d2d)",
        parameter("memory", "pinned", "of the host: page-locked or not", among=("pinned", "pageable"), kind="how"),
        measures=tuple(Measure(way, lambda case: case["size"]) for way in ("h2d", "d2h", "d2d")),
        memory=lambda case: 5 * int(case["size"]),  # the buffer, what is sent, what is read back, and the comparison
        refuses=lambda case: None if case["size"] >= 1 else "the size must be at least 1 byte", sizes=("32M", "256M"),
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
        measures=(Measure("histogram", lambda case: case["size"]),), memory=lambda case: 2 * int(case["size"]),
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
        parameter("order", 8192, "rows and columns of the matrix", least=TILE, most=32_768),
        parameter("variant", "optimized", "which kernel; all: each", among=VARIANTS, groups={"all": VARIANTS},
                  kind="how"),
        measures=(Measure("transpose", lambda case: 8 * case["order"] ** 2),),  # bytes read and written
        memory=lambda case: 20 * case["order"] ** 2,
        refuses=lambda case: f"order must be a multiple of {TILE}" if case["order"] % TILE else None,
    ),
)}  # fmt: skip

RUNS = {run.__name__: run for run in (convolution, copy, gemm, histogram, launch, transpose)}


def main() -> int:
    """Print what the program of the name in the first argument finds; returns the exit code."""
    flags = arguments(__doc__, {name: WORKLOADS[f"gpu_{name}"] for name in RUNS})
    return printed(lambda: RUNS[flags.name](opened(), flags))


if __name__ == "__main__":
    sys.exit(main())
