"""One launch: folders and boxes are made, the ranks run, their records are read, everything is removed."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import CollbenchError, Interrupted, LaunchFailed
from collbench.launch import engines
from collbench.launch.cells import Launch, LaunchCell, inner_plan
from collbench.launch.engines.spec import Session, Stack, WorldSpec
from collbench.launch.folders.layout import Folders, folders
from collbench.launch.folders.signature import driver_identity
from collbench.launch.harvest import Harvested, left_behind
from collbench.launch.job import Job, run_job
from collbench.launch.log import Log
from collbench.launch.patience import Patience, limits_of, written_to
from collbench.launch.placing import Placement
from collbench.launch.rank_environment import nccl_shortage, places, shm_shortage
from collbench.launch.starters.starter import Starter, started_by_engine
from collbench.launch.stopping import StopCheck
from collbench.launch.storage import Storage, storage_of
from collbench.machine.facts import format_cores
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.world_plan import plan_of_some


@dataclass(frozen=True)
class Outcome:
    """How a launch ended: the transport that its library printed, and why it failed (None: it did not)."""

    transport: str | None
    failure: LaunchFailed | None


#: Receives a record as it is read, with the transport; with the last one, why the launch failed, if it did.
Keep = Callable[[Harvested, str | None, LaunchFailed | None], None]


def world_of(
    launch: Launch, stack: Stack, placement: Placement, run: str, at: Folders, storage: Storage | None = None
) -> WorldSpec:
    user = engines.get(launch.cell.engine).user()
    name = f"{run}-{launch.sequence}"
    return WorldSpec(run, name, driver_identity(), launch.cell, placement, stack, at, user, storage)


def run_launch(
    plan: LaunchPlan, launch: Launch, stack: Stack, placement: Placement, session: Session, expected: frozenset[Case],
    keep: Keep, check: StopCheck,
) -> Outcome:  # fmt: skip
    """Perform one launch, and give to `keep` what it measured. Nothing of it is left when this returns or raises.

    Whatever goes wrong in it, or lies in its folders, is a failure of this launch alone.

    Raises:
        Interrupted: told to stop; what was measured has been kept.
        Exception: what `keep` raises.
    """
    log = Log()
    cores = format_cores({core for slot in placement.slots for core in slot.cores})
    with contextlib.ExitStack() as stacked:
        try:
            user = engines.get(launch.cell.engine).user()
            storage = stacked.enter_context(storage_of(launch.cell, plan.folder, user))
            inner = inner_plan(plan, launch.cell, storage.folder if storage else "")
            if launch.only is not None:
                inner = plan_of_some(inner, launch.only.measured, launch.only.brief)
            at = stacked.enter_context(folders(inner, user, cores, session.folder, places(launch.cell, placement)))
        except OSError as error:
            return Outcome(None, LaunchFailed(f"temporary folder: {error}"))
        world = world_of(launch, stack, placement, session.run, at, storage)
        interrupted, failure = None, None
        try:
            failure = _run_world(plan, world, session, len(expected), log, check)
        except Interrupted as error:
            interrupted = error
        transport = stack.starter.transport(log.lines, tuple(len(box.ranks) for box in placement.boxes))
        count, last, reason = _keep_all_but_last(at.out, expected, transport, keep)
        if not reason and interrupted is None and count < len(expected):
            reason = f"ended early, with {count} of {len(expected)} cases"
        if failure is None and reason:
            failure = LaunchFailed(reason, log.tail(stack.starter.quiet))
        failure = _with_advice(failure, launch.cell, placement, stack)
        if last is not None:
            keep(last, transport, failure)
    if interrupted is not None:
        raise interrupted
    return Outcome(transport, failure)


def _keep_all_but_last(
    out: Path, expected: frozenset[Case], transport: str | None, keep: Keep
) -> tuple[int, Harvested | None, str]:
    """How many records there are, the last of them, and why the rest of the run cannot be read (empty: it was)."""
    count, last = 0, None
    for harvested in left_behind(out, expected):
        if isinstance(harvested, LaunchFailed):
            return count, last, str(harvested)
        if last is not None:
            keep(last, transport, None)
        count, last = count + 1, harvested
    return count, last, ""


def _run_world(
    plan: LaunchPlan, world: WorldSpec, session: Session, cases: int, log: Log, check: StopCheck
) -> LaunchFailed | None:
    """Open the world, start its ranks and wait for their end; why it failed, if it did."""
    starter, cell = starter_of(world), world.cell
    try:
        with session.open(world) as opened:
            job = Job(opened, starter, cell.ranks, world.placement.crowded, world.folders.relay)
            run_job(job, log, check, Patience(limits_of(plan, cases)), written_to(world.folders.out))
    except Interrupted:
        raise
    except LaunchFailed as error:
        said = log.message or ("" if engines.get(cell.engine).starts_ranks else log.library_message(starter.quiet))
        return error.saying(f"{error}{said}")
    except CollbenchError as error:
        return LaunchFailed(str(error), log.tail(starter.quiet))
    except Exception as error:  # of this launch alone: the next one may go well
        if os.environ.get("COLLBENCH_TRACEBACK"):
            traceback.print_exception(error)
        return LaunchFailed(f"{type(error).__name__}: {error}", log.tail(starter.quiet))
    return None


def starter_of(world: WorldSpec) -> Starter:
    starter = world.stack.starter
    return started_by_engine(starter) if engines.get(world.cell.engine).starts_ranks else starter


def _with_advice(
    failure: LaunchFailed | None, cell: LaunchCell, placement: Placement, stack: Stack
) -> LaunchFailed | None:
    """The failure with what would help, where a library is known to end without a message."""
    if failure is None:
        return None
    output = "\n".join((str(failure), *failure.log))
    shortage = shm_shortage(cell, placement, stack) or nccl_shortage(cell, placement, stack, output)
    return failure if shortage is None else failure.saying(f"{failure}; {shortage}")
