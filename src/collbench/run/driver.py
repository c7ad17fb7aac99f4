"""The driver of a call, native or Python, that all ranks agreed on, for checks and for samples alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Operation, Session, first_value
from collbench.schema.axes import Driver
from collbench.schema.case import Gate
from collbench.timing.gates import GateSetting
from collbench.timing.loop import (
    Stamps,
    native_device_times,
    python_device_times,
    run_native,
    run_python,
    why_not_native,
)

#: The compiled loop takes 4096 calls as one stage, the two events among them.
MOST_CALLS = 4094


@dataclass(frozen=True)
class TimedCall:
    """An operation with its driver. `note` says why it is not the requested one.

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
        """Make one call, without a gate."""
        return self._run(GateSetting("none", self.session.signals), 1, 1)

    def device_times(self, n: int) -> NDArray[np.float64] | None:
        """Seconds [n] of `n` operations by the device's clock; None where this rank has no device. Collective."""
        call, gate = self.operation.call, GateSetting("barrier", self.session.signals)
        _, calls = self.session.world.extremes([sum(len(stage.native or ()) for stage in call.stages)])
        burst = max(min(self.burst, MOST_CALLS // max(int(calls[0]), 1)), 1)
        if call.stopwatch is None:
            self._run(gate, n, burst)
            return None
        repeated = replace(call, stages=call.stages * burst)
        if self.driver == "native":
            times = native_device_times(repeated, call.stopwatch, gate, n)
        else:
            times = python_device_times(repeated, call.stopwatch, gate, n, self.session.clock)
        return times / (burst * self.operations)


def agree_on_driver(
    operation: Operation, requested: Driver, gate: Gate, session: Session, burst: int, operations: int
) -> TimedCall:
    """The requested driver if it works on every rank, else Python on all of them. Collective."""
    reason = None
    if requested == "native":
        reason = why_not_native(operation.call, GateSetting(gate, session.signals), session.clock)
    reason = first_value(session.world, reason)
    if reason is None:
        return TimedCall(operation, session, requested, None, burst, operations)
    return TimedCall(operation, session, "python", f"driver python: {reason}", burst, operations)
