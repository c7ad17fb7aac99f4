"""What a world that sleeps costs the one that measures: its slices beside a sleeper over those without one.

`duet.py --part sleeper` calls it. The driver's parts are used without its conversation: one world lives long, and
worlds of the other side are started and ended beside it.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from collbench.launch.campaign import PreparedCampaign, all_cleaned, prepare
from collbench.launch.cells import Launch, LaunchCell, LaunchPart
from collbench.launch.duet import LOOK
from collbench.launch.live_world import LaunchTask, LiveWorld
from collbench.launch.waiting import StopCheck, Stopping, limits_of
from collbench.schema.case import Case
from collbench.schema.plan import load_launch_plan
from collbench.schema.world import Order, Report
from collbench.timing.loop import LARGEST_SLACK, LATE_SHARE
from collbench.units import format_size

#: Slices in a phase, with a sleeper or without; lives of sleepers for each size; slices until few samples are late.
SLICES, SLEEPERS, SETTLING = 5, 8, 8


class WorldEnded(Exception):
    """A world ended, or said nothing, before it had done what it was to do."""


@dataclass
class Stage:
    """Starts worlds of a plan's cells, each with a number of its own. `asleep` is what sleepers used of a processor."""

    prepared: PreparedCampaign
    check: StopCheck
    generator: random.Random
    sequence: int = 0
    asleep: list[float] = field(default_factory=list)

    def cell(self, policy: str) -> LaunchCell:
        return next(cell for cell in self.prepared.expanded.cells if cell.policy == policy)

    def cases(self, cell: LaunchCell) -> tuple[Case, ...]:
        return tuple(one for case in self.prepared.expanded.cases[cell] for one in case.identities)

    @contextlib.contextmanager
    def world(self, cell: LaunchCell, cases: tuple[Case, ...]) -> Iterator[LiveWorld]:
        """A world that stands before the first of these cases; at the end it has measured them, or is removed."""
        expanded, prepared = self.prepared.expanded, self.prepared
        self.sequence += 1
        launch = Launch(cell, 0, self.sequence, LaunchPart(frozenset(cases)))
        session, stack = prepared.sessions[cell.engine], prepared.stacks.of(cell)
        session.ready()
        assignment = LaunchTask(expanded.plan, launch, stack, expanded.placements[cell], session,
                                frozenset(cases), _drop)  # fmt: skip
        world = LiveWorld(assignment, others=1)
        try:
            world.start()
            self.heard(world)
            yield world
            world.order(Order(act="end"))
            until = time.monotonic() + limits_of(expanded.plan, 1).case
            while world.look() and time.monotonic() < until:
                self.check()
                time.sleep(world.pause)
        finally:
            world.end(keep=False)
            world.close(None, None, None)

    def heard(self, world: LiveWorld) -> Report:
        """What a world reports next.

        Raises:
            WorldEnded: nothing.
        """
        limits = limits_of(self.prepared.expanded.plan, 1)
        until = time.monotonic() + limits.start + limits.case
        while world.look() and time.monotonic() < until:
            self.check()
            if (report := world.report(LOOK)) is not None:
                return report
        raise WorldEnded(str(world.failure or "no report in time"))

    def told(self, world: LiveWorld, order: Order, at: str) -> Report:
        """An order, and the report that follows it, which must be `at` the place named."""
        world.order(order)
        report = self.heard(world)
        if report.at != at:
            raise WorldEnded(f"after {order.act} it {report.at}")
        return report

    @contextlib.contextmanager
    def sleeper(self, cell: LaunchCell, case: Case) -> Iterator[None]:
        """A world that has measured a slice of a case, and sleeps."""
        with self.world(cell, (case,)) as world:
            ready = self.told(world, Order(act="begin"), "ready")
            self.told(world, _slice_of(ready, ready.slack, anew=True), "slice")
            yield
            report = self.told(world, Order(act="end"), "stands")
            self.asleep.append(report.asleep / max(report.slept, 1e-9) / cell.ranks)

    def life(self, measuring: str, sleeping: str) -> dict[str, float]:
        """By size, the logarithm of what a sleeper costs, in one life of a world that measures."""
        cell, other, found = self.cell(measuring), self.cell(sleeping), dict[str, float]()
        with self.world(cell, self.cases(cell)) as world:
            for case in self.cases(cell):
                ready = self.told(world, Order(act="begin"), "ready")
                found[format_size(int(case["size"]))] = self._cost(world, ready, other, case)
                self.told(world, Order(act="end"), "stands")
        return found

    def _cost(self, world: LiveWorld, ready: Report, other: LaunchCell, case: Case) -> float:
        slack = self._settled(world, ready)

        def phase() -> float:
            """The time of an operation in the median slice (log of s)."""
            reports = [self.told(world, _slice_of(ready, slack), "slice") for _ in range(SLICES)]
            times = [report.seconds for report in reports if report.seconds]
            if not times:
                raise WorldEnded("every sample was late")
            return math.log(median(times))

        first, costs = self.generator.random() < 0.5, list[float]()
        for _ in range(SLEEPERS):
            without = None if first else phase()
            with self.sleeper(other, case):
                beside = phase()
            costs.append(beside - (phase() if without is None else without))
        return median(costs)

    def _settled(self, world: LiveWorld, ready: Report) -> int:
        """The slack of the align (ns) with which few samples are late."""
        slack = ready.slack
        for number in range(SETTLING):
            report = self.told(world, _slice_of(ready, slack, anew=number == 0), "slice")
            if report.late <= LATE_SHARE * report.n:
                break
            slack = min(2 * slack, LARGEST_SLACK)
        return slack


def _slice_of(ready: Report, slack: int, anew: bool = False) -> Order:
    return Order(act="slice", align=ready.align, slack=slack, anew=anew, seconds=max(0.1, ready.shortest))


def _drop(*_: object) -> None:
    """Records are not kept."""


def costs(plan: Path, policies: tuple[str, str], lives: int, seed: int, done: Callable[[Any], None]) -> dict[str, Any]:
    """By policy of the world that measures and by size, the logarithms, one of each life; the other one's sleeps.

    `done` gets what there is after each life. A life in which a world ended is left out, and counted.
    """
    stopping, found = Stopping(), {policy: defaultdict[str, list[float]](list) for policy in policies}
    failed = list[str]()
    with stopping.listening():
        prepared = prepare(load_launch_plan(plan), stopping.check)
        stage = Stage(prepared, stopping.check, random.Random(seed))  # noqa: S311 - an order, not a secret
        with all_cleaned(prepared.sessions):
            for _ in range(lives):
                for measuring in stage.generator.sample(policies, 2):
                    sleeping = next(policy for policy in policies if policy != measuring)
                    try:
                        life = stage.life(measuring, sleeping)
                    except WorldEnded as error:
                        failed.append(f"{measuring}: {error}")
                        continue
                    for size, cost in life.items():
                        found[measuring][size].append(cost)
                    done(_told(found, stage, failed))
    return _told(found, stage, failed)


def _told(found: dict[str, Any], stage: Stage, failed: list[str]) -> dict[str, Any]:
    environments = stage.prepared.stacks.environments
    libraries = dict.fromkeys(f"{one.name} {one.version}" for side in environments for one in side.libraries)
    return {"costs": {policy: dict(by_size) for policy, by_size in found.items()}, "failed": failed,
            "share of a processor asleep": sorted(stage.asleep)[-1:], "libraries": list(libraries)}  # fmt: skip
