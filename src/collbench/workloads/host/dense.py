"""dgemm and linpack: what a BLAS and LAPACK reach on dense matrices.

linpack does what Intel's shared-memory LINPACK does: the order of the matrix and its leading dimension vary, and there
is neither a block size nor a process grid, as HPL has them.

`python -m collbench.workloads.host.dense dgemm|linpack --n N --threads T --blas NAME --times K` prints JSON: `ns`, the
time of each product or solution; `figures`, of each the relative error or the scaled residual; `n`, `threads`, and the
`name`, `version` and `kernel` of the library.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.units import counted
from collbench.workloads.host.blas import Blas, Matrix, library_of, opened
from collbench.workloads.program import ALL_CORES, CORE_FLOPS, Measure, Program, parameter, threads_of
from collbench.workloads.protocol import SKIPPED, Unusable, arguments, end, started
from collbench.workloads.software import Alternatives

LIBRARIES = {name: library_of(name) for name in ("openblas", "mkl", "system")}

#: Relative errors of sums of n products are below n times this; there are three such sums on one side or the other.
EPS = float(np.finfo(np.float64).eps)

#: The largest scaled residual of a right result: the threshold in HPL's input.
RESIDUAL = 16.0


def benchmark(
    name: str, title: str, summary: str, measure: Measure, *axes: Axis, figure: str, most: Callable[[Case], float],
    flags: Callable[[Case], Sequence[str]] = lambda case: (), **fields: Any,
) -> Program:  # fmt: skip
    """A benchmark whose samples each have a `figure`: at `most` so much is right."""

    def argv(case: Case, times: int) -> Sequence[str]:
        settings = {"n": case["n"], "threads": threads_of(case["threads"]), "blas": case["blas"], "times": times}
        return (*started("host.dense", name, **settings), *flags(case))

    return Program(
        name=name, suite="cpu", title=title, summary=summary, measures=(measure,), argv=argv,
        parse=lambda output: {measure.name: [ns * 1e-9 for ns in json.loads(output)["ns"]]},
        verify=lambda case, output: sum(not value <= most(case) for value in json.loads(output)["figures"]),
        figures=lambda case, output: {figure: max(json.loads(output)["figures"])}, notes=notes,
        alternatives=Alternatives("blas", LIBRARIES),
        computes=lambda case, times: times * measure.amount(case) / CORE_FLOPS,
        axes=(
            *axes,
            parameter("threads", ALL_CORES, "threads of the library; 0: as many as cores", least=0, most=4096,
                      kind="how"),
            parameter("blas", "openblas", "the library: openblas (PyPI's scipy-openblas32), mkl (torch's) or system",
                      among=tuple(LIBRARIES), kind="how"),
        ),
        **fields,
    )  # fmt: skip


def notes(output: str) -> Sequence[str]:
    """The library that was used, from within the process that used it."""
    result = json.loads(output)
    kernel = f", kernel {result['kernel']}" if result["kernel"] else ""
    fewer = f" of the {result['asked']} asked for" if result["threads"] != result["asked"] else ""
    return (f"{result['name']} {result['version']}{kernel}, {counted(result['threads'], 'thread')}{fewer}",)


def flop(n: int) -> float:
    """Of an elimination and two triangular solutions, as HPL counts them (HPL 2.3, testing/ptest/HPL_pdtest.c)."""
    return 2 / 3 * n**3 + 3 / 2 * n**2


def _lda(case: Case) -> int:
    return int(case["lda"] or case["n"])


def _refuses(case: Case) -> str | None:
    lda, n = _lda(case), case["n"]
    if lda < n:
        return f"the leading dimension must be at least n; use lda=0 or lda={n}"
    if lda != n and case["blas"] == "mkl":
        return f"mkl is called through torch, which has no leading dimension; use lda=0 or lda={n}"
    return None


#: By name.
WORKLOADS = {program.name: program for program in (
    benchmark(
        "dgemm", "DGEMM", "multiply two square matrices of doubles by a BLAS",
        Measure("multiply", lambda case: 2.0 * case["n"] ** 3, "flop"),
        parameter("n", 2000, "order of the matrices", least=1, most=200_000),
        figure="relative error", most=lambda case: 2 * case["n"] * EPS, memory=lambda case: 3 * 8 * case["n"] ** 2,
    ),
    benchmark(
        "linpack", "LINPACK", "solve a dense system of equations by LAPACK's dgesv",
        Measure("solve", lambda case: flop(case["n"]), "flop"),
        parameter("n", 2000, "order of the matrix", least=1, most=200_000),
        parameter("lda", 0, "leading dimension of the matrix; 0: n", least=0, most=200_000),
        figure="residual", most=lambda case: RESIDUAL, flags=lambda case: ("--lda", str(_lda(case))),
        memory=lambda case: 8 * case["n"] * _lda(case) * (2 if case["blas"] == "mkl" else 1),  # torch solves in a copy
        refuses=_refuses,
    ),
)}  # fmt: skip

#: Rows of which magnitudes are summed at once, to need little memory beside the matrix.
ROWS = 256


def times_vector(matrix: Matrix, vector: Matrix) -> Matrix:
    """The product by NumPy's own loops: the library that is measured must not check itself."""
    product: Matrix = np.einsum("ij,j->i", matrix, vector)
    return product


