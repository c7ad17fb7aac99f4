"""The libraries that `linpack` and `dgemm` call: an OpenBLAS or another LAPACK by ctypes, MKL through torch.

`python -m collbench.workloads.host.blas LIBRARY` prints JSON of a library, as its last line: `name`, `version`, `path`,
and the `kernel` that it chose for this processor. LIBRARY is `openblas`, `openblas64` (with 64-bit integers, which no
benchmark calls), `system`, `mkl`, or a file. MKL prints its kernel itself, before.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collbench.errors import to_install
from collbench.schema.manifest import Library
from collbench.workloads.protocol import SKIPPED, Unusable, end, started
from collbench.workloads.software import Described, FirstOf, Software, run

Matrix = npt.NDArray[np.float64]

#: Libraries without a version that could be asked for in one way, by a symbol that only they have.
KINDS = {"mkl_get_version": "MKL", "bli_info_get_version_str": "BLIS", "ATL_buildinfo": "ATLAS"}

#: The one in Fortran of Netlib, which is several times slower, has none.
REFERENCE = "reference BLAS"

#: OpenBLAS as packages of PyPI have it, with 32-bit integers and with 64-bit ones: the package and the file in it.
PACKAGES = {
    "openblas": ("scipy_openblas32", "libscipy_openblas.so"),
    "openblas64": ("scipy_openblas64", "libscipy_openblas64_.so"),
}

#: What stands behind the symbols of a library with 64-bit integers, if anything.
ENDINGS = ("", "64_", "_64")

#: What a distribution has, by soname: Debian's OpenBLAS with LAPACK in it, and what its alternatives stand for.
SYSTEM = ("libopenblas.so.0", "liblapack.so.3")


class _Symbol(ctypes.Structure):
    """What dladdr(3) says of an address."""

    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p))  # fmt: skip


class FortranBlas:
    """A library with Fortran's symbols, loaded from a file; `prefix` stands before its symbols.

    Matrices are [n, n] or [n, lda] in C order: each row is a column of the library's matrix. A library with 64-bit
    integers can be described, and nothing else.
    """

    def __init__(self, file: str, prefix: str = "") -> None:
        try:
            self._library, self._prefix = ctypes.CDLL(file), prefix
        except OSError as error:
            raise Unusable(str(error)) from error

    def solve(self, matrix: Matrix, vector: Matrix) -> None:
        """Overwrite the vector by the solution of the system; the matrix is overwritten too."""
        n, lda = (ctypes.byref(ctypes.c_int(value)) for value in matrix.shape)
        one, info = ctypes.c_int(1), ctypes.c_int(0)
        pivots = np.empty(len(vector), np.int32)
        a, p, b = (ctypes.c_void_p(array.ctypes.data) for array in (matrix, pivots, vector))
        self._function("dgesv_")(n, ctypes.byref(one), a, lda, p, b, n, ctypes.byref(info))
        if info.value:
            raise ArithmeticError(f"dgesv returned info {info.value}")

    def multiply(self, a: Matrix, b: Matrix, c: Matrix) -> None:
        """Overwrite c by a b: to Fortran it is the transposed product, b^T a^T = (a b)^T, of transposed matrices."""
        n, no = ctypes.byref(ctypes.c_int(len(a))), ctypes.byref(ctypes.c_char(b"N"))
        one, zero = (ctypes.byref(ctypes.c_double(value)) for value in (1.0, 0.0))
        at_a, at_b, at_c = (ctypes.c_void_p(array.ctypes.data) for array in (a, b, c))
        lengths = ctypes.c_size_t(1), ctypes.c_size_t(1)  # of both texts, as gfortran passes them
        self._function("dgemm_")(no, no, n, n, n, one, at_b, n, at_a, n, zero, at_c, n, *lengths)

    def threads(self, number: int) -> int:
        """Use so many threads. Returns how many it will use."""
        if not self._has("openblas_set_num_threads"):  # others read OMP_NUM_THREADS when they are loaded
            return number if any(map(self._has, KINDS)) else 1
        self._function("openblas_set_num_threads")(ctypes.c_int(number))
        return int(self._function("openblas_get_num_threads")())

    def described(self) -> dict[str, str]:
        """`name`, `version`, `path`, `kernel`."""
        symbol = _Symbol()
        address = ctypes.cast(self._function("dgemm_"), ctypes.c_void_p)
        ctypes.CDLL(None).dladdr(address, ctypes.byref(symbol))
        path = {"path": str(Path(os.fsdecode(symbol.file or b"")).resolve())}
        if not self._has("openblas_get_config"):
            kind = next((kind for symbol, kind in KINDS.items() if self._has(symbol)), REFERENCE)
            return {"name": kind, "version": "", "kernel": "", **path}
        name, version, *_ = self._text("openblas_get_config").split()
        return {"name": name, "version": version, "kernel": self._text("openblas_get_corename"), **path}

    def _function(self, name: str) -> Any:
        symbols = [f"{self._prefix}{name}{end}" for end in ENDINGS]
        return getattr(self._library, next(filter(partial(hasattr, self._library), symbols), symbols[0]))

    def _has(self, name: str) -> bool:
        return any(hasattr(self._library, f"{self._prefix}{name}{end}") for end in ENDINGS)

    def _text(self, name: str) -> str:
        function = self._function(name)
        function.restype = ctypes.c_char_p
        return str(function().decode())


class Mkl:
    """The MKL in torch, as a `FortranBlas`. It solves in a copy of the matrix."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        if not self._torch.backends.mkl.is_available():
            raise Unusable("this torch was built without MKL; use another blas")

    def solve(self, matrix: Matrix, vector: Matrix) -> None:
        a, b = self._torch.from_numpy(matrix), self._torch.from_numpy(vector)
        b.copy_(self._torch.linalg.solve(a.T, b))

    def multiply(self, a: Matrix, b: Matrix, c: Matrix) -> None:
        self._torch.mm(*map(self._torch.from_numpy, (a, b)), out=self._torch.from_numpy(c))

    def threads(self, number: int) -> int:
        self._torch.set_num_threads(number)
        return int(self._torch.get_num_threads())

    def described(self) -> dict[str, str]:
        match = re.search(r"Math Kernel Library Version (\S+?)-", self._torch.__config__.show())
        path = Path(self._torch.__file__).resolve().parent / "lib" / "libtorch_cpu.so"
        return {"name": "MKL", "version": match[1] if match else "", "kernel": "", "path": str(path)}


