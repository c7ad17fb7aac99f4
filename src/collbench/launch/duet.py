"""A duet: worlds that live at once on the same processors, and measure in turns while the others sleep.

What the machine does meanwhile meets all of them alike. After Bulej et al., "Duet Benchmarking: Improving Measurement
Accuracy in the Cloud", ICPE 2020; turns in random order after Abedi and Brecht, "Conducting Repeatable Experiments in
Highly Variable Cloud Computing Environments", ICPE 2017.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal

from collbench.errors import Interrupted
from collbench.launch.expansion import Group
from collbench.launch.live_world import LaunchTask, LiveWorld, without_measure
from collbench.launch.waiting import LONGEST_PASS, StopCheck, limits_of
from collbench.schema.case import Alignment, Case
from collbench.schema.plan import Plan
from collbench.schema.record import Alone, Duet, Slice
from collbench.schema.world import Order, Report, SliceRule
from collbench.timing.loop import Slack

#: Intervals at which worlds are looked at while one of them measures, and when all are about to end (s).
LOOK, ENDING = 0.25, 0.02

#: After so many rounds in a row of which most samples were late, an automatic alignment becomes a barrier. As within a
#: world (run/sampling.py).
HOPELESS = 6

#: A sleep that was none may be the machine's doing: a page that is missing, a processor that was taken away. So there
#: must be more than a share of them, by so many standard errors.
STANDARD_ERRORS = 2.0

#: What is compared among worlds before their first slice.
CHECKED = ("processors", "shared memory", "open files", "connections", "temporary folder")


@dataclass(frozen=True)
class Turn:
    """A slice that a world measured, as the `place`-th of its round. `started` is in s of the driver's clock."""

    started: float
    place: int
    report: Report


#: One turn of each world, in order.
Round = Mapping[LiveWorld, Turn]


def run_together(
    group: Group, assignments: Sequence[LaunchTask], order: Sequence[Case], levels: dict[Case, float], check: StopCheck
) -> tuple[list[LiveWorld], Alone | None]:
    """Perform launches at once; a single one, without turns. Nothing of them is left when this returns or raises.

    The `assignments` of the group's launches each measure some cases of `order`. `levels` are the times (log of s) of
    the reference in other groups of the block, by case. Returns the worlds as they ended, or why they cannot
    live at once: then nothing was kept. Raises Interrupted, after which what was measured has been kept.
    """
    cases = sum(len(assignment.expected) for assignment in assignments)  # a world lives until all are measured
    worlds = [LiveWorld(assignment, len(assignments) - 1, cases) for assignment in assignments]
    refused, interrupted = None, None
    with contextlib.ExitStack() as stack:
        for world in worlds:
            stack.push(world.close)
        try:
            for world in worlds:
                check()
                world.start()
            if len(worlds) > 1:
                refused = _Conversation(group, worlds, order, levels, check).held()
            if refused is None:
                while running := [world for world in worlds if world.look()]:
                    check()
                    time.sleep(ENDING if len(worlds) > 1 else max(world.pause for world in running))
        except Interrupted as error:
            interrupted = error
        for world in worlds:
            world.end(refused is None and world.launch in group.kept, interrupted)
    if interrupted is not None:
        raise interrupted
    return worlds, refused


