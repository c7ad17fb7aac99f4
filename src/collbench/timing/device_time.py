"""How long operations take by the device's own clock, between two events in its stream.

The events cost host time, so the operations timed here are not samples: they run after the samples were taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collbench.timing.call import Call, Stage, Stopwatch
from collbench.timing.gates import GateSetting
from collbench.timing.loop import Clock, block_at_exit, empty_stamps, gc_paused, run_loop


def native_device_times(call: Call, watch: Stopwatch, gate: GateSetting, n: int) -> NDArray[np.float64]:
    """Seconds [n]; C issues operations and events.

    Raises:
        LibraryError: the library returned an error.
    """
    stages: tuple[Stage, ...] = (watch.start, *call.stages, watch.stop)
    issued = tuple(native for stage in stages for native in stage.native or ())
    milliseconds = np.zeros(n, np.float32)
    assert watch.native_read is not None and watch.cell is not None
    reading = (watch.native_read, int(watch.cell.ctypes.data))
    run_loop(call, (issued,), gate, 1, empty_stamps(call, n), reading, milliseconds)
    return milliseconds.astype(np.float64) * 1e-3


def python_device_times(call: Call, watch: Stopwatch, gate: GateSetting, n: int, clock: Clock) -> NDArray[np.float64]:
    """Seconds [n]; Python issues operations and events."""
    seconds = np.zeros(n)
    complete = (lambda: None) if call.completion is None else call.completion.python
    with gc_paused(), block_at_exit(call.halt):
        for i in range(n):
            gate.wait(clock)
            watch.start.python()
            for stage in call.stages:
                call.halt.block_if_set()
                stage.python()
            watch.stop.python()
            complete()
            seconds[i] = watch.read() * 1e-3
    return seconds