Blas = FortranBlas | Mkl


def opened(name: str) -> Blas:
    """A library by its name, or by its file. Unusable: it is not there."""
    if name == "mkl":
        if importlib.util.find_spec("torch") is None:
            raise Unusable(f"torch, which contains MKL, is not installed; {to_install('torch')}")
        return Mkl()
    if name in PACKAGES:
        package, file = PACKAGES[name]
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            package = package.replace("_", "-")
            raise Unusable(f"{package} is not installed; pip install {package}")
        return FortranBlas(str(Path(spec.origin).parent / "lib" / file), "scipy_")
    if name != "system":
        return FortranBlas(name)
    for file in SYSTEM:
        with contextlib.suppress(Unusable):
            return FortranBlas(file)
    raise Unusable(f"there is no {' and no '.join(SYSTEM)}; on Debian and Ubuntu: apt-get install libopenblas0-pthread")


#: In what MKL prints about itself.
_KERNEL = re.compile(r"^MKL_VERBOSE .*? for Intel\(R\) 64 architecture (.*?), \w+ [0-9.]+GHz", re.MULTILINE)

#: In what ldd prints.
_LINKED = re.compile(r"^\s*lib(?:openblas|blas|mkl_rt|blis|flexiblas|satlas|tatlas)\S* => (/\S+)", re.MULTILINE)


def library_of(name: str) -> Described:
    """A library by its name, or by its file: loaded and asked in a process of its own."""
    return Described(f"BLAS {name}", partial(started, "host.blas", name), read)


def read(output: str) -> Library:
    """What this program printed, after MKL's own words with its kernel. ValueError, TypeError: it is something else."""
    library = Library(**json.loads(output.strip().rpartition("\n")[2]))
    kernel = _KERNEL.search(output)
    return library if kernel is None else msgspec.structs.replace(library, kernel=kernel[1])


@dataclass(frozen=True)
class BlasOf:
    """The BLAS that a program is linked with, where it is a file of its own."""

    program: FirstOf | Software

    def missing(self) -> str | None:
        """Never: the program is what may be missing."""

    def library(self) -> Library | None:
        program = self.program.library()
        path = linked(program.path) if program is not None and program.path is not None else None
        return None if path is None else library_of(path).library()


def linked(program: str) -> str | None:
    """The BLAS that the dynamic linker finds for a program; None where it has none, or does not tell."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if match := _LINKED.search(run(("ldd", program)).stdout):
            return match[1]
    return None


def main() -> None:
    """Describe the library that the argument names; with exit code 77 and the reason it cannot be used."""
    os.environ["MKL_VERBOSE"] = "1"
    try:
        blas = opened(sys.argv[1])
    except Unusable as error:
        end(SKIPPED, str(error))
    if isinstance(blas, Mkl):  # it prints its kernel when it first computes
        blas.multiply(*(np.ones((8, 8)) for _ in range(3)))
    ctypes.CDLL(None).fflush(None)
    sys.stdout.write(json.dumps(blas.described()) + "\n")


if __name__ == "__main__":
    main()
