"""What a backend asks of a GPU, whichever package answers; the buffers that rows get from it; NVIDIA's libraries."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from collbench.bindings.spec import Buffer, HostBuffer, numpy_dtype, to_word
from collbench.collectives.row import Array, C, CallStep, CollectiveCase
from collbench.errors import BackendUnavailable, to_install
from collbench.machine.cgroup import text_of
from collbench.schema.axes import DTYPES
from collbench.schema.manifest import Gpu
from collbench.timing.loop import Native, Stage, Stopwatch
from collbench.units import format_bytes

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind, of the CUDA runtime's driver_types.h


class Memory(Protocol):
    """Device memory, freed with this object."""

    @property
    def address(self) -> int: ...


class Device(Protocol):
    """One GPU, with a `stream` of its own (a cudaStream_t) in which everything happens in order.

    `allocate` and `pinned` (page-locked host memory, uint8) raise MemoryError, with what is free. `free` is (free,
    total) in bytes. `native` is a call of the CUDA runtime as words; None where it lacks the function. `copy` enqueues
    a copy between two addresses, and returns at once where the memory is page-locked; `synchronize` waits for all that
    is enqueued. `read` and `write` copy at once, outside the stream: what is still enqueued is not waited for. `array`
    is an array [count] of this package (CuPy) at an address, of `RAW_DTYPES`. `stopwatch`: two events of the stream.
    `capability` is its compute capability.
    """

    facts: Gpu
    capability: tuple[int, int]
    stream: int

    def allocate(self, size: int) -> Memory: ...
    def free(self) -> tuple[int, int]: ...
    def pinned(self, size: int) -> Array: ...
    def native(self, call: C) -> Native | None: ...
    def copy(self, target: int, source: int, size: int, kind: int) -> None: ...
    def synchronize(self) -> None: ...
    def read(self, address: int, into: Array) -> None: ...
    def write(self, address: int, values: Array) -> None: ...
    def array(self, address: int, count: int, dtype: str, keep: object) -> Any: ...
    def stopwatch(self) -> Stopwatch: ...

    def capture(self, issue: Callable[[], object], times: int) -> Stage:
        """A graph of what `issue` enqueues when called `times` times, as a stage that launches it.

        Raises Unsupported: something in it cannot be captured.
        """


class DeviceBlocks:
    """[blocks, count] elements in device memory, a `Buffer` that can be sliced along the blocks.

    It is accessed by copies alone, outside the stream: in the stream they would come after an operation that was not
    waited for, and a missing wait would go unnoticed.
    """

    def __init__(self, device: Device, memory: Memory, blocks: int, count: int, dtype: str, offset: int = 0) -> None:
        self.device, self.memory = device, memory
        self.shape, self.name, self.dtype = (blocks, count), dtype, numpy_dtype(dtype)
        self.block_size = count * DTYPES[dtype]
        self.offset = offset  # in bytes

    @property
    def address(self) -> int:
        """Of the first element."""
        return self.memory.address + self.offset

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, blocks: slice) -> DeviceBlocks:
        first, stop, _ = blocks.indices(self.shape[0])
        offset = self.offset + first * self.block_size
        return DeviceBlocks(self.device, self.memory, max(stop - first, 0), self.shape[1], self.name, offset)

    def __array__(self, *_: object) -> Array:
        raise TypeError("this is device memory; copy it to the host first")

    def array(self) -> Any:
        return self.device.array(self.address, self.shape[0] * self.shape[1], self.name, self.memory)

    def _address(self, block: int, start: int) -> int:
        return self.address + block * self.block_size + start * DTYPES[self.name]

    def load(self, block: int, start: int, stop: int) -> Array:
        values = np.empty(stop - start, self.dtype)
        self.device.read(self._address(block, start), values)
        return values

    def store(self, block: int, start: int, values: Array) -> None:
        self.device.write(self._address(block, start), np.ascontiguousarray(values, self.dtype))


def buffer_of(blocks: DeviceBlocks | Array) -> Buffer:
    """Where a row's input is written or its result appears: on the device, or on a rank without one on the host."""
    return blocks if isinstance(blocks, DeviceBlocks) else HostBuffer(blocks)


def no_room(device: Device, size: int) -> str:
    free, total = device.free()
    return (
        f"{device.facts.name} {device.facts.uuid}: {format_bytes(size)} are asked for, {format_bytes(free)} of "
        f"{format_bytes(total)} are free"
    )