class _Conversation:
    """What the driver orders, and hears, from the first reports to the last ones."""

    def __init__(
        self, group: Group, worlds: Sequence[LiveWorld], order: Sequence[Case], levels: dict[Case, float],
        check: StopCheck,
    ) -> None:  # fmt: skip
        self._worlds, self._levels, self._check = worlds, levels, check
        self._plan: Plan = worlds[0].assignment.plan
        self._rule, self._limits = self._plan.slices, limits_of(self._plan, 1)
        self._turns = random.Random(f"{self._plan.seed}/{group.launches[0].sequence}")  # noqa: S311 - an order, not a secret
        self._reference = next((world for world in worlds if world.launch is group.reference), None)
        self._numbers = {case: number for number, case in enumerate(order)}
        self._slept: list[bool] = []  # of all slices so far, whether their world slept before
        self._refused: Alone | None = None

    def held(self) -> Alone | None:
        """Why these worlds cannot live at once; None: they did, to the end of each."""
        for world in self._worlds:
            self._wait_for(world, ("stands",), self._limits.case + self._limits.start)
        if any(world.over and world.unreachable for world in self._worlds):
            return "unreachable"
        if len({world.cores for world in self._alive}) > 1:
            return "elsewhere"
        holds = [held for world in self._alive for held in set(world.holds)]
        if len(holds) > len(set(holds)):
            return "shared"
        while standing := [world for world in self._alive if world.stands is not None]:
            case = min((world.stands for world in standing if world.stands), key=self._numbers.__getitem__)
            self._case(case, [world for world in standing if world.stands == case])
            if self._refused is not None:
                return self._refused
        for world in self._alive:
            world.order(Order(act="end"))
        return None

    @property
    def _alive(self) -> list[LiveWorld]:
        return [world for world in self._worlds if not world.over]

    def _wait_for(self, world: LiveWorld, expected: Collection[str], limit: float | None = None) -> Report | None:
        """What a world reports next, one of what is `expected`, while the others are looked at; None: it is over."""
        limit = self._limits.case if limit is None else limit
        waited, last = 0.0, time.monotonic()
        while not world.over:
            self._check()
            if (report := world.report(LOOK)) is not None:
                for other in self._worlds:  # progress of those that sleep, too
                    other.reports += 1
                if report.at not in expected or not self._goes_on(world, report):
                    world.give_up("its ranks sent an unexpected report")
                    return None
                if report.at == "stands":
                    world.stands, world.holds = report.case, report.holds or world.holds
                    world.cores = report.cores or world.cores
                return report
            for other in self._worlds:
                other.look()
            now = time.monotonic()
            waited, last = waited + min(now - last, LONGEST_PASS), now
            if waited > limit and not world.over:
                world.give_up(f"no report for {limit:g} s")
        return None

    def _goes_on(self, world: LiveWorld, report: Report) -> bool:
        """Whether it does not stand before a case that is not its own, or that it has left behind."""
        last, case = -1 if world.stands is None else self._numbers[world.stands], report.case
        return case is None or (case in world.assignment.expected and self._numbers[case] > last)

    def _ask(self, world: LiveWorld, order: Order, *expected: str) -> Report | None:
        world.order(order)
        return self._wait_for(world, expected)

    def _case(self, case: Case, worlds: Sequence[LiveWorld]) -> None:
        """Measure a case in the worlds that stand before it, and bring them to their next one."""
        ready: dict[LiveWorld, Report] = {}
        for world in worlds:
            report = self._ask(world, Order(act="begin"), "ready", "stands")
            if report is not None and report.at == "ready":
                ready[world] = report  # else it is over, or it skipped the case
            elif report is not None:
                world.broken.add(without_measure(case))
        members, turns = list(ready), list[Round]()
        while len(members) > 1 and not turns:
            turns = self._rounds(members, [ready[world] for world in members])
            if self._refused is not None:
                return
            members = [world for world in members if not world.over]
        # each checks its results and records the case; a pair counts where all did
        in_pair = bool(turns) and len(members) > 1
        ended = [self._ask(world, Order(act="end" if in_pair else "alone"), "stands") for world in members]
        if in_pair and None not in ended:
            first = next(iter(turns[0].values())).report
            for name in first.measures or ("",):
                measured = case.having(measure=name) if name else case
                for world, duet in self._duets(measured, members, turns, name).items():
                    world.duets[measured] = duet
        for world in members:
            world.broken.add(without_measure(case))  # what is not in a duet has no partner

    def _rounds(self, members: list[LiveWorld], ready: Sequence[Report]) -> list[Round]:
        """All rounds of a case; none: a world died, so that the case begins again with the others."""
        align: Alignment = "barrier" if any(report.align == "barrier" for report in ready) else ready[0].align
        slack = Slack(max(report.slack for report in ready))
        seconds = max(self._rule.seconds, *(report.shortest for report in ready))
        samples, rounds, anew, hopeless, enough = max(report.samples for report in ready), list[Round](), True, 0, False
        began = time.monotonic()
        while not enough:
            order = Order(act="slice", align=align, slack=slack.value, anew=anew, seconds=seconds,
                          operations=_operations(samples, len(rounds), self._rule),
                          sleepers=len(members) - 1, rule=self._rule)  # fmt: skip
            if (played := self._round(members, order)) is None:
                return []
            rounds.append(played)
            worst = max((turn.report for turn in played.values()), key=lambda report: report.late / max(report.n, 1))
            hopeless = hopeless + 1 if slack.adapt(worst.late, worst.n) else 0
            anew, passed = False, (time.monotonic() - began) / len(members)
            enough = _enough(len(rounds), samples, passed, self._rule)
            mostly = enough and 2 * _most(rounds, "late") > _most(rounds, "n")
            if align == "roundtime" and self._plan.align == "auto" and (hopeless >= HOPELESS or mostly):
                align, anew, hopeless, rounds, enough, began = "barrier", True, 0, [], False, time.monotonic()
        self._slept += [slept for turns in rounds for slept in _slept(turns, self._rule)]
        share, sleeps = self._rule.invalid, len(self._slept)
        if self._slept.count(False) > share * sleeps + STANDARD_ERRORS * math.sqrt(share * (1 - share) * sleeps):
            self._refused = "awake"
        return rounds

    def _round(self, members: Sequence[LiveWorld], order: Order) -> Round | None:
        played: dict[LiveWorld, Turn] = {}
        for place, world in enumerate(self._turns.sample(members, len(members))):
            started = time.monotonic()
            if (report := self._ask(world, order, "slice")) is None:
                return None
            played[world] = Turn(started, place, report)
        return played

    def _duets(
        self, case: Case, members: Sequence[LiveWorld], rounds: Sequence[Round], name: str
    ) -> dict[LiveWorld, Duet]:  # fmt: skip
        """Of each member its part in a case, of one measure where these have names; none: too little was in time."""
        # a round counts where all worlds slept before their turns in it and in the next one
        slept = [all(_slept(turns, self._rule)) for turns in rounds]
        valid = [before and after for before, after in zip(slept, (*slept[1:], True), strict=True)]
        reference = self._reference
        times = {world: [_time_of(turns[world], name) for turns in rounds] for world in members}
        complete = [k for k, counts in enumerate(valid) if counts and all(times[world][k] for world in members)]
        logs = {world: [math.log(taken[k] or 1.0) for k in complete] for world, taken in times.items()}
        if not complete or (reference is not None and reference not in logs):
            return {}
        middles = logs[reference] if reference else [mean(column) for column in zip(*logs.values(), strict=True)]
        level = mean(middles) if reference is None else self._levels.setdefault(case, mean(middles))
        began, duets = next(iter(rounds[0].values())).started, dict[LiveWorld, Duet]()
        for world in members:
            relative = median(log - middle for log, middle in zip(logs[world], middles, strict=True))
            turns = zip((turns[world] for turns in rounds), valid, strict=True)
            duets[world] = Duet(
                worlds=len(members), started=self._worlds.index(world), seconds=math.exp(level + relative),
                slices=tuple(_slice(turn, name, began, counts) for turn, counts in turns), checked=CHECKED,
                reference=world is reference,
            )  # fmt: skip
        return duets


