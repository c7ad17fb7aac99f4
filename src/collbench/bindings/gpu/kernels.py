"""Kernels of our own and cuBLAS's matrix product, as stages of the timing loop, whichever package launches them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from collbench.bindings.gpu.device import Device, Memory
from collbench.bindings.gpu.shared_library import SharedLibrary, to_word
from collbench.collectives.row import C
from collbench.errors import BackendUnavailable, to_install
from collbench.timing.call import Stage

#: An argument of a kernel: device memory, or an integer of at most 64 bits.
Argument = Memory | int

#: cublasMath_t and cublasOperation_t of cuBLAS's cublas_api.h. In the default mode no product of float32 is rounded to
#: TF32 first.
DEFAULT_MATH, NOT_TRANSPOSED = 0, 0


def how_to_install() -> str:
    """NVRTC and cuBLAS, which CuPy does not contain."""
    return f"{to_install('suites-cuda12')}, or beside a CuPy for CUDA 13 {to_install('suites-cuda13')}"


@dataclass(frozen=True)
class Grid:
    """The shape of a launch: blocks, and threads in each, along x and y."""

    blocks: tuple[int, int]
    threads: tuple[int, int]


class Kernels(Protocol):
    """A compiled source."""

    def launch(self, name: str, grid: Grid, *arguments: Argument) -> Stage:
        """A launch of the kernel of that name, in the device's stream; it returns before the kernel has run."""


class Compute(Protocol):
    """What computes on a device."""

    def compile(self, source: str, macros: Mapping[str, int]) -> Kernels:
        """CUDA C++ whose kernels are extern "C".

        Raises:
            BackendUnavailable: there is no compiler.
        """

    def described(self) -> dict[str, str]:
        """`version` and `path` of the package."""

    def sgemm(self, m: int, n: int, k: int, a: Memory, b: Memory, c: Memory) -> Stage:
        """C = A B in float32 without TF32; A [m, k], B [k, n] and C [m, n] in C order. Issued in the device's stream.

        Raises:
            BackendUnavailable: there is no cuBLAS.
        """


class Launch:
    """A launch as C sees it: the eleven words of cuLaunchKernel. Holds what they point to."""

    def __init__(self, function: int, grid: Grid, stream: int, arguments: tuple[Argument, ...]) -> None:
        count = len(arguments)
        self._values = (ctypes.c_uint64 * count)(*map(to_word, arguments))
        first = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * count)(*(first + 8 * i for i in range(count)))
        shape = (*grid.blocks, 1, *grid.threads, 1)
        self.words = (function, *shape, 0, stream, ctypes.addressof(self._pointers), 0)


class CupyCompute:
    """NVRTC and cuBLAS through CuPy; kernels are launched by the driver's cuLaunchKernel."""

    def __init__(self, device: Device) -> None:
        import cupy

        self._cupy, self._device = cupy, device
        self._current = cupy.cuda.ExternalStream(device.stream)
        self._current.use()  # CuPy calls cuBLAS in the current stream

    def compile(self, source: str, macros: Mapping[str, int]) -> Kernels:
        try:
            from cupy.cuda import nvrtc

            nvrtc.getVersion()
        except (ImportError, RuntimeError, OSError) as error:
            raise BackendUnavailable(f"NVRTC cannot be used ({error}); {how_to_install()}") from error
        options = ("-std=c++14", *(f"-D{name}={value}" for name, value in macros.items()))
        return _CupyKernels(self._cupy, self._device, self._cupy.RawModule(code=source, options=options))

    def described(self) -> dict[str, str]:
        return {"version": self._cupy.__version__, "path": self._cupy.__file__}

    def sgemm(self, m: int, n: int, k: int, a: Memory, b: Memory, c: Memory) -> Stage:
        """As the product of the transposed matrices, which they are in cuBLAS's column-major order."""
        try:
            from cupy.cuda import cublas

            handle = cublas.create()
        except (ImportError, RuntimeError, OSError) as error:
            raise BackendUnavailable(f"cuBLAS cannot be used ({error}); {how_to_install()}") from error
        cublas.setMathMode(handle, DEFAULT_MATH)
        scale = np.array([1, 0], np.float32)
        one, zero = scale.ctypes.data, scale.ctypes.data + scale.itemsize
        no, factors = NOT_TRANSPOSED, (b.address, n, a.address, k)
        multiply = partial(cublas.sgemm, handle, no, no, n, m, k, one, *factors, zero, c.address, n)
        return Stage(_Holding(multiply, scale))


class _Holding:
    """A call, and what it reads."""

    def __init__(self, call: partial[object], *held: object) -> None:
        self._call, self._held = call, held

    def __call__(self) -> None:
        self._call()


class _CupyKernels:
    def __init__(self, cupy: Any, device: Device, module: Any) -> None:
        self._cupy, self._device, self._module = cupy, device, module

    def launch(self, name: str, grid: Grid, *arguments: Argument) -> Stage:
        function = self._module.get_function(name).kernel  # compiles at the first
        launch = Launch(int(function.ptr), grid, self._device.stream, arguments)
        library = driver_library()
        native = library.native(C("cuLaunchKernel", *launch.words), partial(explained, library))
        python = partial(self._cupy.cuda.driver.launchKernel, *launch.words)
        return Stage(_Holding(python, launch, function), None if native is None else (native,))


def driver_library() -> SharedLibrary:
    """The one in this process, which CuPy has loaded."""
    return SharedLibrary("libcuda.so.1", ctypes.CDLL("libcuda.so.1"))


def explained(library: SharedLibrary, code: int) -> str:
    """The driver's words for a code."""
    text = ctypes.c_char_p()
    library.handle.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"").decode(errors="replace")
