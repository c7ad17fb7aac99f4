"""An experiment: every launch of a plan in its order, with readings of yardsticks around it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from collbench import yardsticks
from collbench.errors import LaunchLost
from collbench.launch import engines
from collbench.launch.cells import Launch, LaunchCell, LaunchPart
from collbench.launch.collect import LaunchSink, RecordCollector, placed_case
from collbench.launch.duet import run_together
from collbench.launch.engines.spec import LaunchSession, cleaned
from collbench.launch.expansion import (
    ExpandedPlan,
    Group,
    at_once,
    chosen_in,
    expand,
    groups_of,
    key_of,
    notes,
    refuse_too_large,
)
from collbench.launch.folders import refuse_unusable_folder
from collbench.launch.live_world import LaunchTask
from collbench.launch.placement import Placement
from collbench.launch.stacks import Stacks, look_at
from collbench.launch.waiting import StopCheck
from collbench.machine import facts
from collbench.run.facts_of_ranks import manifest_of, protocol
from collbench.schema.case import Case
from collbench.schema.manifest import Experiment, Manifest
from collbench.schema.plan import Plan
from collbench.schema.record import Alone, Record
from collbench.schema.store import Moment, YardstickReading
from collbench.units import format_spans
from collbench.yardsticks import resolutions


def cores_here(cell: LaunchCell, placement: Placement) -> frozenset[int]:
    """The cores of a cell's ranks on this machine; empty where they are on another one, or not known."""
    return placement.cores if engines.get(cell.engine).local else frozenset()


@contextlib.contextmanager
def read_around(sink: LaunchSink, launches: tuple[Launch, ...], cores: frozenset[int]) -> Iterator[None]:
    """Read the yardsticks on these cores before and, if nothing is raised, after launches that live at once."""

    def take(moment: Moment) -> YardstickReading:
        readings = yardsticks.take(cores)
        return YardstickReading(
            launch=launches[0].number, sequence=launches[0].sequence,
            cells=tuple(launch.cell.where for launch in launches), cores=format_spans(cores), moment=moment,
            monotonic=time.monotonic(), wall=time.time(), values=readings.values, reason=readings.reason,
        )  # fmt: skip

    sink.add_reading(take("before"))
    yield
    sink.add_reading(take("after"))


@dataclass(frozen=True)
class PreparedCampaign:
    """A plan with everything that is known before the first launch. `sessions` are by the names of their engines."""

    expanded: ExpandedPlan
    sessions: Mapping[str, LaunchSession]
    stacks: Stacks

    @property
    def engine(self) -> str:
        """Name and version of what makes the containers, else `none`."""
        return ", ".join(session.title for session in self.sessions.values() if session.title) or "none"


def all_cleaned(sessions: Mapping[str, LaunchSession]) -> contextlib.ExitStack:
    """A context at whose end everything is removed that the engines made in it."""
    stack = contextlib.ExitStack()
    for session in sessions.values():
        stack.enter_context(cleaned(session.close))
    return stack


def connect(expanded: ExpandedPlan, check: StopCheck) -> dict[str, LaunchSession]:
    """The engines that a plan's cells name, or EngineError: one does not answer."""
    names = dict.fromkeys(cell.engine for cell in expanded.cells)
    return {name: engines.get(name).connect(expanded.plan, check) for name in names}


def expand_and_check(plan: Plan) -> ExpandedPlan:
    """The plan, expanded, or CollbenchError: it needs what does not exist here, as far as no engine has to be asked."""
    expanded = expand(plan)
    refuse_too_large(plan, expanded.cases)
    refuse_unusable_folder(expanded.cells, plan.storage_folder)
    return expanded


