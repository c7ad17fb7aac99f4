"""One launch: folders, network and containers are made, the ranks run, their records are taken over, all is removed."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.errors import CollbenchError, EngineError, Interrupted, LaunchFailed
from collbench.launch import host
from collbench.launch.cells import Launch, LaunchCell, inner_plan
from collbench.launch.engine import Engine
from collbench.launch.following import Execution
from collbench.launch.harvest import Harvested, left_behind
from collbench.launch.identity import FOLDER, sign, user_inside
from collbench.launch.isolation import in_force
from collbench.launch.job import Job, Running, run_job
from collbench.launch.log import Log
from collbench.launch.memory_kills import killed_for_memory
from collbench.launch.neighbours import CORES
from collbench.launch.patience import Limits, Patience, limits_of, written_to
from collbench.launch.placing import Placement
from collbench.launch.rank_environment import Stack, nccl_shortage, on_host, shm_shortage, variables
from collbench.launch.removal import remove_folder
from collbench.launch.specs import OUT, PLAN, RELAY, Mount, Spec, WorldSpec, specs_of
from collbench.launch.starters.starter import Argv, Starter
from collbench.launch.stopping import StopCheck
from collbench.machine.facts import format_cores
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.plan import Plan

#: A container lives so long (s), for nobody knows how long a world takes: what a killed driver leaves ends by itself.
LIVES = 24 * 3600

#: What every rank in a container runs.
INSIDE = ("collbench", "run", PLAN, "--out", OUT, "--style", "csv")


@dataclass(frozen=True)
class Outcome:
    """How a launch ended: the transport that its library told of, and why it failed (None where it ended well)."""

    transport: str | None
    failure: LaunchFailed | None


#: Receives a record as it is taken over, with the transport; with the last one, why the launch failed, if it did.
Keep = Callable[[Harvested, str | None, LaunchFailed | None], None]


@dataclass(frozen=True)
class Folders:
    """On the host: the inner plan, what the first rank may write to, and where daemons are asked for."""

    plan: Path
    out: Path
    relay: Path


@contextlib.contextmanager
def folders(plan: Plan, user: tuple[int, int], cores: str = "") -> Iterator[Folders]:
    """Temporary ones, which only the driver and the user inside can enter. Others can read which `cores` are taken."""
    root = Path(tempfile.mkdtemp(prefix=FOLDER))
    with contextlib.ExitStack() as signed:  # until all of it is gone
        try:
            signed.enter_context(sign(root))
            (root / CORES).write_text(cores, encoding="ascii")
            found = Folders(root / "plan.json", root / "out", root / "relay")
            found.plan.write_bytes(msgspec.json.encode(plan))
            found.plan.chmod(0o644)
            for folder in (found.out, found.relay):
                folder.mkdir(mode=0o700)
                if os.getuid() == 0:
                    os.chown(folder, *user)
            root.chmod(0o711)
            yield found
        finally:
            remove_folder(root)


def specs_for(
    plan: LaunchPlan, launch: Launch, side: Stack, placement: Placement, run: str, driver: str, there: Folders
) -> tuple[Spec, ...]:
    """The containers of a launch; none on the host."""
    cell = launch.cell
    if cell.isolation is None:
        return ()
    user = user_inside()
    environment = variables(cell, placement, side)
    name = f"{run}-{launch.sequence}"
    world = WorldSpec(run, name, driver, side.image, f"{user[0]}:{user[1]}", LIVES, environment, side.cdi)
    first = placement.boxes[0].name
    everywhere: tuple[Mount, ...] = (Mount(str(there.plan), PLAN),)
    alone = (Mount(str(there.out), OUT, True), Mount(str(there.relay), RELAY, True))
    mounts = {box.name: everywhere + (alone if box.name == first else ()) for box in placement.boxes}
    return specs_of(world, placement, in_force(cell.isolation, side.memlock), mounts)


def run_launch(
    plan: LaunchPlan, launch: Launch, side: Stack, placement: Placement, engine: Engine | None, run: str, driver: str,
    asked: frozenset[Case], keep: Keep, check: StopCheck,
) -> Outcome:  # fmt: skip
    """Carry out one launch, and hand to `keep` what it measured. Nothing of it is left when this returns or raises.

    Whatever goes wrong in it, or lies in its folders, is its failure and no other launch's.

    Raises:
        Interrupted: told to stop; what was measured has been kept.
        Exception: what `keep` raises.
    """
    log, told_to_stop = Log(), None
    cores = format_cores({core for slot in placement.slots for core in slot.cores})
    boxes = tuple(len(box.ranks) for box in placement.boxes)
    with contextlib.ExitStack() as stack:
        try:
            there = stack.enter_context(folders(inner_plan(plan, launch.cell), user_inside(), cores))
        except OSError as error:
            return Outcome(None, LaunchFailed(f"temporary folder: {error}"))
        try:
            failure = _carried_out(plan, launch, side, placement, engine, run, driver, len(asked), there, log, check)
        except Interrupted as error:
            failure, told_to_stop = None, error
        transport = side.starter.transport(log.lines, boxes)
        count, last = 0, None
        for one in left_behind(there.out, asked):
            if isinstance(one, LaunchFailed):
                failure = failure or LaunchFailed(str(one), log.tail(side.starter.quiet))
                break
            if last is not None:
                keep(last, transport, None)
            count, last = count + 1, one
        if failure is None and told_to_stop is None and count < len(asked):
            reason = f"ended early, with {count} of {len(asked)} cases"
            failure = LaunchFailed(reason, log.tail(side.starter.quiet))
        failure = _with_advice(failure, launch.cell, placement, side)
        if last is not None:
            keep(last, transport, failure)
    if told_to_stop is not None:
        raise told_to_stop
    return Outcome(transport, failure)


def _carried_out(
    plan: LaunchPlan, launch: Launch, side: Stack, placement: Placement, engine: Engine | None, run: str, driver: str,
    cases: int, there: Folders, log: Log, check: StopCheck,
) -> LaunchFailed | None:  # fmt: skip
    """Start the world and wait for its end; why it failed, if it did."""
    limits = limits_of(plan, cases)
    try:
        if specs := specs_for(plan, launch, side, placement, run, driver, there):
            assert engine is not None
            _in_containers(limits, launch, side, placement, engine, specs, there, log, check)
        else:
            _on_host(limits, launch, side, placement, there, log, check)
    except Interrupted:
        raise
    except LaunchFailed as error:
        return LaunchFailed(f"{error}{log.own_words}", error.log)
    except CollbenchError as error:
        return LaunchFailed(str(error), log.tail(side.starter.quiet))
    except Exception as error:  # of this launch alone: the next one may go well
        if os.environ.get("COLLBENCH_TRACEBACK"):
            traceback.print_exception(error)
        return LaunchFailed(f"{type(error).__name__}: {error}", log.tail(side.starter.quiet))
    return None


def _with_advice(
    failure: LaunchFailed | None, cell: LaunchCell, placement: Placement, side: Stack
) -> LaunchFailed | None:
    """The failure with what would help, where a library is known to die of it without a word."""
    if failure is None:
        return None
    said = "\n".join((str(failure), *failure.log))
    shortage = shm_shortage(cell, placement, side) or nccl_shortage(cell, placement, side, said)
    return failure if shortage is None else LaunchFailed(f"{failure}; {shortage}", failure.log)


def _ended(code: int, log: Log, starter: Starter) -> None:
    """Raise unless the launcher ended well; with 1 because a case failed, that case is recorded beside this."""
    if code != 0:
        raise LaunchFailed(f"ended with exit code {code}", log.tail(starter.quiet))


def _on_host(
    limits: Limits, launch: Launch, side: Stack, placement: Placement, there: Folders, log: Log, check: StopCheck
) -> None:
    assert side.environment is not None
    programs = side.environment / "bin"
    started: list[host.HostProcess] = []

    def execute(container: str | None, argv: Argv, environment: dict[str, str], log: Log) -> Running:
        path = f"{programs}:{os.environ.get('PATH', '')}"
        found = host.execute((str(programs / argv[0]), *argv[1:]), {**environment, "PATH": path}, log)
        started.append(found)
        return found

    program = (str(programs / "python"), "-m", "collbench", "run", str(there.plan), "--out", str(there.out),
               "--style", "csv")  # fmt: skip
    environment = on_host(variables(launch.cell, placement, side), there.plan.parent)
    job = Job(side.starter, (), launch.cell.ranks, placement.crowded, program, environment, None)
    try:
        code = run_job(job, execute, log, lambda: None, check, Patience(limits), written_to(there.out))
        if code < 0:
            ended = f"{job.argv[0]} was ended by signal {-code} ({signal.strsignal(-code)})"
            raise LaunchFailed(ended, log.tail(side.starter.quiet))
        _ended(code, log, side.starter)
    finally:
        for process in started:
            process.end()


def _in_containers(
    limits: Limits, launch: Launch, side: Stack, placement: Placement, engine: Engine, specs: tuple[Spec, ...],
    there: Folders, log: Log, check: StopCheck,
) -> None:  # fmt: skip
    members = [spec for spec in specs if not spec.donates]
    hosts = tuple((spec.name, len(box.ranks)) for spec, box in zip(members, placement.boxes, strict=True))

    def execute(container: str | None, argv: Argv, environment: dict[str, str], log: Log) -> Execution:
        assert container is not None
        return engine.execute(container, argv, environment, log.add)

    job = Job(side.starter, hosts, launch.cell.ranks, placement.crowded, INSIDE, {}, there.relay)
    name = next(spec.network for spec in specs if spec.network is not None)
    labels = tuple(f"{label}={value}" for label, value in specs[0].labels)
    with engine.watch_deaths(*labels) as died:
        try:
            engine.create_network(name, dict(specs[0].labels), side.sealed)
            check()
            for alone in (spec for spec in specs if spec.donates):
                engine.start(alone)
            check()
            engine.start_together(tuple(members))
            _ended(run_job(job, execute, log, died, check, Patience(limits), written_to(there.out)), log, side.starter)
        except LaunchFailed as error:
            raise LaunchFailed(f"{error}{killed_for_memory(engine, job.names)}", error.log) from error
        finally:
            died.stop()
            with contextlib.suppress(EngineError):  # it is away; at the end of the experiment all is looked for again
                engine.remove(engine.labelled(*labels), engine.networks(*labels))
