"""`python -m collbench.workloads.programs.gpu.copy --size BYTES --memory KIND --times N`: copies to, from and on a GPU.

Prints JSON: `ns`, the times of each way; `wrong`, bytes that did not arrive; `figures`, medians by the GPU's own clock.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE, Device
from collbench.bindings.operations import page_aligned
from collbench.collectives.row import Array
from collbench.workloads.programs.gpu.opened import OpenGpu, printed
from collbench.workloads.programs.gpu.timer import Timer, copying

#: cudaMemcpyKind, as those that are imported.
DEVICE_TO_DEVICE = 3


@dataclass(frozen=True)
class Place:
    """Memory on the host or on the device: its address, and how the program writes and reads it."""

    address: int
    write: Callable[[Array], None]
    read: Callable[[], Array]


def on_device(device: Device, size: int) -> Place:
    memory = device.allocate(size)

    def read() -> Array:
        values = np.empty(size, np.uint8)
        device.read(memory.address, values)
        return values

    return Place(memory.address, partial(device.write, memory.address), read)


def on_host(device: Device, size: int, memory: str) -> Place:
    """Page-locked, or what malloc gives: the driver then copies through memory of its own."""
    array = device.pinned(size) if memory == "pinned" else page_aligned(1, size, "uint8")[0]
    return Place(array.ctypes.data, partial(np.copyto, array), array.copy)


def run(gpu: OpenGpu, flags: argparse.Namespace) -> dict[str, Any]:
    """Each way's last timed copy is what is checked."""
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


if __name__ == "__main__":
    sys.exit(printed(__doc__, (("size", int, "bytes of a copy"), ("memory", str, "pinned or pageable")), run))