def prepare(
    plan: Plan | ExpandedPlan, check: StopCheck, sessions: Mapping[str, LaunchSession] | None = None,
    held: contextlib.ExitStack | None = None,
) -> PreparedCampaign:  # fmt: skip
    """Look at machine, engines, images and environments. Starts no rank. `check` raises when we are to stop.

    Without `sessions` the engines that the plan names are connected to. What an engine keeps for the launches, such as
    the nodes of a job, it keeps until `held` is closed; without, until this returns. Raises CollbenchError.
    """
    expanded = expand_and_check(plan) if isinstance(plan, Plan) else plan
    sessions = connect(expanded, check) if sessions is None else sessions
    with contextlib.ExitStack() as until_known:
        (held or until_known).enter_context(all_cleaned(sessions))
        return PreparedCampaign(expanded, sessions, look_at(expanded, sessions))


#: The cells that are launched in a block, with what each executes; None: all.
Wanted = Callable[[int], Mapping[LaunchCell, LaunchPart] | None]

#: By case and launch, the records that a resumed run holds already: of those in turns the time that is compared (s).
Known = Mapping[tuple[Case, int], float | None]


def run_campaign(
    prepared: PreparedCampaign, sink: LaunchSink, done: frozenset[tuple[LaunchCell, int]], known: Known,
    check: StopCheck, wanted: Wanted = lambda block: None,
) -> None:  # fmt: skip
    """Perform every launch that is not `done`; records that are `known` are not written twice.

    Before each block `wanted` says which cells are launched in it, and what they measure. Where none is, the experiment
    is over. A launch of which all is known that it would measure is not performed.

    Raises:
        Interrupted: told to stop. What the current launch has measured is kept; everything else of it is removed.
        EngineError: an engine went away and did not come back.
    """
    campaign = _Campaign(prepared, sink, known, check)
    with all_cleaned(prepared.sessions):
        for block, launches in groupby(prepared.expanded.order, key=lambda launch: launch.number):
            whole = tuple(launches)
            left = tuple(launch for launch in whole if (launch.cell, launch.number) not in done)
            parts = wanted(block) if left else None
            if parts is not None:
                if not parts:
                    return
                whole = left = tuple(_with_unknown(prepared.expanded, left, parts, known))
            campaign.block(whole, left)


@dataclass
class _Campaign:
    """What the blocks of an experiment share. `refused`: cells (`key_of`) that cannot live at once, and why."""

    prepared: PreparedCampaign
    sink: LaunchSink
    known: Known
    check: StopCheck
    refused: dict[object, Alone] = field(default_factory=dict)

    def block(self, launches: Sequence[Launch], left: Sequence[Launch]) -> None:
        """Perform those launches of a block that are left, those at once that can be."""
        levels: dict[object, dict[Case, float]] = {}
        for group in groups_of(self.prepared.expanded, launches, self.refused, left=left):
            key = key_of(self.prepared.expanded, group.launches[0].cell)
            refused = self.refused.get(key) if group.alone is None else None  # since the groups were made
            if key not in levels:
                levels[key] = {} if group.reference is None else self._levels(group.reference)
            refused = refused or self._perform(group, levels[key])
            if refused is not None:
                self.refused[key] = refused
                for launch in group.kept:
                    self._perform(Group((launch,), refused), {})

    def _levels(self, reference: Launch) -> dict[Case, float]:
        """The times (log of s) of a reference that was measured before the run was interrupted."""
        return {case: math.log(seconds) for case in self.prepared.expanded.expected[reference.cell]
                if (seconds := self.known.get((placed_case(case, reference.cell), reference.number)))}  # fmt: skip

    def _perform(self, group: Group, levels: dict[Case, float]) -> Alone | None:
        """Perform launches when their engines are ready for them; why they cannot live at once, if they cannot."""
        expanded, check = self.prepared.expanded, self.check
        sessions = {launch.cell.engine: self.prepared.sessions[launch.cell.engine] for launch in group.launches}
        for session in sessions.values():
            session.ready()
        collectors = [self._collector(launch) for launch in group.launches]
        assignments = [
            LaunchTask(expanded.plan, launch, self.prepared.stacks.of(launch.cell), expanded.placements[launch.cell],
                       sessions[launch.cell.engine], _measured(expanded, launch), collector.add, group.alone)
            for launch, collector in zip(group.launches, collectors, strict=True)
        ]  # fmt: skip
        first = group.launches[0]
        order = [identity for case in expanded.cases[first.cell] for identity in case.identities]
        with read_around(self.sink, group.launches, cores_here(first.cell, expanded.placements[first.cell])):
            worlds, refused = run_together(group, assignments, order, levels, check)
        for world, collector in zip(worlds, collectors, strict=True):
            if refused is None and world.launch in group.kept:
                collector.finish(world.transport, world.failure)
        check()
        if refused is None and any(isinstance(world.failure, LaunchLost) for world in worlds):
            for session in sessions.values():  # the last launch has no next one, before which this would come out
                session.ready()
        return refused

    def _collector(self, launch: Launch) -> RecordCollector:
        expanded, cell = self.prepared.expanded, launch.cell
        stack, placement = self.prepared.stacks.of(cell), expanded.placements[cell]
        return RecordCollector(
            launch, _measured(expanded, launch), placement.crowded, notes(cell, placement, stack), self.sink,
            self.known, stack.storage_devices.get(cell.storage or ""), expanded.plan.until == "decided",
        )  # fmt: skip


