"""Samples of an operation on a GPU: by collbench's own loop on the host's clock, and by events of the GPU's."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from collbench.bindings.gpu.device import Device
from collbench.collectives.row import C
from collbench.timing.call import Call, Native, Signals, Stage
from collbench.timing.loop import (
    GateSetting,
    native_device_times,
    python_device_times,
    run_native,
    run_python,
    why_not_native,
)

#: Operations that are timed by events, after the samples.
MOST_BY_EVENTS = 10

#: Why an operation has no form in C: only the call of cuBLAS has none.
TOO_MANY = "cuBLAS takes more arguments than the loop in C passes"


def copying(device: Device, target: int, source: int, size: int, kind: int) -> Stage:
    """cudaMemcpyAsync of `size` bytes between two addresses, in the device's stream."""
    what = (target, source, size, kind)
    return issued(device, partial(device.copy, *what), C("cudaMemcpyAsync", *what, device.stream))


def waiting(device: Device) -> Stage:
    """cudaStreamSynchronize."""
    return issued(device, device.synchronize, C("cudaStreamSynchronize", device.stream))


def issued(device: Device, python: Any, call: C) -> Stage:
    """A call of the CUDA runtime in both forms."""
    native = device.native(call)
    return Stage(python, None if native is None else (native,))


def in_turn(*stages: Stage) -> Stage:
    """Several as one: no clock is read between them."""
    natives: list[Native] = [one for stage in stages for one in stage.native or ()]

    def python() -> None:
        for stage in stages:
            stage.python()

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
        wait = waiting(self.device)
        call = Call((operation,), wait if waits else None, why_not_native=TOO_MANY)
        native = why_not_native(call, self._gate(wait), time.monotonic_ns)
        if native is None:
            stamps = run_native(call, self._gate(wait), self.times, burst)
        else:
            stamps = run_python(call, self._gate(wait), self.times, time.monotonic_ns, burst)
            self.notes[f"driver python: {native}"] = None
        self.device.synchronize()
        self.ns[measure] = [int(one) for one in stamps.left - stamps.entered]

    def by_events(self, operation: Stage, figure: str = "device_ns") -> None:
        """The median time of the operation between two events of the stream, as a figure."""
        wait, watch = waiting(self.device), self.device.stopwatch()
        call = Call((operation,), wait)
        times = min(self.times, MOST_BY_EVENTS)
        gate = self._gate(wait)
        if why_not_native(call, gate, time.monotonic_ns) is None and watch.native_read is not None:
            seconds = native_device_times(call, watch, gate, times)
        else:
            seconds = python_device_times(call, watch, gate, times, time.monotonic_ns)
        self.figures[figure] = float(np.median(seconds) * 1e9)

    def result(self, wrong: int) -> dict[str, Any]:
        """What a program prints."""
        facts = self.device.facts
        driver = f", driver {facts.driver}" if facts.driver else ""
        notes = (f"{facts.name} {facts.uuid}{driver}", *self.notes)
        return {"ns": self.ns, "wrong": wrong, "figures": self.figures, "notes": notes}

    def _gate(self, wait: Stage) -> GateSetting:
        """A barrier that is the wait for the stream."""
        signals = Signals(wait.python, lambda: None, np.zeros(1, np.int64), announces=True)
        if wait.native:
            (native,) = wait.native
            signals = replace(signals, native_barrier=native.words, explain=native.explain)
        return GateSetting("barrier", signals)
