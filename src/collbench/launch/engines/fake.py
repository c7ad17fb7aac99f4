"""Engine `fake`, for tests: it starts nothing, on a machine that does not exist. Tests play its worlds themselves."""

from __future__ import annotations

from typing import NoReturn

from collbench.errors import PlanError
from collbench.launch.engines.spec import SHARING, Engine, LadderStep, Sharing, Site, WorldSpec, ladder_of
from collbench.launch.waiting import StopCheck
from collbench.machine.facts import Core, Topology
from collbench.schema.plan import Plan

LADDER = ladder_of(
    LadderStep("strict", "nothing shared", SHARING["strict"]),
    LadderStep("visible", "everything shared", Sharing(host=False), between=True),
    LadderStep("files", "everything shared with the host", Sharing()),
)

#: A machine that does not exist, with half of its processors on each of two memory nodes, and without a GPU.
CORES = 16
MACHINE = Topology(tuple(Core(number, number * 2 // CORES) for number in range(CORES)))


def commands(world: WorldSpec) -> tuple[str, ...]:
    step = world.cell.isolation or "no step"
    return tuple(
        f"fake {world.name} {step} {box.name} ranks={','.join(map(str, box.ranks))} cores={box.cores}"
        for box in world.placement.boxes
    )


def _connect(plan: Plan, check: StopCheck) -> NoReturn:
    raise PlanError("engine fake: is for tests and starts no ranks. Name an engine of this machine: docker.")


ENGINE = Engine("fake", _connect, (0.0, 0.0), LADDER, site=lambda plan: Site(MACHINE), commands=commands)