def magnitudes_times(matrix: Matrix, vector: Matrix) -> Matrix:
    """|matrix| times a vector."""
    parts = [times_vector(np.abs(matrix[row : row + ROWS]), vector) for row in range(0, len(matrix), ROWS)]
    return np.concatenate(parts)


def fill(*arrays: Matrix, seed: int) -> None:
    """Uniform in [-0.5, 0.5), as HPL's matrices are; each from a seed of its own, one after the other."""
    for number, array in enumerate(arrays, start=seed):
        np.random.default_rng(number).random(out=array)
        array -= 0.5


def dgemm(blas: Blas, flags: argparse.Namespace) -> dict[str, Any]:
    """Nanoseconds and relative errors of `flags.times` products; before each, what the last one wrote is spoilt."""
    a, b, c = (np.empty((flags.n, flags.n)) for _ in range(3))
    fill(a, b, seed=1)
    largest = magnitudes_times(a, magnitudes_times(b, np.ones(flags.n)))
    taken, errors = [], []
    for seed in range(flags.times):
        c.fill(np.nan)
        began = time.perf_counter_ns()
        blas.multiply(a, b, c)
        taken.append(time.perf_counter_ns() - began)
        errors.append(error(a, b, c, largest, seed))
    return {"ns": taken, "figures": errors}


def error(a: Matrix, b: Matrix, c: Matrix, largest: Matrix, seed: int) -> float:
    """How far C r is from A (B r), relative to what the terms of a row add up to at most (R. Freivalds, IFIP 1977)."""
    r = 1.0 + np.random.default_rng(seed).random(len(a))  # in [1, 2), so that each term counts
    off = times_vector(c, r) - times_vector(a, times_vector(b, r))
    return float(np.abs(off / largest).max())


def linpack(blas: Blas, flags: argparse.Namespace) -> dict[str, Any]:
    """Nanoseconds and scaled residuals of `flags.times` systems, each another one, in the same memory."""
    matrix, vector = np.empty((flags.n, flags.lda or flags.n)), np.empty(flags.n)
    taken, residuals = [], []
    for seed in range(0, 2 * flags.times, 2):
        fill(matrix, vector, seed=seed)
        began = time.perf_counter_ns()
        blas.solve(matrix, vector)
        taken.append(time.perf_counter_ns() - began)
        solution = vector.copy()  # of a system that is overwritten, and made again
        fill(matrix, vector, seed=seed)
        residuals.append(residual(matrix[:, : flags.n], solution, vector))
    return {"ns": taken, "figures": residuals}


def residual(columns: Matrix, x: Matrix, b: Matrix) -> float:
    """||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) n), as in HPL; the rows of `columns` are the columns of A."""
    n = len(b)
    norm = np.zeros(n)
    for row in range(0, n, ROWS):
        norm += np.abs(columns[row : row + ROWS]).sum(axis=0)
    off = np.abs(np.einsum("ji,j->i", columns, x) - b).max()
    return float(off / (EPS * (norm.max() * np.abs(x).max() + np.abs(b).max()) * n))


RUNS = {"dgemm": dgemm, "linpack": linpack}


def main() -> None:
    """Print the result as JSON, with the library that it used; exit code 77 where that cannot be used."""
    flags = arguments(__doc__, WORKLOADS)
    os.environ["OMP_NUM_THREADS"] = str(flags.threads)
    try:
        blas = opened(flags.blas)
    except Unusable as error:
        end(SKIPPED, str(error))
    settings = {"n": flags.n, "threads": blas.threads(flags.threads), "asked": flags.threads}
    sys.stdout.write(json.dumps(RUNS[flags.name](blas, flags) | settings | blas.described()) + "\n")


if __name__ == "__main__":
    main()
