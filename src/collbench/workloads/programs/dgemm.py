"""`python -m collbench.workloads.programs.dgemm --n N --threads T --blas NAME --times K`: multiply matrices by dgemm.

Prints JSON: `ns`, the time of each product; `figures`, how far C r is from A (B r) for a random r, relative to
|A| (|B| |r|) (Freivalds, "Probabilistic machines can use less running time", IFIP 1977); `n`, `threads`, and the
`name`, `version` and `kernel` of the library.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from collbench.workloads.programs import dense
from collbench.workloads.programs.blas import Array, Blas


def run(blas: Blas, flags: argparse.Namespace) -> dict[str, Any]:
    """Nanoseconds and relative errors of `flags.times` products; before each, what the last one wrote is spoilt."""
    a, b, c = (np.empty((flags.n, flags.n)) for _ in range(3))
    dense.fill(a, 1)
    dense.fill(b, 2)
    largest = dense.magnitudes_times(a, dense.magnitudes_times(b, np.ones(flags.n)))
    taken, errors = [], []
    for seed in range(flags.times):
        c.fill(np.nan)
        began = time.perf_counter_ns()
        blas.multiply(a, b, c)
        taken.append(time.perf_counter_ns() - began)
        errors.append(error(a, b, c, largest, seed))
    return {"ns": taken, "figures": errors}


def error(a: Array, b: Array, c: Array, largest: Array, seed: int) -> float:
    """The largest of any row, relative to what its terms add up to at most; r is in [1, 2), so that each one counts."""
    r = 1.0 + np.random.default_rng(seed).random(len(a))
    off = dense.times_vector(c, r) - dense.times_vector(a, dense.times_vector(b, r))
    return float(np.abs(off / largest).max())


if __name__ == "__main__":
    dense.main(__doc__, run)
