"""The device: memory, one stream, copies, events, graphs. It writes down what is called, in order."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from collbench.backends.parts.gpu.shared_library import to_word
from collbench.collectives.row import Array, C
from collbench.errors import Unsupported
from collbench.schema.manifest import Gpu
from collbench.timing.call import Native, Stage, Stopwatch

STREAM = 0x57AEA
INVALID = 1  # cudaErrorInvalidValue
MOST = 12  # words of a C call
SIZE = int(os.environ.get("DOUBLE_MEMORY", 1 << 30))

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


class Functions:
    """C functions made of Python ones: each returns 0, or the code that it raises as `Code`."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace
        self._made: dict[str, tuple[Any, int]] = {}

    def add(self, name: str, python: Callable[..., object], words: int) -> None:
        """`python` gets the words as unsigned integers."""

        def called(*given: int) -> int:
            self.trace.append(name)
            try:
                python(*given)
            except Code as code:
                return code.number
            return 0

        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * words)(called)
        self._made[name] = (function, words)

    def native(self, call: C) -> Native | None:
        if call.function not in self._made:
            return None
        function, words = self._made[call.function]
        assert len(call.arguments) == words, f"{call.function} takes {words} arguments"
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return Native((address, *map(to_word, call.arguments)), lambda code: f"double: {code}")


class Code(RuntimeError):
    """An error code of the library."""

    def __init__(self, number: int) -> None:
        super().__init__(f"double: error {number}")
        self.number = number


class Hidden:
    """Device memory: an address that nobody may touch, and the same pages where only the device looks."""

    def __init__(self, device: DoubleDevice, size: int) -> None:
        room = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        file = os.memfd_create("double")
        os.ftruncate(file, room)
        self.size = size
        self._view = mmap.mmap(file, room)
        self.address = int(_libc.mmap(None, room, 0, mmap.MAP_SHARED, file, 0))
        self.bytes = np.frombuffer(self._view, np.uint8)[:size]
        os.close(file)
        self._device, self._room = device, room
        device.memories[self.address] = self.bytes

    def __del__(self) -> None:
        self._device.memories.pop(self.address, None)
        _libc.munmap(ctypes.c_void_p(self.address), ctypes.c_size_t(self._room))


class DoubleDevice:
    """See `collbench.backends.parts.gpu.device.Device`."""

    def __init__(self, uuid: str) -> None:
        self.facts = Gpu(uuid=uuid, name="Double", memory=SIZE, bus="0000:00:00.0", driver="0")
        self.stream = STREAM
        self.memories: dict[int, Array] = {}
        self.queue: list[Callable[[], object]] = []
        self.capturing: list[Callable[[], object]] | None = None
        self.graphs: list[list[Callable[[], object]]] = []
        self.events = np.zeros(64, np.int64)
        self.used = 0
        self.trace: list[str] = []
        self._functions = Functions(self.trace)
        for name, python, words in (
            ("cudaMemcpyAsync", self._copy_words, 5),
            ("cudaStreamSynchronize", self._wait_words, 1),
            ("cudaEventRecord", self._record_words, 2),
            ("cudaEventElapsedTime", self._elapsed_words, 3),
            ("cudaGraphLaunch", self._launch_words, 2),
        ):
            self._functions.add(name, python, words)
        self.native = self._functions.native

    def allocate(self, size: int) -> Hidden:
        used = sum(memory.nbytes for memory in self.memories.values())
        if used + size > SIZE:
            raise MemoryError(f"{self.facts.name}: {size} bytes are asked for, {SIZE - used} of {SIZE} are free")
        return Hidden(self, size)

    def free(self) -> tuple[int, int]:
        return SIZE - sum(memory.nbytes for memory in self.memories.values()), SIZE

    def pinned(self, size: int) -> Array:
        return np.zeros(size, np.uint8)

    def at(self, address: int, size: int) -> Array | None:
        """The device's own view of its memory; None where the address is the host's."""
        for start, memory in self.memories.items():
            if start <= address < start + max(memory.nbytes, 1):
                assert address + size <= start + memory.nbytes, "beyond the end of device memory"
                return memory[address - start : address - start + size]
        return None

    def enqueue(self, work: Callable[[], object]) -> None:
        (self.queue if self.capturing is None else self.capturing).append(work)

    def copy(self, target: int, source: int, size: int, kind: int) -> None:
        there, here = self.at(target, size), self.at(source, size)
        if (kind == 1) != (there is not None) or (kind == 2) != (here is not None):
            raise Code(INVALID)
        host = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(target if there is None else source))
        self.enqueue(partial(np.copyto, host if there is None else there, host if here is None else here))

    def synchronize(self) -> None:
        queue, self.queue = self.queue, []
        for work in queue:
            work()

    def read(self, address: int, into: Array) -> None:
        here = self.at(address, into.nbytes)
        assert here is not None
        into.view(np.uint8)[...] = here

    def write(self, address: int, values: Array) -> None:
        there = self.at(address, values.nbytes)
        assert there is not None
        there[...] = values.view(np.uint8)

    def array(self, address: int, count: int, dtype: str, keep: object) -> Any:
        raise Unsupported("the double has no arrays")

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

    def capture(self, issue: Callable[[], object], times: int) -> Stage:
        self.capturing = []
        for _ in range(times):
            issue()
        self.graphs.append(self.capturing)
        self.capturing = None
        number = len(self.graphs)
        native = self.native(C("cudaGraphLaunch", number, self.stream))
        assert native is not None
        return Stage(lambda: self._launch_words(number, self.stream), (native,))

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
        self.queue += self.graphs[graph - 1]

    @staticmethod
    def check(stream: int) -> None:
        if stream != STREAM:
            raise Code(INVALID)
