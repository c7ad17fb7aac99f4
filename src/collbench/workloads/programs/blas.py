"""The libraries that `linpack` and `dgemm` call: an OpenBLAS or another LAPACK by ctypes, MKL through torch.

`python -m collbench.workloads.programs.blas LIBRARY` prints JSON of a library, as its last line: `name`, `version`,
`path`, and the `kernel` that it chose for this processor. LIBRARY is `openblas`, `openblas64` (with 64-bit integers,
which no benchmark calls), `system`, `mkl`, or a file. MKL prints its kernel itself, before.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collbench.errors import to_install
from collbench.workloads.programs.ending import SKIPPED, Unusable, end

Array = npt.NDArray[np.float64]

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


class Blas(Protocol):
    """A loaded library. Matrices are [n, n] or [n, lda] in C order: each row is a column of the library's matrix."""

    def solve(self, matrix: Array, vector: Array) -> None:
        """Overwrite the vector by the solution of the system; the matrix may be overwritten too."""

    def multiply(self, a: Array, b: Array, c: Array) -> None:
        """Overwrite c by a b, each in C order."""

    def threads(self, asked: int) -> int:
        """Use so many threads. Returns how many it will use."""

    def described(self) -> dict[str, str]:
        """`name`, `version`, `path`, `kernel`."""


class Native:
    """A library with Fortran's symbols, found in a file; `prefix` stands before its symbols.

    One with 64-bit integers can be described, and nothing else.
    """

    def __init__(self, file: str, prefix: str = "") -> None:
        try:
            self._library, self._prefix = ctypes.CDLL(file), prefix
        except OSError as error:
            raise Unusable(str(error)) from error

    def solve(self, matrix: Array, vector: Array) -> None:
        n, lda = matrix.shape
        pivots, info = np.empty(n, np.int32), ctypes.c_int(0)
        a, b = (_of(matrix), _int(lda)), (_of(vector), _int(n))
        self._function("dgesv_")(_int(n), _int(1), *a, _of(pivots), *b, ctypes.byref(info))
        if info.value:
            raise ArithmeticError(f"dgesv returned info {info.value}")

    def multiply(self, a: Array, b: Array, c: Array) -> None:
        """The transposed product, b^T a^T = (a b)^T, of what are transposed matrices to Fortran."""
        n, no, one, zero = _int(len(a)), ctypes.byref(ctypes.c_char(b"N")), _double(1.0), _double(0.0)
        lengths = ctypes.c_size_t(1), ctypes.c_size_t(1)  # of both texts, as gfortran passes them
        self._function("dgemm_")(no, no, n, n, n, one, _of(b), n, _of(a), n, zero, _of(c), n, *lengths)

    def threads(self, asked: int) -> int:
        if not self._has("openblas_set_num_threads"):
            return 1
        self._function("openblas_set_num_threads")(ctypes.c_int(asked))
        return int(self._function("openblas_get_num_threads")())

    def described(self) -> dict[str, str]:
        path = {"path": _file_of(self._function("dgemm_"))}
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
    """The MKL in torch. It solves in a copy of the matrix."""

    def __init__(self) -> None:
        import torch

        mkl: Any = torch.backends.mkl
        if not mkl.is_available():
            raise Unusable("this torch was built without MKL; use another blas")
        self._torch: Any = torch

    def solve(self, matrix: Array, vector: Array) -> None:
        a, b = self._torch.from_numpy(matrix), self._torch.from_numpy(vector)
        b.copy_(self._torch.linalg.solve(a.T, b))

    def multiply(self, a: Array, b: Array, c: Array) -> None:
        self._torch.mm(*map(self._torch.from_numpy, (a, b)), out=self._torch.from_numpy(c))

    def threads(self, asked: int) -> int:
        self._torch.set_num_threads(asked)
        return int(self._torch.get_num_threads())

    def described(self) -> dict[str, str]:
        found = re.search(r"Math Kernel Library Version (\S+?)-", self._torch.__config__.show())
        path = Path(self._torch.__file__).resolve().parent / "lib" / "libtorch_cpu.so"
        return {"name": "MKL", "version": found[1] if found else "", "kernel": "", "path": str(path)}


def opened(name: str) -> Blas:
    """A library by its name, or by its file.

    Raises:
        Unusable: it is not there.
    """
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
        return Native(str(Path(spec.origin).parent / "lib" / file), "scipy_")
    return Native(_system() if name == "system" else name)


def _system() -> str:
    for file in SYSTEM:
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return file
    raise Unusable(f"there is no {' and no '.join(SYSTEM)}; on Debian and Ubuntu: apt-get install libopenblas0-pthread")


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _double(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def _of(array: npt.NDArray[Any]) -> Any:
    return ctypes.c_void_p(array.ctypes.data)


class _Symbol(ctypes.Structure):
    """What dladdr(3) says of an address."""

    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p))  # fmt: skip


def _file_of(function: Any) -> str:
    """The file that a function was loaded from, without symbolic links."""
    symbol = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(symbol))
    return str(Path(os.fsdecode(symbol.file or b"")).resolve())


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
