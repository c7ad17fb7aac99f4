"""A GPU through CuPy: memory, streams, events, the CUDA runtime's functions by address; kernels and matrix products."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from collbench.bindings.gpu.device import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Device,
    Memory,
    SharedLibrary,
    how_to_install,
    load,
    no_room,
)
from collbench.bindings.spec import RAW_DTYPES, to_word
from collbench.collectives.row import Array, C
from collbench.errors import BackendUnavailable, Unsupported, to_install
from collbench.machine import nvml
from collbench.schema.manifest import Gpu
from collbench.timing.loop import Native, Stage, Stopwatch
from collbench.units import format_bytes

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


def missing() -> str | None:
    """Why CuPy finds no GPU here; None when it does. Makes no context."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {how_to_install()}"
    import cupy

    runtime = cupy.cuda.runtime
    supported, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if supported == 0:
        return "no NVIDIA driver is loaded (in a container: it was started without --gpus)"
    if supported // 1000 < needed // 1000:
        return (
            f"the driver is too old: it supports CUDA {_version(supported)}, and this CuPy is made for "
            f"{_version(needed)}. Update the driver, or pip install cupy-cuda{supported // 1000}x in place of this CuPy"
        )
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return f"no CUDA device is visible ({error})"
    return None if count else "no CUDA device is visible (CUDA_VISIBLE_DEVICES hides them all?)"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@cache
def visible() -> tuple[str, ...]:
    """UUIDs of the GPUs that this process may use, in CUDA's order; a bus address where the UUID is unknown.

    Of a GPU that is split into MIG devices a process sees one, which has the GPU's address and a UUID of its own.
    """
    import cupy

    runtime = cupy.cuda.runtime
    return tuple(_uuid(runtime, number) for number in range(runtime.getDeviceCount()))


def _uuid(runtime: Any, number: int) -> str:
    bus = runtime.deviceGetPCIBusId(number)
    whole = _at(bus)
    if whole is not None and not whole.mig:
        return whole.uuid
    raw = runtime.getDeviceProperties(number).get("uuid", b"")
    if len(raw) == 16:  # CuPy cuts it off at a zero byte
        return nvml.spelled(str(uuid.UUID(bytes=raw)))
    selected = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    is_one_mig_device = whole is not None and selected.startswith("MIG-") and "," not in selected
    return selected if is_one_mig_device else bus


def _at(bus: str) -> nvml.GpuFacts | None:
    return next((gpu for gpu in nvml.gpus()[0] if _short(gpu.bus_id) == _short(bus)), None)


def _short(bus: str) -> str:
    """NVML writes 00000000:65:00.0 and CUDA 0000:65:00.0."""
    return bus.lower()[-12:]


class CupyDevice:
    """See `Device`. Makes the GPU the current one of the calling thread."""

    def __init__(self, uuid: str) -> None:
        import cupy

        self._cupy, self._runtime = cupy, cupy.cuda.runtime
        self._number = visible().index(uuid)
        self._runtime.setDevice(self._number)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.stream = int(self._stream.ptr)
        self._library = load("cudart", f"libcudart.so.{self._runtime.runtimeGetVersion() // 1000}", only=False)
        bus, properties = self._runtime.deviceGetPCIBusId(self._number), self._runtime.getDeviceProperties(self._number)
        name, memory = properties["name"].decode(), int(properties["totalGlobalMem"])
        node, driver = getattr(_at(bus), "node", None), nvml.driver()[0]
        self.facts = Gpu(uuid=uuid, name=name, memory=memory, bus=bus, node=node, driver=driver)
        self.capability = (int(properties["major"]), int(properties["minor"]))

    def allocate(self, size: int) -> Memory:
        """By cudaMalloc, without CuPy's memory pool: what is freed can be used by others at once."""
        try:
            return _Memory(self._cupy.cuda.Memory(size))
        except self._runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            raise MemoryError(no_room(self, size)) from error

    def free(self) -> tuple[int, int]:
        free, total = self._runtime.memGetInfo()
        return int(free), int(total)

    def pinned(self, size: int) -> Array:
        cuda = self._cupy.cuda
        try:
            memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(size, 1)), 0)
        except self._runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            raise MemoryError(f"{format_bytes(size)} of host memory cannot be page-locked") from error
        return np.frombuffer(memory, np.uint8, size)

    def native(self, call: C) -> Native | None:
        return self._library.native(call, lambda code: self._library.text("cudaGetErrorString", code))

    def copy(self, target: int, source: int, size: int, kind: int) -> None:
        self._runtime.memcpyAsync(target, source, size, kind, self.stream)

    def synchronize(self) -> None:
        self._stream.synchronize()

    def read(self, address: int, into: Array) -> None:
        """cudaMemcpy: in the default stream, which ours does not wait for, nor it for ours."""
        self._runtime.memcpy(into.ctypes.data, address, into.nbytes, DEVICE_TO_HOST)

    def write(self, address: int, values: Array) -> None:
        """cudaMemcpy, and a wait: from pageable memory it may return before the last bytes have arrived."""
        self._runtime.memcpy(address, values.ctypes.data, values.nbytes, HOST_TO_DEVICE)
        self._runtime.streamSynchronize(0)

    def array(self, address: int, count: int, dtype: str, keep: object) -> Any:
        cupy = self._cupy
        cupy_dtype = RAW_DTYPES.get(dtype, dtype)
        size = count * np.dtype(cupy_dtype).itemsize
        memory = cupy.cuda.UnownedMemory(address, size, keep, self._number)
        return cupy.ndarray((count,), cupy_dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))

    def stopwatch(self) -> Stopwatch:
        cuda = self._cupy.cuda
        start, stop = cuda.Event(), cuda.Event()
        cell = np.zeros(1, np.float32)
        native_read = self.native(C("cudaEventElapsedTime", cell, start.ptr, stop.ptr))
        assert native_read is not None
        read = partial(cuda.get_elapsed_time, start, stop)
        return Stopwatch(self._record(start), self._record(stop), read, native_read, cell)

    def _record(self, event: Any) -> Stage:
        native = self.native(C("cudaEventRecord", event.ptr, self.stream))
        return Stage(partial(event.record, self._stream), None if native is None else (native,))

    def capture(self, issue: Callable[[], object], times: int) -> Stage:
        """A graph from stream capture."""
        runtime = self._runtime
        runtime.streamBeginCapture(self.stream, runtime.streamCaptureModeThreadLocal)
        try:
            for _ in range(times):
                issue()
        except RuntimeError as error:
            with contextlib.suppress(runtime.CUDARuntimeError):  # the first error is the cause
                runtime.streamEndCapture(self.stream)
            raise Unsupported(f"it cannot be captured into a CUDA graph ({error})") from error
        try:
            launched = _Graph(runtime, runtime.streamEndCapture(self.stream), self.stream)
        except runtime.CUDARuntimeError as error:
            if error.status == _OUT_OF_MEMORY:
                raise MemoryError(f"a CUDA graph of {times} does not fit: {error}") from error
            raise Unsupported(f"it cannot be captured into a CUDA graph ({error})") from error
        native = self.native(C("cudaGraphLaunch", launched.executable, self.stream))
        return Stage(launched.launch, None if native is None else (native,))


