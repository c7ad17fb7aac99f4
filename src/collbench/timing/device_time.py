"""How long operations take by the device's own clock, between two events in its stream.

The events cost host time of their own, so operations that are timed here are no samples: they come after them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collbench.timing.call import Call, Stage, Stopwatch
from collbench.timing.gates import GateSetting
from collbench.timing.loop import Clock, left_by, no_collection, room_for, run_loop


def native_device_times(call: Call, watch: Stopwatch, gate: GateSetting, n: int) -> NDArray[np.float64]:
    """Seconds [n], operations and events issued from C.

    Raises:
        LibraryError: the library returned an error.
    """
    parts: tuple[Stage, ...] = (watch.start, *call.stages, watch.stop)
    issued = tuple(one for part in parts for one in part.native or ())
    milliseconds = np.zeros(n, np.float32)
    assert watch.native_read is not None and watch.cell is not None
    reading = (watch.native_read, int(watch.cell.ctypes.data))
    run_loop(call, (issued,), gate, 1, room_for(call, n), reading, milliseconds)
    return milliseconds.astype(np.float64) * 1e-3


def python_device_times(call: Call, watch: Stopwatch, gate: GateSetting, n: int, clock: Clock) -> NDArray[np.float64]:
    """Seconds [n], operations and events issued from Python."""
    found = np.zeros(n)
    complete = (lambda: None) if call.completion is None else call.completion.python
    with no_collection(), left_by(call.halt):
        for i in range(n):
            gate.wait(clock)
            watch.start.python()
            for stage in call.stages:
                call.halt.stay_if_set()
                stage.python()
            watch.stop.python()
            complete()
            found[i] = watch.read() * 1e-3
    return found
