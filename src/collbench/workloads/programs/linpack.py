"""`python -m collbench.workloads.programs.linpack --n N --lda LDA --threads T --blas NAME --times K`: solve by dgesv.

Prints JSON: `ns`, the time of each solution; `figures`, the scaled residual of each, as HPL defines it; `n`,
`threads`, and the `name`, `version` and `kernel` of the library.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from collbench.workloads.programs import dense
from collbench.workloads.programs.blas import Array, Blas


def run(blas: Blas, flags: argparse.Namespace) -> dict[str, Any]:
    """Nanoseconds and scaled residuals of `flags.times` systems, each another one, in the same memory."""
    matrix, vector = np.empty((flags.n, flags.lda or flags.n)), np.empty(flags.n)
    taken, residuals = [], []
    for seed in range(flags.times):
        _system(matrix, vector, seed)
        began = time.perf_counter_ns()
        blas.solve(matrix, vector)
        taken.append(time.perf_counter_ns() - began)
        solution = vector.copy()
        _system(matrix, vector, seed)
        residuals.append(residual(matrix[:, : flags.n], solution, vector))
    return {"ns": taken, "figures": residuals}


def _system(matrix: Array, vector: Array, seed: int) -> None:
    """A random one; the same for the same seed, so that it need not be kept while it is overwritten."""
    dense.fill(matrix, 2 * seed)
    dense.fill(vector, 2 * seed + 1)


def residual(columns: Array, x: Array, b: Array) -> float:
    """||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) n), where the rows of `columns` are the columns of A.

    HPL 2.3, testing/ptest/HPL_pdtest.c.
    """
    n = len(b)
    norm = np.zeros(n)
    for row in range(0, n, dense.ROWS):
        norm += np.abs(columns[row : row + dense.ROWS]).sum(axis=0)
    off = np.abs(np.einsum("ji,j->i", columns, x) - b).max()
    return float(off / (dense.EPS * (norm.max() * np.abs(x).max() + np.abs(b).max()) * n))


if __name__ == "__main__":
    dense.main(__doc__, run)