def _measured(expanded: ExpandedPlan, launch: Launch) -> frozenset[Case]:
    """What a launch measures, as its world records it."""
    expected = expanded.expected[launch.cell]
    return expected if launch.only is None else expected & launch.only.measured


def _with_unknown(
    expanded: ExpandedPlan, launches: Iterable[Launch], parts: Mapping[LaunchCell, LaunchPart], known: Known
) -> Iterator[Launch]:
    """Those launches of a block that measure something which is not known."""
    for launch in launches:
        part = parts.get(launch.cell, LaunchPart(frozenset()))
        if any((placed_case(case, launch.cell), launch.number) not in known for case in part.measured):
            yield launch if part.measured == expanded.expected[launch.cell] else replace(launch, only=part)


def campaign_manifest(prepared: PreparedCampaign, command: tuple[str, ...]) -> Manifest:
    """The manifest of the whole experiment."""
    plan, stacks = prepared.expanded.plan, prepared.stacks
    ranks = max(cell.ranks for cell in prepared.expanded.cells)
    libraries = dict.fromkeys(lib for image in (*stacks.environments, *stacks.images) for lib in image.libraries)
    return manifest_of(
        plan, command, ranks=ranks, protocol=protocol(plan, plan.align, plan.cadence),
        thread_level={"requested": plan["thread_level"]}, launcher="collbench launch", libraries=tuple(libraries),
        hosts=stacks.hosts or (facts.host(range(ranks)),), environment=stacks.environment,
        experiment=Experiment(
            engine=prepared.engine, seed=plan.seed, launches=plan.launches, images=stacks.images,
            environments=stacks.environments, differences=stacks.differences, left_out=prepared.expanded.left_out,
            allocation=stacks.allocation, until=plan.until, yardsticks=resolutions(),
            chosen=chosen_in(prepared.expanded),
            slices=plan.slices if any(isinstance(many, int) for many in at_once(prepared.expanded).values()) else None,
        ),
    )  # fmt: skip


def finished(expanded: ExpandedPlan, records: tuple[Record, ...], fixed: int = 0) -> frozenset[tuple[LaunchCell, int]]:
    """Launches that need not be repeated: every case is recorded, or the launch is recorded as failed and not lost.

    Until decided a failed launch has a record of each case that it was to measure; not in the first `fixed` blocks.
    """
    one_for_all = expanded.plan.until != "decided"
    # The failure of a launch does not say how it was measured; that of a case does, and its launch went on.
    statuses = {(record.case, record.launch): "ended" if record.status == "failed" and record.how is None
                else record.status for record in records if not record.lost}  # fmt: skip

    def is_done(launch: Launch) -> bool:
        expected = expanded.expected[launch.cell]
        recorded = [statuses.get((placed_case(case, launch.cell), launch.number)) for case in expected]
        return None not in recorded or ((one_for_all or launch.number < fixed) and "ended" in recorded)

    return frozenset((launch.cell, launch.number) for launch in expanded.order if is_done(launch))
