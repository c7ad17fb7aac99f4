"""A command inside such containers as a launch would make of an image: how doctor looks into them."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.errors import EngineError, RequestError
from collbench.launch import starters, topology
from collbench.launch.abilities import allowed_calls, allows_memlock
from collbench.launch.cells import Cell, Launch, steps_of
from collbench.launch.engine import Engine
from collbench.launch.identity import driver_identity
from collbench.launch.log import Log
from collbench.launch.placing import place
from collbench.launch.sides import contents_of, reference_of
from collbench.launch.specs import LAUNCH_LABEL, Spec
from collbench.launch.starters.starter import Argv
from collbench.launch.told import Side, notes
from collbench.launch.world import folders, specs_for, user_inside
from collbench.schema.launch_plan import Isolation, LaunchPlan, check_launch_plan

#: Longest wait for the command (s), and the ranks whose containers are made.
LIMIT, RANKS = 120.0, 2


@dataclass(frozen=True)
class Examined:
    """What the command printed in the first container, its exit code, and what the launcher would do of itself."""

    lines: tuple[str, ...]
    code: int
    title: str
    notes: tuple[str, ...]


def examine(engine: Engine, image: str, policy: str, isolation: Isolation, argv: Argv) -> Examined:
    """Make the containers of two ranks, run the command in the first one, remove them.

    Raises:
        CollbenchError: no such image or policy, or no answer within the limit.
    """
    if policy == "host":
        raise RequestError("doctor --image: policy host has no container; leave --image away.")
    asked = LaunchPlan(collectives=("allreduce",), images=(image,), policies=(policy,), oversubscribe=True)
    plan = check_launch_plan(asked)
    inside, reference = contents_of(engine, image), reference_of(image)
    starter, memlock = starters.get(inside.vendor, image), allows_memlock(engine, reference)
    side = Side(starter, reference, None, memlock, starter.attach - allowed_calls(engine, reference))
    cell = Cell(image, policy, steps_of(policy, RANKS, (isolation,))[0] or isolation, RANKS)
    placement = place(topology.here(), cell, plan)
    driver = driver_identity()
    with folders(plan.inner(), user_inside()) as there:
        run = f"cbdoctor{driver.split('/')[2]}"
        specs = specs_for(plan, Launch(cell, 0, 0), side, placement, run, driver, there)
        log = Log()
        code = _run_in_first(engine, specs, (*argv, *_lone(cell)), log)
    said = notes(cell, side)
    if not memlock and cell.isolation != "strict":
        said += ("the engine cannot grant unlimited memlock; the launcher goes without",)
    boxes = len(placement.boxes)
    title = f"{reference}, {policy}, {cell.isolation}: the first of {boxes} container{'s' if boxes > 1 else ''}"
    return Examined(log.lines, code, title, said)


def _lone(cell: Cell) -> Argv:
    """A rank that is alone in its container reads nobody's memory there."""
    return () if any(len(group) > 1 for group in cell.groups) else ("--without", "cma")


def _run_in_first(engine: Engine, specs: tuple[Spec, ...], argv: Argv, log: Log) -> int:
    labels = dict(specs[0].labels)
    label = f"{LAUNCH_LABEL}={labels[LAUNCH_LABEL]}"
    try:
        engine.create_network(next(spec.network for spec in specs if spec.network), labels)
        for spec in specs:
            engine.start(spec)
        first = next(spec for spec in specs if not spec.donates)
        running = engine.execute(first.name, argv, {"COLLBENCH_PLACEMENT": ""}, log.add)
        if not running.finished.wait(LIMIT):
            raise EngineError(f"container {first.name}: {argv[0]} gave no answer within {LIMIT:g} s.")
        return running.code or 0
    finally:
        engine.remove(engine.labelled(label), engine.networks(label))
