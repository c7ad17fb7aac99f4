"""The records of one launch on their way to the sink: each is given its place, and each case is kept once."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

from collbench.errors import LaunchFailed, LaunchLost
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.harvest import Harvested, cut
from collbench.schema.case import Case
from collbench.schema.record import LOST, Record
from collbench.schema.yardsticks import YardstickReading
from collbench.units import counted


class LaunchSink(Protocol):
    """Where records go, as they come."""

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        """One record and its samples [ranks, n] in ns."""

    def launched(self, launch: Launch, problem: str | None) -> None:
        """A launch is over; `problem` says how it ended where it did not end well."""

    def add_reading(self, reading: YardstickReading) -> None:
        """What the cores of a launch were like just before or after it."""


class Keeper:
    """Keeps the records of one launch. `known` are those that a run which is resumed holds already.

    `each`: launches of one cell measure different cases, so one that fails has a record of each that it lacks.
    """

    def __init__(
        self, launch: Launch, expected: frozenset[Case], crowded: bool, notes: tuple[str, ...], sink: LaunchSink,
        known: frozenset[tuple[Case, int]], beneath: str | None = None, each: bool = False,
    ) -> None:  # fmt: skip
        self._beneath, self._each = beneath, each
        self._launch, self._crowded, self._notes, self._sink = launch, crowded, notes, sink
        self._missing = {case for case in expected if (placed(case, launch.cell), launch.number) not in known}
        self._failed: list[str] = []  # reasons of cases
        self._cases, self._measured = len(expected), False

    def add(self, harvested: Harvested, transport: str | None, failure: LaunchFailed | None = None) -> None:
        """A record of the launch; with the last one, how the launch ended.

        Where a launch fails after every case was measured, no case has failed: the last record has a note. One in which
        every case was skipped ends so, and each record says why.
        """
        case = harvested.record.case
        if harvested.record.status == "failed":
            self._failed.append(harvested.record.reason or "no reason")
        self._measured |= harvested.record.status == "ok"
        if case not in self._missing:
            return
        self._missing.remove(case)
        notes = self._notes
        if failure is not None and not self._missing and self._measured and not self._failed:
            notes += (cut(f"every case was measured, and then: {failure}"),)
        record = stamped(harvested.record, self._launch, transport, self._crowded, self._beneath)
        self._sink.add(msgspec.structs.replace(record, notes=(*record.notes, *notes)), harvested.samples)

    def finish(self, transport: str | None, failure: LaunchFailed | None) -> None:
        """A launch that failed before its end is one failed record: of the first case that it did not measure.

        Or one of `each`. The reason of one that was lost says so, and the run, when it is resumed, measures it again.
        """
        problem = None
        if failure is not None and self._missing:
            missing = sorted(self._missing, key=lambda case: (case.workload, case["size"], repr(case)))
            lost = LOST if isinstance(failure, LaunchLost) else ""
            reason, log = f"{lost}{cut(str(failure))}", tuple(cut(line) for line in failure.log)
            for case in missing if self._each else missing[:1]:
                record = Record(case=case, launch=0, status="failed", reason=reason, notes=log)
                self._sink.add(stamped(record, self._launch, transport, False), None)
                log = ()  # of this launch, once
            problem = f"failed: {reason}"
        elif self._failed:
            problem = f"failed in {len(self._failed)} of {counted(self._cases, 'case')}: {self._failed[0]}"
        elif failure is not None and self._measured:
            problem = f"measured every case, and then: {cut(str(failure))}"
        self._sink.launched(self._launch, problem)


def stamped(record: Record, launch: Launch, transport: str | None, crowded: bool, beneath: str | None = None) -> Record:
    """The record with what its world cannot know: place and launch; what the library printed; shared processors.

    `beneath` is the device that the engine says its storage is on.
    """
    case = placed(record.case, launch.cell)
    oversubscribed = record.oversubscribed
    if oversubscribed is not None:
        oversubscribed = oversubscribed or crowded
    return msgspec.structs.replace(
        record, case=case, launch=launch.number, transport=witnessed(record.transport or transport, beneath),
        oversubscribed=oversubscribed,
    )  # fmt: skip


def witnessed(seen: str | None, told: str | None) -> str | None:
    """What lay under the files as seen from inside, with what the engine told: `overlay on ext4 (vda)`."""
    if seen is None or told is None or told == seen:
        return seen
    return f"{seen}; the engine keeps it on {told}" if seen.endswith(")") else f"{seen} on {told}"


def placed(case: Case, cell: LaunchCell) -> Case:
    return case.having(engine=cell.engine, image=cell.plan_image, policy=cell.policy, isolation=cell.isolation,
                       affinity=cell.affinity, storage=cell.storage, seccomp=cell.seccomp,
                       hosts=cell.hosts, side=cell.side)  # fmt: skip
