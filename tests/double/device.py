"""The device: memory, one stream, copies, events, graphs. It writes down what is called, in order.

What CUDA answers with an error is an error here; what CUDA would not notice until it is too late ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from collbench.bindings.gpu.device import no_room
from collbench.bindings.spec import RAW_DTYPES
from collbench.collectives.row import Array, C
from collbench.errors import Unsupported
from collbench.machine import launcher
from collbench.schema.manifest import Gpu
from collbench.timing.loop import Stage, Stopwatch
from tests.double.functions import Code, Functions, crash

STREAM = 0x57AEA
#: cudaErrorInvalidValue, cudaErrorStreamCaptureUnsupported and cudaErrorStreamCaptureInvalidated of driver_types.h.
INVALID, NOT_IN_CAPTURE, CAPTURE_INVALID = 1, 900, 901
_FULL, _, _LESS = os.environ.get("DOUBLE_FULL", "").partition(":")
SIZE = int(_LESS if str(launcher.detect().rank) == _FULL else os.environ.get("DOUBLE_MEMORY", 1 << 30))
PINNED = int(os.environ.get("DOUBLE_PINNED", 1 << 40))
#: Whether the host may touch device memory, as it may where a CUDA-aware MPI is made up (DOUBLE_CUDA_AWARE).
READABLE = "DOUBLE_CUDA_AWARE" in os.environ

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


class Aborted(Exception):
    """Work that was given up, with everything after it in the stream."""


class Hidden:
    """Device memory: an address that nobody may touch, and the same pages where only the device looks.

    No bytes have the address 0, as cudaMalloc gives it.
    """

    def __init__(self, device: DoubleDevice, size: int) -> None:
        self._device, self._room, self.address = device, 0, 0
        if size == 0:
            return
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        file = os.memfd_create("double")
        os.ftruncate(file, room)
        rights = mmap.PROT_READ | mmap.PROT_WRITE if READABLE else 0
        self.address = int(_libc.mmap(None, room, rights, mmap.MAP_SHARED, file, 0))
        self._room = room
        device.memories[self.address] = np.frombuffer(mmap.mmap(file, room), np.uint8)[:size]
        os.close(file)

    def __del__(self) -> None:
        if self._room:
            self._device.memories.pop(self.address, None)
            _libc.munmap(ctypes.c_void_p(self.address), ctypes.c_size_t(self._room))


class Graph:
    """What was captured, as long as somebody holds it."""

    def __init__(self, device: DoubleDevice, number: int, work: list[Callable[[], object]]) -> None:
        self.number, self.work, self._device = number, work, device

    def launch(self) -> None:
        self._device.queue += self.work


class DoubleDevice:
    """See `collbench.bindings.gpu.device.Device`."""

    def __init__(self, uuid: str) -> None:
        self.facts = Gpu(uuid=uuid, name="Double", memory=SIZE, bus="0000:00:00.0", driver="0")
        major, minor = map(int, os.environ.get("DOUBLE_CAPABILITY", "9.0").split("."))
        self.capability = (major, minor)
        self.stream = STREAM
        self.memories: dict[int, Array] = {}
        self.pages: dict[int, int] = {}  # page-locked host memory: address and bytes
        self.queue: list[Callable[[], object]] = []
        self.capturing: list[Callable[[], object]] | None = None
        self.captures = True
        self.graphs: WeakValueDictionary[int, Graph] = WeakValueDictionary()
        self._graphs = 0
        self.events = np.zeros(64, np.int64)
        self.used = 0
        self.trace: list[str] = []
        self.functions = Functions(self.trace)
        for name, python, words in (
            ("cudaMemcpyAsync", self._copy_words, 5),
            ("cudaStreamSynchronize", self._wait_words, 1),
            ("cudaEventRecord", self._record_words, 2),
            ("cudaEventElapsedTime", self._elapsed_words, 3),
            ("cudaGraphLaunch", self._launch_words, 2),
        ):
            self.functions.add(name, python, words)
        self.native = self.functions.native

    def allocate(self, size: int) -> Hidden:
        self.refuse_in_capture()
        used = sum(memory.nbytes for memory in self.memories.values())
        if used + size > SIZE:
            raise MemoryError(no_room(self, size))
        return Hidden(self, size)

    def free(self) -> tuple[int, int]:
        return SIZE - sum(memory.nbytes for memory in self.memories.values()), SIZE

    def pinned(self, size: int) -> Array:
        self.refuse_in_capture()
        if sum(self.pages.values()) + size > PINNED:
            raise MemoryError(f"{size} bytes of host memory cannot be page-locked")
        array = np.zeros(max(size, 1), np.uint8)
        self.pages[array.ctypes.data] = size
        finalize(array, self.pages.pop, array.ctypes.data, None).atexit = False
        return array[:size]

    def _uses_pages(self, *addresses: int) -> None:
        """Whatever of these is page-locked must still be there when the work happens that is enqueued next."""
        spans = [(start, start + size) for start, size in self.pages.items()]
        pages = {start for start, end in spans for address in addresses if start <= address < end}

        def look() -> None:
            if not self.pages.keys() >= pages:
                crash("work in the stream uses page-locked memory that was freed")

        if pages:
            self.enqueue(look)

    def at(self, address: int, size: int) -> Array | None:
        """The device's own view of its memory; None where the address is the host's."""
        for start, memory in self.memories.items():
            if start <= address < start + memory.nbytes:
                if address + size > start + memory.nbytes:
                    crash("beyond the end of device memory")
                return memory[address - start : address - start + size]
        return None

    def held(self, address: int, size: int) -> Array:
        """As `at`, of memory that was there when the work was enqueued."""
        found = np.zeros(0, np.uint8) if size == 0 else self.at(address, size)
        return crash("work in the stream uses memory that was freed") if found is None else found

    def refuse_in_capture(self) -> None:
        """Raises the code with which CUDA answers what a capture forbids; the capture is lost by it."""
        if self.capturing is not None:
            self.captures = False
            raise Code(NOT_IN_CAPTURE)

    def enqueue(self, work: Callable[[], object]) -> None:
        (self.queue if self.capturing is None else self.capturing).append(work)

    def copy(self, target: int, source: int, size: int, kind: int) -> None:
        if size == 0:
            return
        self._uses_pages(target, source)
        there, here = self.at(target, size), self.at(source, size)
        if (kind in (1, 3)) != (there is not None) or (kind in (2, 3)) != (here is not None):
            raise Code(INVALID)
        outside = [at for at, found in ((target, there), (source, here)) if found is None]
        host = [np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at)) for at in outside]

        def happen() -> None:
            into = host[0] if there is None else self.held(target, size)
            np.copyto(into, host[0] if here is None else self.held(source, size))

        self.enqueue(happen)

    def synchronize(self) -> None:
        self.refuse_in_capture()
        queue, self.queue = self.queue, []
        with contextlib.suppress(Aborted):
            for work in queue:
                work()

    def read(self, address: int, into: Array) -> None:
        self.refuse_in_capture()
        into.view(np.uint8)[...] = self.held(address, into.nbytes)

    def write(self, address: int, values: Array) -> None:
        self.refuse_in_capture()
        self.held(address, values.nbytes)[...] = values.view(np.uint8)

    def array(self, address: int, count: int, dtype: str, keep: object) -> Any:
        """What mpi4py takes for an array on a GPU, as CuPy's is."""
        if not READABLE:
            raise Unsupported("the double's memory cannot be read by an MPI")
        kind = np.dtype(RAW_DTYPES.get(dtype, dtype)).str
        described = {"shape": (count,), "typestr": kind, "data": (address, False), "version": 3, "strides": None}
        return SimpleNamespace(__cuda_array_interface__=described, keep=keep)

    def stopwatch(self) -> Stopwatch:
        first = self.used % 64
        self.used += 2
        start, stop = self.events[first : first + 1], self.events[first + 1 : first + 2]
        cell = np.zeros(1, np.float32)
        native = self.native(C("cudaEventElapsedTime", cell, start, stop))
        assert native is not None
        return Stopwatch(
            self._record(start), self._record(stop), lambda: float(stop[0] - start[0]) * 1e-6, native, cell
        )

    def _record(self, event: Array) -> Stage:
        native = self.native(C("cudaEventRecord", event, self.stream))
        assert native is not None
        return Stage(lambda: self.enqueue(lambda: event.fill(time.monotonic_ns())), (native,))

    @contextlib.contextmanager
    def _capture(self) -> Iterator[list[Callable[[], object]]]:
        """What is enqueued meanwhile, in place of being done."""
        work: list[Callable[[], object]] = []
        self.capturing, self.captures = work, True
        try:
            yield work
        finally:
            self.capturing = None

    def capture(self, issue: Callable[[], object], times: int) -> Stage:
        try:
            with self._capture() as work:
                for _ in range(times):
                    issue()
            if not self.captures:
                raise Code(CAPTURE_INVALID)
        except RuntimeError as error:
            raise Unsupported(f"it cannot be captured into a CUDA graph ({error})") from error
        self._graphs += 1
        graph = self.graphs[self._graphs] = Graph(self, self._graphs, work)
        native = self.native(C("cudaGraphLaunch", graph.number, self.stream))
        assert native is not None
        return Stage(graph.launch, (native,))

    def _copy_words(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        self.check(stream)
        self.copy(target, source, size, kind)

    def _wait_words(self, stream: int) -> None:
        self.check(stream)
        self.synchronize()

    def _record_words(self, event: int, stream: int) -> None:
        self.check(stream)
        cell = ctypes.c_int64.from_address(event)
        self.enqueue(lambda: setattr(cell, "value", time.monotonic_ns()))

    def _elapsed_words(self, into: int, start: int, stop: int) -> None:
        began, ended = ctypes.c_int64.from_address(start).value, ctypes.c_int64.from_address(stop).value
        ctypes.c_float.from_address(into).value = (ended - began) * 1e-6

    def _launch_words(self, graph: int, stream: int) -> None:
        self.check(stream)
        found = self.graphs.get(graph)
        self.queue += crash("a graph is launched that was destroyed") if found is None else found.work

    @staticmethod
    def check(stream: int) -> None:
        if stream != STREAM:
            raise Code(INVALID)