def _operations(samples: int, number: int, rule: SliceRule) -> int:
    """Samples of a slice of this round, of so many in all; 0: as many as its time allows."""
    if samples == 0:
        return 0
    rounds = rule.rounds_of(samples)
    return samples // rounds + (number < samples % rounds)


def _enough(rounds: int, samples: int, passed: float, rule: SliceRule) -> bool:
    """Whether these rounds, which took a world so long (s), are enough for a case of so many samples (0: any)."""
    if samples:
        return rounds >= rule.rounds_of(samples)
    return rounds >= rule.rounds or (rounds >= rule.fewest and passed > 2 * rule.usual)


def _slept(turns: Round, rule: SliceRule) -> list[bool]:
    """Of each world whether its ranks slept before its turn. What all use in their sleep slows all alike."""
    shares = [max(turn.report.asleep / world.launch.cell.ranks - rule.waking, 0.0) / (turn.report.slept or math.inf)
              for world, turn in turns.items()]  # fmt: skip
    return [share <= min(rule.asleep_most, min(shares) + rule.asleep) for share in shares]


def _most(rounds: Sequence[Round], count: Literal["late", "n"]) -> int:
    """Over all rounds, the largest number of late samples, or of samples, of a world."""
    return sum(max(getattr(turn.report, count) for turn in turns.values()) for turns in rounds)


def _time_of(turn: Turn, name: str) -> float | None:
    return turn.report.measures.get(name) if name else turn.report.seconds


def _slice(turn: Turn, name: str, began: float, valid: bool) -> Slice:
    report, start = turn.report, max(turn.started - began, 0.0)
    return Slice(start=start, place=turn.place, n=report.n, seconds=_time_of(turn, name) or 0.0, halves=report.halves,
                 asleep=report.asleep, slept=report.slept, valid=valid)  # fmt: skip
