"""One launch: folders, network and containers are made, the ranks run, their records are taken over, all is removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.errors import CollbenchError, EngineError, Interrupted, LaunchFailed, RunReadError
from collbench.launch import host
from collbench.launch.cells import Launch, inner_plan
from collbench.launch.engine import Engine
from collbench.launch.following import Execution
from collbench.launch.harvest import Taken, take_over
from collbench.launch.identity import FOLDER, sign, user_inside
from collbench.launch.isolation import in_force
from collbench.launch.job import Job, Running, run_job
from collbench.launch.log import Log
from collbench.launch.neighbours import CORES
from collbench.launch.placing import Placement
from collbench.launch.specs import OUT, PLAN, RELAY, Mount, Spec, World, specs_of
from collbench.launch.starters.starter import Argv, Starter
from collbench.launch.stopping import Check
from collbench.launch.told import Side, nccl_shortage, on_host, shm_shortage, variables
from collbench.run.facts import format_cores
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.plan import Plan

#: A container lives so long (s), for nobody knows how long a world takes: what a killed driver leaves ends by itself.
LIVES = 24 * 3600

#: What every rank in a container runs.
INSIDE = ("collbench", "run", PLAN, "--out", OUT, "--style", "csv")


@dataclass(frozen=True)
class Outcome:
    """What a launch gave. `failure` is None where the launcher inside ended well."""

    taken: tuple[Taken, ...]
    transport: str | None
    failure: LaunchFailed | None


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
            shutil.rmtree(root, ignore_errors=True)


def specs_for(
    plan: LaunchPlan, launch: Launch, side: Side, placement: Placement, run: str, driver: str, there: Folders
) -> tuple[Spec, ...]:
    """The containers of a launch; none on the host."""
    cell = launch.cell
    if cell.isolation is None:
        return ()
    user = user_inside()
    environment = variables(cell, placement, side)
    name = f"{run}-{launch.sequence}"
    world = World(run, name, driver, side.image, f"{user[0]}:{user[1]}", LIVES, environment, side.cdi)
    first = placement.boxes[0].name
    everywhere: tuple[Mount, ...] = (Mount(str(there.plan), PLAN),)
    alone = (Mount(str(there.out), OUT, True), Mount(str(there.relay), RELAY, True))
    mounts = {box.name: everywhere + (alone if box.name == first else ()) for box in placement.boxes}
    return specs_of(world, placement, in_force(cell.isolation, side.memlock), mounts)


def start(
    plan: LaunchPlan, launch: Launch, side: Side, placement: Placement, engine: Engine | None, run: str, driver: str,
    asked: frozenset[Case], check: Check,
) -> Outcome:  # fmt: skip
    """Carry out one launch. Nothing of it is left when this returns or raises.

    Raises:
        Interrupted: told to stop.
    """
    log, failure = Log(), None
    cores = format_cores({core for slot in placement.slots for core in slot.cores})
    with folders(inner_plan(plan, launch.cell), user_inside(), cores) as there:
        specs = specs_for(plan, launch, side, placement, run, driver, there)
        try:
            if specs:
                assert engine is not None
                _in_containers(plan, launch, side, placement, engine, specs, there, log, check)
            else:
                _on_host(plan, launch, side, placement, there, log, check)
        except Interrupted:
            raise
        except LaunchFailed as error:
            failure = error
        except CollbenchError as error:
            failure = LaunchFailed(str(error), log.tail(side.starter.quiet))
        taken: list[Taken] = []
        try:
            for one in take_over(there.out, asked):
                taken.append(one)  # noqa: PERF402 - those before a bad one are kept
        except RunReadError as error:
            failure = failure or LaunchFailed(
                f"left a run that is not read further: {error}", log.tail(side.starter.quiet)
            )
    if failure is not None:
        said, gpus = "\n".join((str(failure), *failure.log)), len(placement.gpus)
        shortage = shm_shortage(launch.cell, side) or nccl_shortage(launch.cell, side, gpus, said)
        failure = LaunchFailed(f"{failure}; {shortage}", failure.log) if shortage is not None else failure
    if failure is None and len(taken) < len(asked):
        reason = f"ended early, with {len(taken)} of {len(asked)} cases"
        failure = LaunchFailed(reason, log.tail(side.starter.quiet))
    boxes = tuple(len(box.ranks) for box in placement.boxes)
    return Outcome(tuple(taken), side.starter.transport(log.lines, boxes), failure)


def _ended(code: int, log: Log, starter: Starter) -> None:
    """Raise unless the launcher ended well; with 1 because a case failed, that case is recorded beside this."""
    if code != 0:
        raise LaunchFailed(f"ended with exit code {code}{_own_words(log)}", log.tail(starter.quiet))


def _own_words(log: Log) -> str:
    """What the ranks' own message says of it, if there is one."""
    said = [line.partition("collbench: ")[2] for line in log.lines if line.startswith("collbench: ")]
    return f": {said[-1]}" if said else ""


def _on_host(
    plan: LaunchPlan,
    launch: Launch,
    side: Side,
    placement: Placement,
    there: Folders,
    log: Log,
    check: Check,
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
    environment = on_host(variables(launch.cell, placement, side))
    job = Job(side.starter, (), launch.cell.ranks, placement.crowded, program, environment, None, plan.timeout_seconds)
    try:
        _ended(run_job(job, execute, log, lambda: None, check), log, side.starter)
    finally:
        for process in started:
            process.end()


def _in_containers(
    plan: LaunchPlan, launch: Launch, side: Side, placement: Placement, engine: Engine, specs: tuple[Spec, ...],
    there: Folders, log: Log, check: Check,
) -> None:  # fmt: skip
    members = [spec for spec in specs if not spec.donates]
    hosts = tuple((spec.name, len(box.ranks)) for spec, box in zip(members, placement.boxes, strict=True))

    def execute(container: str | None, argv: Argv, environment: dict[str, str], log: Log) -> Execution:
        assert container is not None
        return engine.execute(container, argv, environment, log.add)

    job = Job(side.starter, hosts, launch.cell.ranks, placement.crowded, INSIDE, {}, there.relay, plan.timeout_seconds)
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
            _ended(run_job(job, execute, log, died, check), log, side.starter)
        finally:
            died.stop()
            with contextlib.suppress(EngineError):  # it is away; at the end of the experiment all is looked for again
                engine.remove(engine.labelled(*labels), engine.networks(*labels))