def host_blocks(
    device: Device | None, case: CollectiveCase, blocks: int, count: int, pageable: Callable[[], Array]
) -> Array:
    """[blocks, count] in pinned or pageable host memory, as the case says; on a rank without a GPU always pageable."""
    if device is None or case.staging != "pinned":
        return pageable()
    raw = device.pinned(blocks * count * DTYPES[case.dtype])
    return raw.view(numpy_dtype(case.dtype)).reshape(blocks, count)


def copy_step(device: Device, target: int, source: int, size: int, kind: int) -> CallStep:
    what = (target, source, size, kind)
    return CallStep(partial(device.copy, *what), (C("cudaMemcpyAsync", *what, device.stream),))


def wait_step(device: Device) -> CallStep:
    return CallStep(device.synchronize, (C("cudaStreamSynchronize", device.stream),))


def issued(device: Device, step: CallStep) -> Stage:
    """A call of the CUDA runtime in both forms."""
    (call,) = step.c
    native = device.native(call)
    return Stage(step.python, None if native is None else (native,))


def how_to_install() -> str:
    """CuPy and NVIDIA's libraries."""
    return f"{to_install('cuda12')}, or for a driver that supports CUDA 13 {to_install('cuda13')}"


@dataclass(frozen=True)
class SharedLibrary:
    """A library in this process. `path` is what the memory map says."""

    path: str
    handle: ctypes.CDLL

    def address(self, function: str) -> int | None:
        """Where a function begins; None where the library does not have it."""
        symbol = getattr(self.handle, function, None)
        return None if symbol is None else ctypes.cast(symbol, ctypes.c_void_p).value

    def native(self, call: C, explain: Callable[[int], str]) -> Native | None:
        """A call whose arguments are integers and things with an `address` or a NumPy pointer, as words."""
        address = self.address(call.function)
        return None if address is None else Native((address, *map(to_word, call.arguments)), explain)

    def text(self, function: str, *arguments: Any) -> str:
        """What a function that returns a string says; empty where the library does not have it."""
        if (symbol := getattr(self.handle, function, None)) is None:
            return ""
        symbol.restype = ctypes.c_char_p
        return bytes(symbol(*arguments) or b"").decode(errors="replace")


def loaded(name: str, maps: str | None = None) -> tuple[str, ...]:
    """Paths of all libraries `lib{name}.so*` in this process. `maps`: the memory map, if not the process's own."""
    maps = text_of("/proc/self/maps") or "" if maps is None else maps
    paths = re.findall(rf"(/\S*/lib{re.escape(name)}(?:-[0-9a-f]+)?\.so[.\d]*)$", maps, re.MULTILINE)
    return tuple(dict.fromkeys(paths))


def load(name: str, soname: str, only: bool = True) -> SharedLibrary:
    """The library of that name, loaded if none is yet: from a wheel, a toolkit, or the linker's path.

    `only`: a second one in this process is refused; else the first of this soname is taken, whatever else is there.

    Raises BackendUnavailable: there is none, or there are two in this process.
    """
    major = re.escape(soname.partition(".so.")[2])
    for load_from in (lambda *_: None, _from_wheels, _by_path_finder, _by_linker):
        load_from(name, soname)
        if paths := [path for path in loaded(name) if only or re.search(rf"\.so\.{major}(\.|$)", path)]:
            break
    else:
        others = f" (in this process: {', '.join(loaded(name))})" if loaded(name) else ""
        raise BackendUnavailable(
            f"{soname} was not found{others}; {how_to_install()}, or a CUDA toolkit on LD_LIBRARY_PATH"
        )
    if only and len(paths) > 1:
        raise BackendUnavailable(
            f"{len(paths)} different lib{name} are in this process ({', '.join(paths)}), and which of them is measured "
            "is not known. Keep one of their packages installed, or measure their backends in separate runs"
        )
    return _opened(paths[0])


def package_folders(package: str) -> tuple[Path, ...]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ()
    return tuple(Path(folder) for folder in (spec.submodule_search_locations or ())) if spec else ()


@cache
def _opened(path: str) -> SharedLibrary:
    return SharedLibrary(path, ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))


def _from_wheels(_: str, soname: str) -> None:
    """Where NVIDIA's wheels put it, in whichever folder of sys.path they are."""
    for folder in package_folders("nvidia"):
        for path in sorted(folder.glob(f"*/lib/{soname}")):
            _by_linker("", str(path))
            return


def _by_path_finder(name: str, _: str) -> None:
    """Where NVIDIA's cuda.pathfinder looks: wheels, Conda's environments, toolkits. Of any version."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return
    with contextlib.suppress(DynamicLibNotFoundError, RuntimeError):
        load_nvidia_dynamic_lib(name)


def _by_linker(_: str, soname: str) -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL(soname, mode=ctypes.RTLD_GLOBAL)
