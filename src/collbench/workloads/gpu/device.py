"""The GPU that a program of this package uses, its memory, and samples of what it does.

They are taken by collbench's own loop on the host's clock, and by events of the GPU's.

`python -m collbench.workloads.gpu.device` prints JSON, `version` and `path` of CuPy; where there is no CuPy, no NVRTC
or no GPU, the reason, with exit code 77.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import numpy as np

from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.cupy_device import Compute, CupyCompute, Kernels
from collbench.bindings.gpu.device import Device, issued, wait_step
from collbench.collectives.row import Array, in_turn
from collbench.errors import BackendUnavailable, LibraryError, Unsupported
from collbench.schema import world
from collbench.timing import loop
from collbench.timing.loop import AlignmentSetting, Call, Signals, Stage, why_not_native
from collbench.workloads.protocol import SKIPPED

#: Bytes that are copied at once.
PART = 64 << 20


class DeviceRows:
    """[rows, columns] float32 in device memory."""

    def __init__(self, device: Device, rows: int, columns: int) -> None:
        self.rows, self.columns, self._device = rows, columns, device
        self._memory = device.allocate(4 * rows * columns)
        self.address = self._memory.address

    def parts(self) -> Iterator[tuple[int, int]]:
        """First and last of rows that are copied together."""
        at_once = max(1, PART // (4 * self.columns))
        for first in range(0, self.rows, at_once):
            yield first, min(first + at_once, self.rows)

    def write(self, first: int, values: Array) -> None:
        """Rows from `first` on. Complete on return."""
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        self._device.write(self.address + 4 * first * self.columns, flat)

    def read(self, first: int, last: int) -> Array:
        """Rows from `first` to before `last`."""
        values = np.empty((last - first, self.columns), np.float32)
        self._device.read(self.address + 4 * first * self.columns, values.reshape(-1))
        return values

    def spoil(self) -> None:
        """Nothing that an operation should have written may be right by accident: NaN everywhere."""
        for first, last in self.parts():
            self.write(first, np.full((last - first, self.columns), np.nan, np.float32))


@dataclass(frozen=True)
class OpenGpu:
    """A GPU, with what computes on it."""

    device: Device
    compute: Compute

    def compiled(self, name: str, **macros: int) -> Kernels:
        """The kernels of a `.cu` file of this package."""
        source = (resources.files(__package__) / f"{name}.cu").read_text(encoding="utf-8")
        return self.compute.compile(source, macros)


def opened() -> OpenGpu:
    """The GPU that was planned for the rank that started this program, else the first; or BackendUnavailable."""
    if (why := cupy_device.missing()) is not None:
        raise BackendUnavailable(why)
    visible = cupy_device.visible()
    uuid = os.environ.get(world.GPU) or visible[0]
    if uuid not in visible:
        raise BackendUnavailable(f"GPU {uuid} was planned, and this process sees {', '.join(visible)}")
    device = cupy_device.CupyDevice(uuid)
    return OpenGpu(device, CupyCompute(device))


def printed(run: Callable[[], dict[str, Any]]) -> int:
    """Print the result of `run` as JSON, or the reason why there is none; returns the exit code."""
    try:
        result = run()
    except (BackendUnavailable, Unsupported, MemoryError, LibraryError) as error:
        sys.stderr.write(f"{error}\n")
        return SKIPPED if isinstance(error, BackendUnavailable | Unsupported) else 1
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def waiting(device: Device) -> Stage:
    """cudaStreamSynchronize."""
    return issued(device, wait_step(device))


def as_one(*stages: Stage) -> Stage:
    """Several as one: no clock is read between them."""
    natives = [native for stage in stages for native in stage.native or ()]
    python = in_turn(*(stage.python for stage in stages))
    return Stage(python, tuple(natives) if all(stage.native is not None for stage in stages) else None)


@dataclass(frozen=True)
class Timer:
    """Takes `times` samples of each measure. Before every sample the stream is empty."""

    device: Device
    times: int
    ns: dict[str, list[int]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def warm(self, *operations: Stage) -> None:
        """Once without a clock: a kernel is loaded when it is launched first."""
        for operation in operations:
            operation.python()
        self.device.synchronize()

    def take(self, measure: str, operation: Stage, burst: int = 1, waits: bool = True) -> None:
        """A sample is `burst` operations, and, if it `waits`, the wait for the stream once after them."""
        wait, align = self._wait_and_align()
        no_form_in_c = "cuBLAS takes more arguments than the loop in C passes"  # the only call without a form in C
        call = Call((operation,), wait if waits else None, why_not_native=no_form_in_c)
        if (why := why_not_native(call, align, time.monotonic_ns)) is None:
            stamps = loop.run_native(call, align, self.times, burst)
        else:
            stamps = loop.run_python(call, align, self.times, time.monotonic_ns, burst)
            self.notes[f"driver python: {why}"] = None
        self.device.synchronize()
        self.ns[measure] = [int(taken) for taken in stamps.left - stamps.entered]

    def by_events(self, operation: Stage, figure: str = "device_ns") -> None:
        """The median time of at most ten operations, each between two events of the stream, as a figure."""
        wait, align = self._wait_and_align()
        call, watch, times = Call((operation,), wait), self.device.stopwatch(), min(self.times, 10)
        if why_not_native(call, align, time.monotonic_ns) is None and watch.native_read is not None:
            seconds = loop.native_device_times(call, watch, align, times)
        else:
            seconds = loop.python_device_times(call, watch, align, times, time.monotonic_ns)
        self.figures[figure] = float(np.median(seconds) * 1e9)

    def sampled(
        self, measure: str, operation: Stage, written: tuple[DeviceRows, ...], check: Callable[[], int], *notes: str
    ) -> dict[str, Any]:
        """What a program of one operation prints; `check` says how much of what it has `written` is wrong."""
        self.warm(operation)
        for rows in written:
            rows.spoil()
        self.take(measure, operation)
        wrong = check()
        self.by_events(operation)
        return self.result(wrong, *notes)

    def result(self, wrong: int, *more: str) -> dict[str, Any]:
        """What a program prints."""
        facts = self.device.facts
        driver = f", driver {facts.driver}" if facts.driver else ""
        notes = (f"{facts.name} {facts.uuid}{driver}", *self.notes, *more)
        return {"ns": self.ns, "wrong": wrong, "figures": self.figures, "notes": notes}

    def _wait_and_align(self) -> tuple[Stage, AlignmentSetting]:
        """The wait for the stream, and a barrier that is this wait."""
        wait = waiting(self.device)
        signals = Signals(wait.python, lambda: None, np.zeros(1, np.int64), announces=True)
        if wait.native:
            (native,) = wait.native
            signals = replace(signals, native_barrier=native.words, explain=native.explain)
        return wait, AlignmentSetting("barrier", signals)


def described() -> dict[str, Any]:
    """`version` and `path` of CuPy, which can compile."""
    compute = opened().compute
    compute.compile("", {})
    return compute.described()


if __name__ == "__main__":
    sys.exit(printed(described))
