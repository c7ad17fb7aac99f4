"""The form of a call, native or Python, that all ranks agreed on: what is checked is what is timed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Operation, Session, allgather
from collbench.schema.axes import Driver
from collbench.schema.case import Gate
from collbench.timing.device_time import native_device_times, python_device_times
from collbench.timing.gates import GateSetting
from collbench.timing.loop import Stamps, run_native, run_python, why_not_native

#: The compiled loop takes 4096 calls as one stage, the two events among them.
MOST_CALLS = 4094


@dataclass(frozen=True)
class TimedCall:
    """An operation with the driver that runs it. `note` says why it is not the driver that was asked for.

    A sample is `burst` calls, each of `operations` operations.
    """

    operation: Operation
    session: Session
    driver: Driver
    note: str | None
    burst: int = 1
    operations: int = 1

    def run(self, gate: GateSetting, n: int) -> Stamps:
        """Take `n` samples behind the gate.

        Raises:
            LibraryError: the library returned an error on this rank.
        """
        return self._run(gate, n, self.burst)

    def _run(self, gate: GateSetting, n: int, burst: int) -> Stamps:
        call, session = self.operation.call, self.session
        if self.driver == "native":
            return run_native(call, gate, n, burst)
        return run_python(call, gate, n, session.clock, burst)

    def once(self) -> Stamps:
        """One call, without a gate."""
        return self._run(GateSetting("none", self.session.signals), 1, 1)

    def device_times(self, n: int) -> NDArray[np.float64] | None:
        """Seconds [n] of `n` operations by the device's clock; None where this rank has no device. Collective."""
        call, gate = self.operation.call, GateSetting("barrier", self.session.signals)
        calls: int = max(allgather(self.session.world, sum(len(stage.native or ()) for stage in call.stages)))
        burst = max(min(self.burst, MOST_CALLS // max(calls, 1)), 1)
        if call.stopwatch is None:
            self._run(gate, n, burst)
            return None
        repeated = replace(call, stages=call.stages * burst)
        if self.driver == "native":
            found = native_device_times(repeated, call.stopwatch, gate, n)
        else:
            found = python_device_times(repeated, call.stopwatch, gate, n, self.session.clock)
        return found / (burst * self.operations)


def agree_on_driver(
    operation: Operation, asked: Driver, gate: Gate, session: Session, burst: int, operations: int
) -> TimedCall:
    """The driver that was asked for, if every rank can; else Python on all of them. Collective."""
    setting = GateSetting(gate, session.signals)
    mine = why_not_native(operation.call, setting, session.clock) if asked == "native" else None
    reason = next((found for found in allgather(session.world, mine) if found is not None), None)
    driver: Driver = "native" if asked == "native" and reason is None else "python"
    note = None if reason is None else f"driver python: {reason}"
    return TimedCall(operation, session, driver, note, burst, operations)
