"""The form of a call, native or Python, that all ranks agreed on: what is checked is what is timed."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.backends.parts.interface import Operation, Session, allgather
from collbench.schema.case import Driver, Gate
from collbench.timing.gates import GateSetting
from collbench.timing.loop import Stamps, run_native, run_python, why_not_native


@dataclass(frozen=True)
class Form:
    """An operation with the driver that runs it. `note` says why it is not the driver that was asked for."""

    operation: Operation
    session: Session
    driver: Driver
    note: str | None

    def run(self, gate: GateSetting, n: int) -> Stamps:
        """Run `n` operations behind the gate.

        Raises:
            LibraryError: the library returned an error on this rank.
        """
        if self.driver == "native":
            return run_native(self.operation.call, gate, n)
        return run_python(self.operation.call, gate, n, self.session.clock)

    def once(self) -> Stamps:
        """Run one operation, without a gate."""
        return self.run(GateSetting("none", self.session.signals), 1)


def agree_on_form(operation: Operation, asked: Driver, gate: Gate, session: Session) -> Form:
    """The driver that was asked for, if every rank can; else Python on all of them. Collective."""
    setting = GateSetting(gate, session.signals)
    mine = why_not_native(operation.call, setting, session.clock) if asked == "native" else None
    reason = next((found for found in allgather(session.world, mine) if found is not None), None)
    driver: Driver = "native" if asked == "native" and reason is None else "python"
    return Form(operation, session, driver, None if reason is None else f"driver python: {reason}")
