"""Programs of suite `gpu` that compute nothing: copies to, from and on a GPU, and launches of an empty kernel."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collbench.bindings.gpu.cupy_device import Grid
from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE, Device
from collbench.bindings.operations import page_aligned
from collbench.collectives.row import Array
from collbench.timing.loop import Stage
from collbench.workloads.gpu.device import OpenGpu, Timer, copying, in_turn, waiting

#: cudaMemcpyKind, as those that are imported.
DEVICE_TO_DEVICE = 3


@dataclass(frozen=True)
class MemoryPlace:
    """Memory on the host or on the device: its address, and how the program writes and reads it."""

    address: int
    write: Callable[[Array], None]
    read: Callable[[], Array]


def on_device(device: Device, size: int) -> MemoryPlace:
    memory = device.allocate(size)

    def read() -> Array:
        values = np.empty(size, np.uint8)
        device.read(memory.address, values)
        return values

    return MemoryPlace(memory.address, partial(device.write, memory.address), read)


def on_host(device: Device, size: int, memory: str) -> MemoryPlace:
    """Page-locked, or what malloc gives: the driver then copies through memory of its own."""
    array = device.pinned(size) if memory == "pinned" else page_aligned(1, size, "uint8")[0]
    return MemoryPlace(array.ctypes.data, partial(np.copyto, array), array.copy)


def copy(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """Each way's last timed copy is what is checked: `wrong` are bytes that did not arrive."""
    device, size = gpu.device, flags.size
    host, here, there = on_host(device, size, flags.memory), on_device(device, size), on_device(device, size)
    sent = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    timer, wrong = Timer(device, flags.times), 0
    for name, target, source, kind in (
        ("h2d", here, host, HOST_TO_DEVICE), ("d2h", host, here, DEVICE_TO_HOST), ("d2d", there, here, DEVICE_TO_DEVICE)
    ):  # fmt: skip
        copy = copying(device, target.address, source.address, size, kind)
        source.write(sent)
        target.write(~sent)
        timer.take(name, copy)
        wrong += int(np.count_nonzero(target.read() != sent))
        timer.by_events(copy, f"{name} device_ns")
    return timer.result(wrong)


#: Launches in a graph.
GRAPH = 100

ONE_THREAD = Grid((1, 1), (1, 1))


def ways(device: Device, launch: Stage, burst: int) -> dict[str, tuple[Stage, int]]:
    """How a burst of launches is made: an operation, and how often.

    `issue` does not wait for the kernels; `issue_wait` waits for each; `graph` for each graph of them.
    """
    wait = waiting(device)
    return {
        "issue": (launch, burst),
        "issue_wait": (in_turn(launch, wait), burst),
        "graph": (in_turn(device.capture(launch.python, GRAPH), wait), burst // GRAPH),
    }


def missed(gpu: OpenGpu, counting: Stage, counter: int, burst: int) -> int:
    """Of one burst in each way, with a kernel that counts: launches too few or too many."""
    wrong, counted = 0, np.zeros(1, np.uint32)
    for name, way in ways(gpu.device, counting, burst).items():
        gpu.device.write(counter, np.zeros(1, np.uint32))
        Timer(gpu.device, 1).take(name, *way, waits=False)
        gpu.device.read(counter, counted)
        wrong += abs(int(counted[0]) - burst)
    return wrong


def launch(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """The check first: what is timed does nothing that could be checked. `wrong` are launches that were not counted."""
    kernels, timer = gpu.compiled("launch"), Timer(gpu.device, flags.times)
    counter = gpu.device.allocate(4)
    nothing, counting = kernels.launch("nothing", ONE_THREAD), kernels.launch("count", ONE_THREAD, counter)
    timer.warm(nothing, counting)
    wrong = missed(gpu, counting, counter.address, flags.burst)
    for name, way in ways(gpu.device, nothing, flags.burst).items():
        timer.take(name, *way, waits=False)
    timer.by_events(nothing)
    return timer.result(wrong)
