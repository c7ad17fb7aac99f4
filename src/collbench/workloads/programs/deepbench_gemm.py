"""`python -m collbench.workloads.programs.deepbench_gemm --problem NAME --blas NAME --times N`: C = A B + C.

Prints JSON: `ns`, the time of each product; `wrong`, how many rows of all products are wrong; `figures`, empty;
`notes`. Matrices are column-major, and hold integers so small that every sum is exact in the precision: for a random
vector r, C r must be A (B r) plus what was in C before (R. Freivalds, "Probabilistic machines can use less running
time", IFIP 1977). NumPy computes that, with integers, and without a BLAS.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collbench.workloads.deepbench import Gemm, problem
from collbench.workloads.programs import deepbench
from collbench.workloads.programs.deepbench import Machine
from collbench.workloads.programs.dense import times_vector
from collbench.workloads.programs.ending import Unusable

Whole = npt.NDArray[np.integer[Any]]

#: Up to this every integer is exact.
EXACT = {"float32": 2**24, "float16": 2**11, "bfloat16": 2**8}

#: A sum of random signs stays within so many standard deviations.
DEVIATIONS = 16

#: What is in C before.
BEFORE = 1


class Library(Protocol):
    """What multiplies."""

    def matrix(self, values: Whole) -> Any:
        """A column-major matrix on the device."""

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        """Add the product of a and b, transposed where `forms` has a T, to c. Returns nanoseconds."""

    def values(self, matrix: Any) -> npt.NDArray[np.float32]: ...

    def described(self) -> str: ...


class OfTorch:
    """torch on any device."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def matrix(self, values: Whole) -> Any:
        host = self._machine.torch.from_numpy(np.asfortranarray(values, np.float32))
        return host.to(self._machine.device, self._machine.dtype)

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        a, b = (matrix.T if form == "T" else matrix for matrix, form in zip((a, b), forms, strict=True))
        return self._machine.timed(lambda: c.addmm_(a, b))[0]

    def values(self, matrix: Any) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = matrix.float().cpu().numpy()
        return values

    def described(self) -> str:
        return self._machine.described()


class OfCupy:
    """cuBLAS as CuPy calls it."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def matrix(self, values: Whole) -> Any:
        return self._cupy.asarray(np.asfortranarray(values, np.float32), order="F")

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        from cupy.cublas import gemm

        wait = self._cupy.cuda.get_current_stream().synchronize
        wait()
        began = time.perf_counter_ns()
        gemm(*forms, a, b, out=c, alpha=1.0, beta=1.0)
        wait()
        return time.perf_counter_ns() - began

    def values(self, matrix: Any) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = self._cupy.asnumpy(matrix)
        return values

    def described(self) -> str:
        name = self._cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return f"CuPy {self._cupy.__version__}, {name}"


def signs(random: np.random.Generator, shape: tuple[int, int], share: float) -> Whole:
    """1 and -1, of which only this share is left; the others are 0."""
    values = 2 * random.integers(0, 2, shape, np.int8) - np.int8(1)
    if share < 1:
        values *= random.random(shape, np.float32) < share
    return values


def sampled(library: Library, row: Gemm, precision: str, times: int) -> dict[str, Any]:
    """Nanoseconds of `times` products, and the wrong rows of all. Before each, C is as it was at the beginning."""
    random = np.random.default_rng(1)
    share = min(1.0, EXACT[precision] / DEVIATIONS / math.sqrt(row.k))
    a, b = signs(random, (row.m, row.k), share), signs(random, (row.k, row.n), share)
    r = random.integers(1, 1024, row.n)
    expected = times_vector(a, times_vector(b, r)) + BEFORE * r.sum()  # type: ignore[arg-type]
    first, second = (library.matrix(values.T if form == "T" else values)
                     for values, form in zip((a, b), row.forms, strict=True))  # fmt: skip
    ns, wrong = [], 0
    c = library.matrix(np.full((row.m, row.n), BEFORE, np.int8))
    for _ in range(times):
        c[:] = BEFORE
        ns.append(library.multiply(first, second, c, row.forms))
        product = times_vector(library.values(c), r.astype(np.float64))  # type: ignore[arg-type]
        wrong += int((product != expected).sum())
    return {"ns": {"multiply": ns}, "wrong": wrong, "figures": {}}


def opened(flags: argparse.Namespace) -> Library:
    """What the flags name.

    Raises:
        Unusable: it cannot be used here.
    """
    if flags.blas == "torch":
        return OfTorch(deepbench.opened(flags))
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise Unusable(f"CuPy {cupy.__version__} finds no GPU that it can use: {error}") from error
    return OfCupy(cupy)


def run(flags: argparse.Namespace) -> dict[str, Any]:
    library = opened(flags)
    result = sampled(library, problem(Gemm, flags.problem), flags.precision, flags.times)
    return result | {"notes": [library.described()]}


if __name__ == "__main__":
    parser = deepbench.parser(__doc__)
    parser.add_argument("--blas", default="torch", help="torch or cupy")
    deepbench.main(parser.parse_args(), run)
