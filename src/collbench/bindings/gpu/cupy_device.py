"""A GPU through CuPy: arrays, streams, events, and the CUDA runtime's functions by address."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import uuid
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE, Memory, no_room
from collbench.bindings.gpu.shared_library import SharedLibrary, how_to_install, load
from collbench.collectives.row import Array, C
from collbench.errors import Unsupported
from collbench.machine import nvml
from collbench.schema.manifest import Gpu
from collbench.timing.call import Native, Stage, Stopwatch
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
    """What NVML knows of the GPU at a bus address."""
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
        self._library = load("cudart", f"libcudart.so.{self._runtime.runtimeGetVersion() // 1000}", only=False)
        self.facts = self._find_facts(uuid)

    def _find_facts(self, uuid: str) -> Gpu:
        bus = self._runtime.deviceGetPCIBusId(self._number)
        nvml_facts, properties = _at(bus), self._runtime.getDeviceProperties(self._number)
        return Gpu(
            uuid=uuid,
            name=properties["name"].decode(),
            memory=int(properties["totalGlobalMem"]),
            bus=bus,
            node=None if nvml_facts is None else nvml_facts.node,
            driver=nvml.driver()[0],
        )

    @property
    def stream(self) -> int:
        return int(self._stream.ptr)

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
        """By cudaHostAlloc; freed with the array."""
        cuda = self._cupy.cuda
        try:
            memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(size, 1)), 0)
        except self._runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            raise MemoryError(f"{format_bytes(size)} of host memory cannot be page-locked") from error
        return np.frombuffer(memory, np.uint8, size)

    def native(self, call: C) -> Native | None:
        return self._library.native(call, partial(_explain, self._library))

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
        cupy_dtype = "uint16" if dtype == "bfloat16" else dtype
        size = count * np.dtype(cupy_dtype).itemsize
        memory = cupy.cuda.UnownedMemory(address, size, keep, self._number)
        return cupy.ndarray((count,), cupy_dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))

    def stopwatch(self) -> Stopwatch:
        """Two CuPy events."""
        cuda = self._cupy.cuda
        start, stop = cuda.Event(), cuda.Event()
        cell = np.zeros(1, np.float32)
        native_read = self.native(C("cudaEventElapsedTime", cell, start.ptr, stop.ptr))
        assert native_read is not None
        return Stopwatch(
            self._record(start),
            self._record(stop),
            partial(cuda.get_elapsed_time, start, stop),
            native_read,
            cell,
        )

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


def _explain(library: SharedLibrary, code: int) -> str:
    function = library.handle.cudaGetErrorString
    function.restype = ctypes.c_char_p
    return bytes(function(code) or b"").decode(errors="replace")
