"""`python -m collbench.workloads.programs.gpu.gemm --m M --n N --k K --times N`: multiply matrices by cuBLAS.

The product is that of float32, without TF32. Prints JSON: `ns`, the time of each product; `wrong`, rows that are not
right; `figures`, the median by the GPU's own clock.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from collbench.collectives.row import Array
from collbench.workloads.programs.gpu.opened import OpenGpu, Rows, printed
from collbench.workloads.programs.gpu.timer import Timer

#: A whole number that float32 holds and TF32, whose significand has 11 bits, does not.
ODD = 2**12 + 1

#: The largest element of the matrices, and bounds of whole numbers that float32 holds.
MOST, EXACT = 15, 2**24

#: Elements of the vectors by which the product is checked; none is 0, which would hide a wrong column.
WEIGHTS = np.array([w for w in range(-8, 9) if w])


def largest(k: int) -> int:
    """The largest magnitude of elements for which all sums of k products are exact; 0 where there is none."""
    return max((a for a in range(1, MOST + 1) if k * a * a + ODD * a < EXACT), default=0)


def filled(matrix: Rows, largest: int, seed: int, vectors: Array, odd_row: bool = False) -> Array:
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


def wrong_rows(product: Rows, vectors: Array, right: Array) -> int:
    """Rows whose product with the vectors is another. All numbers are whole ones, and all sums are exact in float64.

    After R. Freivalds, "Probabilistic Machines Can Use Less Running Time", IFIP Congress 1977.
    """
    wrong = 0
    for first, last in product.parts():
        found = product.read(first, last).astype(np.float64) @ vectors
        wrong += int(np.count_nonzero((found != right[first:last]).any(axis=1)))
    return wrong


def run(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """The last timed product is checked: A (B r) must be (A B) r."""
    device, m, n, k = gpu.device, flags.m, flags.n, flags.k
    a, b, c = Rows(device, m, k), Rows(device, k, n), Rows(device, m, n)
    vectors = np.random.default_rng(0).choice(WEIGHTS, (n, 2)).astype(np.float64)
    right = filled(a, largest(k), 2, filled(b, largest(k), 1, vectors, odd_row=True))
    operation = gpu.compute.sgemm(m, n, k, a, b, c)
    timer = Timer(device, flags.times)
    timer.warm(operation)
    c.spoil()
    timer.take("multiply", operation)
    wrong = wrong_rows(c, vectors, right)
    timer.by_events(operation)
    timer.notes["float32 by cuBLAS, TF32 off"] = None
    return timer.result(wrong)


if __name__ == "__main__":
    sys.exit(printed(__doc__, (("m", int, "rows of A"), ("n", int, "columns of B"), ("k", int, "columns of A")), run))
