"""A command inside such containers as a launch would make of an image: how doctor looks into them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from collbench.errors import EngineError, LaunchFailed, RequestError
from collbench.launch import placement, starters
from collbench.launch.abilities import allowed_calls, allows_memlock, refuse_unseen_folder, seals_networks
from collbench.launch.cells import Launch, LaunchCell, steps_of
from collbench.launch.clearing import nothing_left
from collbench.launch.engine import Engine
from collbench.launch.identity import driver_identity, user_inside
from collbench.launch.log import Log
from collbench.launch.one_launch import folders, specs_for
from collbench.launch.placing import Placement, place
from collbench.launch.rank_environment import Stack, notes
from collbench.launch.specs import Spec
from collbench.launch.stacks import contents_of, find
from collbench.launch.starters.starter import Argv
from collbench.machine import topology
from collbench.schema.launch_plan import Isolation, LaunchPlan, check_launch_plan

#: Longest wait for the command (s), how often it is looked whether it ended, and the ranks whose containers are made.
LIMIT, LOOK, RANKS = 120.0, 0.25, 2

#: Exit codes of doctor: nothing failed, a check failed, a wrong request (an unknown check).
ENDS = frozenset({0, 1, 2})


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
        CollbenchError: no such image or policy, no answer within the limit, or another end than doctor's own.
    """
    if not placement.find(policy)[0].in_containers:
        raise RequestError(f"doctor --image: policy {policy} has no container; leave --image away.")
    asked = LaunchPlan(collectives=("allreduce",), images=(image,), policies=(policy,), oversubscribe=True)
    plan = check_launch_plan(asked)
    with nothing_left(engine):
        return _examined(engine, plan, image, isolation, argv)


def _examined(engine: Engine, plan: LaunchPlan, name: str, isolation: Isolation, argv: Argv) -> Examined:
    (policy,), image = plan.policies, find(engine, name)
    refuse_unseen_folder(engine, image, plan.inner())
    inside = contents_of(engine, image)
    starter, memlock = starters.get(inside.vendor, name), allows_memlock(engine, image)
    side = Stack(
        starter, image.id, None, memlock, seals_networks(engine), starter.attach - allowed_calls(engine, image)
    )
    placed = place(topology.here(), LaunchCell(name, policy, isolation, RANKS), plan)
    cell = LaunchCell(name, policy, steps_of(placed.containers, (isolation,))[0], RANKS)
    with folders(plan.inner(), user_inside()) as there:
        specs = specs_for(plan, Launch(cell, 0, 0), side, placed, engine.run, driver_identity(), there)
        log = Log()
        code = _run_in_first(engine, specs, (*argv, *_lone(placed)), log, side.sealed)
    if code not in ENDS:
        last = "; ".join(log.tail()[-1:]) or "it said nothing"
        raise LaunchFailed(f"image {image.name}: {argv[0]} in a container ended with exit code {code}: {last}")
    said = notes(cell, placed, side)
    if not memlock and cell.isolation != "strict":
        said += ("the engine cannot grant unlimited memlock; the launcher goes without",)
    boxes = placed.containers
    title = f"{image.name}, {policy}, {cell.isolation}: the first of {boxes} container{'s' if boxes > 1 else ''}"
    return Examined(log.lines, code, title, said)


def _lone(placed: Placement) -> Argv:
    """A rank that is alone in its container reads nobody's memory there."""
    return () if placed.shares_containers else ("--without", "cma")


def _run_in_first(engine: Engine, specs: tuple[Spec, ...], argv: Argv, log: Log, sealed: bool) -> int:
    """Exit code of a command in the first container. `clearing.nothing_left` removes what is made here."""
    engine.create_network(next(spec.network for spec in specs if spec.network), dict(specs[0].labels), sealed)
    for spec in specs:
        engine.check()
        engine.start(spec)
    first = next(spec for spec in specs if not spec.donates)
    running = engine.execute(first.name, argv, {"COLLBENCH_PLACEMENT": ""}, log.add)
    until = time.monotonic() + LIMIT
    while not running.finished.wait(LOOK):
        engine.check()
        if time.monotonic() > until:
            raise EngineError(f"container {first.name}: {argv[0]} gave no answer within {LIMIT:g} s.")
    return running.code or 0
