"""The records of one launch on their way to the sink: each is stamped with its place, and each case comes once."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

from collbench.errors import LaunchFailed
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.harvest import Harvested, cut
from collbench.schema.case import Case
from collbench.schema.record import Record


class LaunchSink(Protocol):
    """Where records go, as they come."""

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        """One record and its samples [ranks, n] in ns."""

    def launched(self, launch: Launch, said: str | None) -> None:
        """A launch is over; `said` is what became of it where it did not end well."""


class Keeper:
    """Keeps what one launch gave. `known` are records that are kept already, from before the run was gone on with."""

    def __init__(
        self, launch: Launch, asked: frozenset[Case], crowded: bool, notes: tuple[str, ...], sink: LaunchSink,
        known: frozenset[tuple[Case, int]],
    ) -> None:  # fmt: skip
        self._launch, self._crowded, self._notes, self._sink = launch, crowded, notes, sink
        self._left = {case for case in asked if (placed(case, launch.cell), launch.number) not in known}
        self._failed_inside = False

    def add(self, one: Harvested, transport: str | None, failure: LaunchFailed | None = None) -> None:
        """A record that the launch left; with the last one, how the launch ended.

        A launch that measured every case and then did not end well is no failed case: its last record says so.
        """
        self._failed_inside |= one.record.status == "failed"
        if one.record.case not in self._left:
            return
        self._left.remove(one.record.case)
        more = self._notes
        if failure is not None and not self._left and not self._failed_inside:
            more += (cut(f"every case was measured, and then: {failure}"),)
        record = stamped(one.record, self._launch, transport, self._crowded)
        self._sink.add(msgspec.structs.replace(record, notes=(*record.notes, *more)), one.samples)

    def finish(self, transport: str | None, failure: LaunchFailed | None) -> None:
        """A launch that failed before its end is one failed record: of the first case that it did not measure."""
        said = None
        if failure is not None and self._left:
            case = min(self._left, key=lambda case: (case.workload, case["size"], repr(case)))
            reason, log = cut(str(failure)), tuple(cut(line) for line in failure.log)
            record = Record(case=case, launch=0, status="failed", reason=reason, notes=log)
            self._sink.add(stamped(record, self._launch, transport, False), None)
            said = f"failed: {reason}"
        elif failure is not None and not self._failed_inside:
            said = f"measured every case, and then: {cut(str(failure))}"
        self._sink.launched(self._launch, said)


def stamped(record: Record, launch: Launch, transport: str | None, crowded: bool) -> Record:
    """The record with its place: what a world cannot know of itself."""
    case = placed(record.case, launch.cell)
    crowded = crowded or bool(record.oversubscribed)
    marked = crowded if record.oversubscribed is not None else None
    transport = record.transport or transport
    return msgspec.structs.replace(record, case=case, launch=launch.number, transport=transport, oversubscribed=marked)


def placed(case: Case, cell: LaunchCell) -> Case:
    """The case at its place, which a world cannot know of itself."""
    return case.having(engine=cell.engine, image=cell.image, policy=cell.policy, isolation=cell.isolation,
                       affinity=cell.affinity)  # fmt: skip
