"""An experiment: every launch of a plan in its order; each record is stamped with its place and kept at once."""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass

import msgspec

import collbench
from collbench.launch.cells import Launch, LaunchCell, cases_in, order_of
from collbench.launch.clearing import clear, nothing_left
from collbench.launch.engine import Engine
from collbench.launch.identity import driver_identity
from collbench.launch.keeping import Keeper, LaunchSink, placed
from collbench.launch.memory import refuse_too_large
from collbench.launch.one_launch import run_launch
from collbench.launch.placing import Placement, placements_of
from collbench.launch.rank_environment import notes
from collbench.launch.stacks import Stacks, look_at
from collbench.launch.stopping import StopCheck
from collbench.machine import facts, topology
from collbench.run.describe import protocol
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Experiment, Manifest
from collbench.schema.record import Record


@dataclass(frozen=True)
class PreparedCampaign:
    """A plan with everything that is known before the first launch. `asked` are the cases of each cell's worlds."""

    plan: LaunchPlan
    run: str
    engine: Engine | None
    sides: Stacks
    placements: dict[LaunchCell, Placement]
    order: tuple[Launch, ...]
    asked: dict[LaunchCell, frozenset[Case]]


def prepare(plan: LaunchPlan, check: StopCheck) -> PreparedCampaign:
    """Look at machine, engine, images and environments. Starts no rank. `check` raises when we are to stop.

    Raises:
        CollbenchError: something that the plan needs is not there.
    """
    placements = placements_of(plan, topology.here())
    cases = {cell: cases_in(plan, cell) for cell in placements}
    refuse_too_large(plan, cases)
    asked = {cell: frozenset(one for case in inside for one in case.identities) for cell, inside in cases.items()}
    contained = any(placement.in_containers for placement in placements.values())
    engine = Engine(plan.docker_host, check) if contained else None
    with nothing_left(engine):
        sides = look_at(plan, engine, check, placements.values())
    run, order = "" if engine is None else engine.run, order_of(plan, placements)
    return PreparedCampaign(plan, run, engine, sides, placements, order, asked)


def run_campaign(
    prepared: PreparedCampaign,
    sink: LaunchSink,
    done: frozenset[tuple[LaunchCell, int]],
    known: frozenset[tuple[Case, int]],
    check: StopCheck,
) -> None:
    """Carry out every launch that is not `done`; records that are `known` are not written twice.

    Raises:
        Interrupted: told to stop. What the launch under way has measured is kept; everything else of it is removed.
        EngineError: the engine went away and did not come back.
    """
    with nothing_left(prepared.engine):
        for launch in prepared.order:
            if (launch.cell, launch.number) in done:
                continue
            if prepared.engine is not None and launch.cell.isolation is not None:
                prepared.engine.wait(check)
                clear(prepared.engine)  # what an earlier launch could not remove would run beside this one
            _carried_out(prepared, launch, sink, known, check)
            check()


def _carried_out(
    prepared: PreparedCampaign, launch: Launch, sink: LaunchSink, known: frozenset[tuple[Case, int]], check: StopCheck
) -> None:
    plan, cell = prepared.plan, launch.cell
    side, placement, asked = prepared.sides.start[cell.image], prepared.placements[cell], prepared.asked[cell]
    said = notes(cell, placement, side)
    keeper = Keeper(launch, asked, placement.crowded, said, sink, known)
    outcome = run_launch(
        plan, launch, side, placement, prepared.engine, prepared.run, driver_identity(), asked, keeper.add, check
    )
    keeper.finish(outcome.transport, outcome.failure)


def manifest_of(prepared: PreparedCampaign, command: tuple[str, ...]) -> Manifest:
    """Of the whole experiment."""
    plan, sides = prepared.plan, prepared.sides
    ranks = max(cell.ranks for cell in prepared.placements)
    libraries = {lib: None for side in (*sides.environments, *sides.images) for lib in side.libraries}
    return Manifest(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        collbench=collbench.__version__,
        python=sys.version.split()[0],
        command=tuple(facts.printable(word) for word in command),
        title=plan.title,
        ranks=ranks,
        protocol=protocol(plan, plan.gate, plan.cadence),
        thread_level={"requested": plan.thread_level},
        launcher="collbench launch",
        libraries=tuple(libraries),
        hosts=(facts.host(range(ranks)),),
        environment=facts.environment(),
        plan=msgspec.to_builtins(plan),
        experiment=Experiment(
            engine="none" if prepared.engine is None else prepared.engine.title,
            seed=plan.seed, launches=plan.launches, images=sides.images, environments=sides.environments,
            differences=sides.differences,
        ),
    )  # fmt: skip


def finished(prepared: PreparedCampaign, records: tuple[Record, ...]) -> frozenset[tuple[LaunchCell, int]]:
    """Launches that need not be repeated: every case is recorded, or the launch is recorded as failed."""
    by_case = {(record.case, record.launch): record for record in records}
    found = set()
    for launch in prepared.order:
        cell, asked = launch.cell, prepared.asked[launch.cell]
        cases = (placed(case, cell) for case in asked)
        there = [one for case in cases if (one := by_case.get((case, launch.number))) is not None]
        if len(there) == len(asked) or any(one.status == "failed" for one in there):
            found.add((cell, launch.number))
    return frozenset(found)