class _Memory:
    def __init__(self, memory: Any) -> None:
        self._memory = memory  # freed with this object
        self.address = int(memory.ptr)


class _Graph:
    def __init__(self, runtime: Any, graph: int, stream: int) -> None:
        self._runtime, self._graph, self._stream = runtime, graph, stream
        self.executable = 0
        self.executable = runtime.graphInstantiate(graph)

    def launch(self) -> None:
        self._runtime.graphLaunch(self.executable, self._stream)

    def __del__(self) -> None:
        if self.executable:
            self._runtime.graphExecDestroy(self.executable)
        self._runtime.graphDestroy(self._graph)


Argument = Memory | int  # an argument of a kernel: device memory, or an integer of at most 64 bits

#: cublasMath_t and cublasOperation_t of cuBLAS's cublas_api.h. In the default mode no product of float32 is rounded to
#: TF32 first.
DEFAULT_MATH, NOT_TRANSPOSED = 0, 0


def how_to_install_compute() -> str:
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
    """What computes on a device; raises BackendUnavailable without a compiler, or without cuBLAS.

    `compile` takes CUDA C++ whose kernels are extern "C"; `described` is `version` and `path` of the package. `sgemm`:
    C = A B in float32 without TF32; A [m, k], B [k, n] and C [m, n] in C order. Issued in the device's stream.
    """

    def compile(self, source: str, macros: Mapping[str, int]) -> Kernels: ...
    def described(self) -> dict[str, str]: ...
    def sgemm(self, m: int, n: int, k: int, a: Memory, b: Memory, c: Memory) -> Stage: ...


class KernelLaunch:
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
            raise BackendUnavailable(f"NVRTC cannot be used ({error}); {how_to_install_compute()}") from error
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
            raise BackendUnavailable(f"cuBLAS cannot be used ({error}); {how_to_install_compute()}") from error
        cublas.setMathMode(handle, DEFAULT_MATH)
        scale = np.array([1, 0], np.float32)
        one, zero = scale.ctypes.data, scale.ctypes.data + scale.itemsize
        no, factors = NOT_TRANSPOSED, (b.address, n, a.address, k)
        multiply = partial(cublas.sgemm, handle, no, no, n, m, k, one, *factors, zero, c.address, n)
        return Stage(partial(_holding, multiply, scale))


def _holding(call: Callable[[], object], *held: object) -> None:
    """Make a call, as a partial that holds what it reads."""
    call()


class _CupyKernels:
    def __init__(self, cupy: Any, device: Device, module: Any) -> None:
        self._cupy, self._device, self._module = cupy, device, module

    def launch(self, name: str, grid: Grid, *arguments: Argument) -> Stage:
        function = self._module.get_function(name).kernel  # compiles at the first
        launch = KernelLaunch(int(function.ptr), grid, self._device.stream, arguments)
        library = driver_library()
        native = library.native(C("cuLaunchKernel", *launch.words), partial(explained, library))
        python = partial(self._cupy.cuda.driver.launchKernel, *launch.words)
        return Stage(partial(_holding, python, launch, function), None if native is None else (native,))


def driver_library() -> SharedLibrary:
    """The one in this process, which CuPy has loaded."""
    return SharedLibrary("libcuda.so.1", ctypes.CDLL("libcuda.so.1"))


def explained(library: SharedLibrary, code: int) -> str:
    text = ctypes.c_char_p()
    library.handle.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"").decode(errors="replace")
