"""Doctor in the containers that a launch would make of an image."""

from __future__ import annotations

import time
from dataclasses import dataclass

from collbench.errors import EngineError, LaunchFailed, RequestError
from collbench.launch import engines
from collbench.launch.cells import Launch
from collbench.launch.engines.spec import OpenWorld, Session
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.folders.layout import folders
from collbench.launch.live_world import world_of
from collbench.launch.log import Log
from collbench.launch.placing import Placement
from collbench.launch.rank_environment import notes, places
from collbench.launch.stacks import stack_of
from collbench.launch.starters.starter import Argv
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan, check_launch_plan
from collbench.units import counted

#: Longest wait for the command (s), the interval of looking whether it ended (s), and the ranks whose containers are
#: made.
LIMIT, LOOK, RANKS = 120.0, 0.25, 2

#: Exit codes of doctor: nothing failed, a check failed, a wrong request (an unknown check).
EXIT_CODES = frozenset({0, 1, 2})


@dataclass(frozen=True)
class Examined:
    """What the command printed in the first container, its exit code, and what the launcher would set by itself."""

    lines: tuple[str, ...]
    code: int
    title: str
    notes: tuple[str, ...]


def examine(expanded: ExpandedPlan, session: Session, argv: Argv, check: StopCheck) -> Examined:
    """Make the containers of the plan's first cell, run the command in the first one, remove them.

    Raises:
        CollbenchError: no such image, no answer within the limit, or an exit code that is not doctor's.
    """
    cell = expanded.cells[0]
    with session.cleaned():
        looks = session.look(expanded.plan, expanded.placements_on(cell.engine), {})
        stack, placement = stack_of(expanded.plan, cell.image, looks.by_image[cell.image]), expanded.placements[cell]
        user = engines.get(cell.engine).user()
        with folders(expanded.plan.inner(), user, places=places(cell, placement)) as at:
            world = world_of(Launch(cell, 0, 0), stack, placement, session.run, at)
            log = Log()
            with session.open(world) as opened:
                code = _run_in_first(opened, (*argv, *_lone(placement)), log, check)
    if code not in EXIT_CODES:
        last = "; ".join(log.tail()[-1:]) or "without output"
        raise LaunchFailed(f"image {cell.image}: {argv[0]} in a container ended with exit code {code}: {last}")
    containers = counted(len(placement.boxes), "container")
    title = f"{cell.image}, {cell.policy}, {cell.isolation}: the first of {containers}"
    return Examined(log.lines, code, title, (*notes(cell, placement, stack), *looks.remarks))


def expanded_for(image: str, policy: str, step: str, engine: str) -> ExpandedPlan:
    """A plan of one cell: two ranks in containers of an image.

    Raises:
        PlanError: no such policy, step or engine.
    """
    plan = LaunchPlan(collectives=("allreduce",), images=(image,), policies=(policy,), isolation=(step,),
                      engine=engine, ranks=(RANKS,), oversubscribe=True)  # fmt: skip
    expanded = expand(check_launch_plan(plan))
    if expanded.cells[0].isolation is None:
        raise RequestError(f"doctor --image: policy {policy} has no container; remove --image.")
    return expanded


def _lone(placement: Placement) -> Argv:
    """A rank that is alone in its container reads no other rank's memory there."""
    return () if placement.shares_boxes else ("--without", "cma")


def _run_in_first(opened: OpenWorld, argv: Argv, log: Log, check: StopCheck) -> int:
    """Exit code of a command in the first container."""
    host = opened.hosts[0][0]
    running = opened.execute(host, argv, {}, log)
    until = time.monotonic() + LIMIT
    while (code := running.code) is None:
        check()
        if time.monotonic() > until:
            raise EngineError(f"container {host}: {argv[0]} did not end within {LIMIT:g} s.")
        time.sleep(LOOK)
    return code
