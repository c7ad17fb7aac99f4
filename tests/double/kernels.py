"""What computes on the double: CUDA kernels, compiled for the host from the same source, and a product by NumPy.

Their launches take the eleven words of cuLaunchKernel, and happen when the stream is waited for.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Argument, Grid, KernelLaunch
from collbench.bindings.gpu.device import Memory
from collbench.collectives.row import C
from collbench.timing.loop import Stage
from tests.double.device import STREAM, DoubleDevice
from tests.double.functions import Code, crash

HEADER = Path(__file__).with_name("cuda_on_host.h")
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(')
_TRANSLATION = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)

#: Of cuda.h: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE.
INVALID_VALUE, INVALID_HANDLE = 1, 400
#: Limits of all GPUs since 2010: threads of a block, and blocks of a grid along y.
MOST_THREADS, MOST_BLOCKS_Y = 1024, 65_535


def built(source: str, macros: Mapping[str, int], folder: Path) -> ctypes.CDLL:
    """The kernels of a source as a library of the host; each source is compiled once in a folder."""
    names = _KERNEL.findall(source)
    text = "\n".join((f'#include "{HEADER}"', source, *(f"ON_HOST({name})" for name in names)))
    flags = ("-std=c++14", "-O1", "-shared", "-fPIC", "-w", *(f"-D{name}={value}" for name, value in macros.items()))
    key = hashlib.sha256(repr((text, HEADER.read_bytes(), flags)).encode()).hexdigest()[:16]
    library = folder / f"{key}.so"
    if not library.exists():
        path, fresh = folder / f"{key}.cpp", folder / f"{key}.new"
        path.write_text(text)
        subprocess.run(("g++", *flags, "-o", fresh, path), check=True)
        fresh.rename(library)
    return ctypes.CDLL(str(library))


class DoubleKernels:
    """See `collbench.bindings.gpu.cupy_device.Kernels`."""

    def __init__(self, compute: DoubleCompute, library: ctypes.CDLL) -> None:
        self._compute, self._library = compute, library

    def launch(self, name: str, grid: Grid, *arguments: Argument) -> Stage:
        device = self._compute.device
        launch = KernelLaunch(self._compute.number(self._library, name), grid, STREAM, arguments)
        native = device.native(C("cuLaunchKernel", *launch.words))
        assert native is not None

        def python(held: KernelLaunch = launch) -> None:
            self._compute.launch(*held.words)

        return Stage(python, (native,))


class DoubleCompute:
    """See `collbench.bindings.gpu.cupy_device.Compute`. `edit` changes a source before it is compiled."""

    def __init__(self, device: DoubleDevice, folder: Path, edit: Callable[[str], str] = str) -> None:
        self.device, self._folder, self._edit = device, folder, edit
        self._functions: dict[int, tuple[str, Any, int]] = {}
        device.functions.add("cuLaunchKernel", self.launch, 11)

    def compile(self, source: str, macros: Mapping[str, int]) -> DoubleKernels:
        return DoubleKernels(self, built(self._edit(source), macros, self._folder))

    def number(self, library: ctypes.CDLL, name: str) -> int:
        """What stands for a CUfunction."""
        handle = 0xF000 + len(self._functions)
        self._functions[handle] = (name, library[f"run_{name}"], library[f"arity_of_{name}"]())
        return handle

    def launch(self, function: int, *words: int) -> None:
        """cuLaunchKernel: arguments are read now, and the kernel runs when the stream is waited for."""
        *shape, shared, stream, parameters, extra = words
        if function not in self._functions:
            raise Code(INVALID_HANDLE)
        name, run, arity = self._functions[function]
        x, y, z, wide, high, deep = shape
        good = min(shape) >= 1 and y <= MOST_BLOCKS_Y and wide * high * deep <= MOST_THREADS
        if not good or (z, deep, shared, extra) != (1, 1, 0, 0) or stream != STREAM:
            raise Code(INVALID_VALUE)
        pointers = (ctypes.c_uint64 * arity).from_address(parameters)
        values = (ctypes.c_uint64 * arity)(*(ctypes.c_uint64.from_address(pointer).value for pointer in pointers))
        self.device.enqueue(partial(self._run, name, run, (x, y, wide, high), values))

    def _run(self, name: str, run: Any, shape: tuple[int, ...], values: ctypes.Array[ctypes.c_uint64]) -> None:
        first = ctypes.addressof(values)
        parameters = (ctypes.c_uint64 * len(values))(*(first + 8 * i for i in range(len(values))))
        run((ctypes.c_uint * 4)(*shape), parameters, _TRANSLATION(partial(self._seen, name)))

    def _seen(self, name: str, address: int) -> int:
        found = self.device.at(address, 1)
        return crash(f"{name} was given {address:#x}, no memory of the device") if found is None else found.ctypes.data

    def described(self) -> dict[str, str]:
        return {"version": "0.0", "path": str(HEADER)}

    def sgemm(self, m: int, n: int, k: int, a: Memory, b: Memory, c: Memory) -> Stage:
        def matrix(memory: Memory, rows: int, columns: int) -> Any:
            return self.device.held(memory.address, 4 * rows * columns).view(np.float32).reshape(rows, columns)

        def multiply() -> None:
            matrix(c, m, n)[...] = self.rounded(matrix(a, m, k)) @ self.rounded(matrix(b, k, n))

        return Stage(lambda: self.device.enqueue(multiply))

    @staticmethod
    def rounded(matrix: Any) -> Any:
        """What the units that multiply take: all bits."""
        return matrix
