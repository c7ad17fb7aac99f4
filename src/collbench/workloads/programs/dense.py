"""What `linpack` and `dgemm` have in common: flags, products that no BLAS computes, and the printed result."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from collbench.workloads.programs.blas import Array, Blas, opened
from collbench.workloads.programs.ending import SKIPPED, Unusable, end

EPS = float(np.finfo(np.float64).eps)

#: Rows of which magnitudes are summed at once, to need little memory beside the matrix.
ROWS = 256


def times_vector(matrix: Array, vector: Array) -> Array:
    """The product by NumPy's own loops: the library that is measured must not check itself."""
    product: Array = np.einsum("ij,j->i", matrix, vector)
    return product


def magnitudes_times(matrix: Array, vector: Array) -> Array:
    """|matrix| times a vector."""
    parts = [times_vector(np.abs(matrix[row : row + ROWS]), vector) for row in range(0, len(matrix), ROWS)]
    return np.concatenate(parts)


def fill(array: Array, seed: int) -> None:
    """Uniform in [-0.5, 0.5), as HPL's matrices are."""
    np.random.default_rng(seed).random(out=array)
    array -= 0.5


def main(doc: str | None, run: Callable[[Blas, argparse.Namespace], dict[str, Any]]) -> None:
    """Print the result of `run` as JSON, with the library that it used; exit code 77 where that cannot be used."""
    parser = argparse.ArgumentParser(description=doc)
    for flag, means in (("--n", "order of the matrices"), ("--threads", "threads of the library"),
                        ("--times", "how many samples")):  # fmt: skip
        parser.add_argument(flag, type=int, required=True, help=means)
    parser.add_argument("--lda", type=int, default=0, help="leading dimension; 0: n")
    parser.add_argument("--blas", required=True, help="openblas, system or mkl")
    flags = parser.parse_args()
    try:
        blas = opened(flags.blas)
    except Unusable as error:
        end(SKIPPED, str(error))
    threads = blas.threads(flags.threads)
    result = run(blas, flags) | {"n": flags.n, "threads": threads, "asked": flags.threads} | blas.described()
    sys.stdout.write(json.dumps(result) + "\n")
