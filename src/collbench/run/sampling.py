"""The timed part of a case: warm up, then batch after batch until the stop rule is met; from stamps to samples.

A sample is last rank out minus first rank in, or the largest local time. It is made by reductions: no rank holds the
stamps of another, so that time and memory grow with the samples, and hardly with the ranks. Between batches rank 0
decides for all ranks (`Decision`), so that all make the same calls.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Operation, Session, World, first_value
from collbench.errors import Interrupted
from collbench.machine.cgroup import distinct
from collbench.machine.facts import RankFacts, have_common_clock, is_oversubscribed
from collbench.run import facts_of_ranks
from collbench.run.failures import Watch
from collbench.run.host_clocks import HostClocks
from collbench.schema.axes import Driver
from collbench.schema.case import ALIGNMENTS, Alignment, Cadence, SampleClock
from collbench.schema.plan import USUAL_CAP, Plan
from collbench.schema.record import ClockError, Confinement
from collbench.timing import loop
from collbench.timing.loop import HOPELESS_SHARE, AlignmentSetting, Slack, Stamps

#: No batch is planned to take longer than this (s): between batches ranks agree, feed the watchdog and can be stopped.
LONGEST_BATCH = 0.5
FIRST_BATCH = 10
LARGEST_BATCH = 2_000


@dataclass(frozen=True)
class StopRule:
    """As many samples as fit into `seconds`, but at least `floor` and at most `cap`."""

    seconds: float
    floor: int
    cap: int

    @staticmethod
    def fixed(n: int) -> StopRule:
        """Exactly `n` samples."""
        return StopRule(0.0, n, n)

    @property
    def samples(self) -> int:
        """How many they are where their number is fixed, else 0."""
        return 0 if self.seconds else self.cap

    def next_batch(self, done: int, seconds: float) -> int:
        """Samples to take next at the pace so far, 0 to stop; `done` took `seconds`, lining up included."""
        if done >= self.cap or (done >= self.floor and seconds >= self.seconds):
            return 0
        if done == 0:
            return min(self.cap, FIRST_BATCH)
        affordable = longest = math.inf
        if seconds > 0:
            affordable = done * max(self.seconds - seconds, 0.0) / seconds
            longest = LONGEST_BATCH * done / seconds
        size = min(max(int(min(affordable, self.cap)), self.floor - done), self.cap - done)
        return max(1, min(size, int(min(longest, LARGEST_BATCH)))) if size > 0 else 0


#: The compiled loop takes 4096 calls as one stage, the two events among them.
MOST_CALLS = 4094


@dataclass(frozen=True)
class TimedCall:
    """An operation with its driver. `note` says why it is not the requested one.

    A sample is `burst` calls, each of `operations` operations.
    """

    operation: Operation
    session: Session
    driver: Driver
    note: str | None
    burst: int = 1
    operations: int = 1

    def run(self, align: AlignmentSetting, n: int, burst: int | None = None) -> Stamps:
        """Take `n` samples after lining up; LibraryError, if the library returned an error on this rank."""
        call, burst = self.operation.call, burst or self.burst
        if self.driver == "native":
            return loop.run_native(call, align, n, burst)
        return loop.run_python(call, align, n, self.session.clock, burst)

    def once(self) -> Stamps:
        """Make one call, without lining up."""
        return self.run(AlignmentSetting("none", self.session.signals), 1, 1)

    def device_times(self, n: int) -> NDArray[np.float64] | None:
        """Seconds [n] of `n` operations by the device's clock; None where this rank has no device. Collective."""
        call, align = self.operation.call, AlignmentSetting("barrier", self.session.signals)
        _, calls = self.session.world.minmax([sum(len(stage.native or ()) for stage in call.stages)])
        burst = max(min(self.burst, MOST_CALLS // max(int(calls[0]), 1)), 1)
        if call.stopwatch is None:
            self.run(align, n, burst)
            return None
        repeated = replace(call, stages=call.stages * burst)
        if self.driver == "native":
            times = loop.native_device_times(repeated, call.stopwatch, align, n)
        else:
            times = loop.python_device_times(repeated, call.stopwatch, align, n, self.session.clock)
        return times / (burst * self.operations)


def agree_on_driver(
    operation: Operation, requested: Driver, align: Alignment, session: Session, burst: int, operations: int
) -> TimedCall:
    """The requested driver if it works on every rank, else Python on all of them. Collective."""
    reason = None
    if requested == "native":
        reason = loop.why_not_native(operation.call, AlignmentSetting(align, session.signals), session.clock)
    reason = first_value(session.world, reason)
    driver: Driver = requested if reason is None else "python"
    note = None if reason is None else f"driver python: {reason}"
    return TimedCall(operation, session, driver, note, burst, operations)


#: Samples that are reduced at once: a message of half a megabyte for an operation of one stage.
PORTION = 1 << 14


@dataclass(frozen=True)
class Times:
    """The samples of a case on one rank, in ns. A late sample is negative on every rank, and none is 0.

    `samples` [n] are the same on every rank, `of_rank` [n] are this rank's part in them: with a common clock from when
    the first rank entered to when this one left, without the time between its own two stamps. The largest of all ranks
    is the sample. `legs` [stages, n] is how much each stage adds to the time of an operation, the same on every rank.
    """

    samples: NDArray[np.int64]
    of_rank: NDArray[np.int64]
    legs: NDArray[np.int64]

    @property
    def in_time(self) -> NDArray[np.bool_]:
        """[n]: which samples were not late, on all ranks alike."""
        return self.samples > 0


def times_of(stamps: Stamps, world: World, clock: SampleClock, burst: int = 1) -> Times:
    """The times of one operation, from the stamps of `burst`. Collective; all ranks took as many samples.

    With a common clock a stage lasts from the last rank's end of the previous stage to the last rank's end of this one,
    so that the stages add up to the sample. Without, it is the largest local time.
    """
    parts = []
    for begin in range(0, max(len(stamps.late), 1), PORTION):
        part = stamps[begin : begin + PORTION]
        n = len(part.late)
        ends = np.column_stack((part.marks, part.left))  # [n, stages]
        if clock == "local":
            of_rank = part.left - part.entered
            stages = ends - np.column_stack((part.entered, part.marks))
            _, highest = world.minmax(np.concatenate((of_rank, part.late, stages.ravel())))
            samples, legs = highest[:n], highest[2 * n :].reshape(ends.shape)
        else:
            lowest, highest = world.minmax(np.concatenate((part.entered, part.late, ends.ravel())))
            first, last = lowest[:n], highest[2 * n :].reshape(ends.shape)
            legs = last - np.column_stack((first, last[:, :-1]))
            samples, of_rank = last[:, -1] - first, part.left - first
        sign = 1 - 2 * highest[n : 2 * n]
        parts.append((sign * np.maximum(samples, 1), sign * np.maximum(of_rank, 1), np.ascontiguousarray(legs.T)))
    samples, of_rank, legs = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    return Times(per_operation(samples, burst), per_operation(of_rank, burst), legs)


def per_operation(times: NDArray[np.int64], burst: int) -> NDArray[np.int64]:
    """Times in ns for one operation, from the times of `burst`; signs are kept, and nothing rounds to 0."""
    shared = np.rint(np.abs(times) / burst).astype(np.int64)
    signed: NDArray[np.int64] = np.sign(times) * np.maximum(shared, 1)
    return signed


def left_early(stamps: Stamps, world: World, tolerance: int = 0) -> int:
    """How often a rank left a barrier more than `tolerance` ns before the last one had entered.

    Over all samples and ranks. Collective.
    """
    _, entered = world.minmax(stamps.entered)
    return int(world.total([int(np.count_nonzero(stamps.left + tolerance < entered))])[0])


@dataclass(frozen=True)
class Method:
    """How all cases of a run are measured. `ranks` are the facts of all ranks, by rank, on rank 0; empty elsewhere.

    `align_may_change`: the user left it to us, so a barrier replaces one with which most samples are late.
    A sample is `burst` operations, or `launches` of a graph that holds as many. `clocks` are those of several hosts,
    where they can be synchronised. A case has `most` samples at most, of slices.
    """

    align: Alignment
    align_may_change: bool
    clock: SampleClock
    stop: StopRule
    warmup: int
    check: int
    cadence: Cadence
    ranks: tuple[RankFacts, ...]
    oversubscribed: bool
    burst: int = 1
    launches: int = 1
    most: int = USUAL_CAP
    clocks: HostClocks | None = None

    @cached_property
    def confinement(self) -> tuple[Confinement, ...]:
        """What confines the ranks, for every record."""
        return distinct([rank.confinement for rank in self.ranks], [rank.kernel_id for rank in self.ranks])

    @cached_property
    def siblings(self) -> tuple[str, ...]:
        """A note on ranks that have hardware threads of one core, for every record."""
        return facts_of_ranks.siblings(self.ranks)


#: Most samples within a time budget of a simulation, whose samples take real time that its clock does not show.
SIMULATED_CAP = 30


def agreed_method(
    world: World, plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool, clocks: HostClocks | None = None
) -> Method:
    """The choice of rank 0, on all ranks; without the facts of all ranks on the others. Collective."""
    if world.rank != 0:
        method: Method = world.bcast(None)
        return replace(method, clocks=clocks)
    chosen = choose_method(plan, ranks, simulated, clocks)
    world.bcast(replace(chosen, ranks=(), clocks=None))
    return chosen


def choose_method(
    plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool, clocks: HostClocks | None = None
) -> Method:
    """The alignment that fits the machines, and the plan's stop rule. `clocks` are those of hosts that share none."""
    common = have_common_clock(ranks)
    oversubscribed = not simulated and is_oversubscribed(ranks)
    automatic: Alignment = "roundtime" if (common or clocks) and not oversubscribed else "barrier"
    cap = max(plan.floor, min(plan.cap, SIMULATED_CAP)) if simulated else plan.cap
    stop = StopRule(plan.budget_seconds, plan.floor, cap) if plan.iters is None else StopRule.fixed(plan.iters)
    return Method(
        align=next((align for align in ALIGNMENTS if align == plan.align), automatic),
        align_may_change=plan.align == "auto",
        clock="common" if common else "synced" if clocks else "local", clocks=clocks,
        stop=stop, most=stop.cap, warmup=plan.warmup, check=plan.check, burst=plan.burst, launches=plan["cudagraph"],
        cadence="streaming" if plan.cadence == "streaming" else "isolated",
        ranks=ranks, oversubscribed=oversubscribed,
    )  # fmt: skip


#: Clocks are good enough for a common start if they differ, as seen, by at most this share of the operation's time, or
#: by at most this (ns).
GOOD_SHARE, GOOD = 0.05, 200

#: Operations behind a barrier, from which the operation's time is known well enough for that.
PILOT = 10
DIFFER = f"as seen, the hosts' clocks differ by more than {GOOD_SHARE:.0%} of the operation and than {GOOD} ns"


def trusted(clocks: HostClocks | None, timed_call: TimedCall, align: Alignment, may_change: bool) -> str | None:
    """Synchronise before a case. Why its samples cannot be taken on these clocks; None where they can. Collective.

    A round-time alignment that was asked for is taken whatever the clocks are like.
    """
    if clocks is None:
        return None
    session = timed_call.session
    clocks.begin()
    pilot = timed_call.run(AlignmentSetting("barrier", session.signals), PILOT)
    clocks.synchronise()
    longest = session.world.minmax([int(np.median(pilot.left - pilot.entered))])[1][0]
    if clocks.seen <= max(GOOD, GOOD_SHARE * longest) or (align == "roundtime" and not may_change):
        return None
    return f"{'align barrier, ' if may_change else ''}largest local time: {DIFFER}"


def doubts(error: ClockError | None, sample: float) -> tuple[str, ...]:
    """A note on samples of this length (s) whose clocks turned out worse than they may be."""
    return () if error is None or error.seen <= max(GOOD * 1e-9, GOOD_SHARE * sample) else (DIFFER,)


#: How the slack of round time is found: twice the 90th percentile of announcements, the least of several pilots, since
#: something disturbs whole milliseconds; of few announcements where so many would take longer (ns). `Slack` adapts it.
ANNOUNCEMENTS, PILOTS, FEW_ANNOUNCEMENTS, SHORT_PILOTS, LONGEST_PILOT = 500, 5, 30, 3, 100_000_000
SMALLEST_SLACK = 1_000

#: After so many batches in a row of which most samples were late, or when most of all samples were late, an automatic
#: alignment changes from round time to a barrier.
HOPELESS_BATCHES = 6

#: Before a batch with a barrier rank 0 makes a random number of announcements below this. Where a transport keeps
#: small messages in rings, the cost of a message depends on how many were sent before. Open MPI's rings of 4 KiB hold
#: 127 (opal/mca/btl/sm/btl_sm_fbox.h).
MOST_DISPLACEMENTS = 127


class Decision(NamedTuple):
    """What rank 0 decides after a batch. `displacements` is how often it announces before the next one."""

    samples: int
    slack: int
    align: Alignment
    stop: bool
    displacements: int = 0


@dataclass
class Sampling:
    """A rank's samples of one case as they grow. `notes` are for the record; `clocks` of hosts are kept up with."""

    timed_call: TimedCall
    method: Method
    align: AlignmentSetting
    notes: list[str]
    began: int = 0
    done: list[Stamps] = field(default_factory=list)
    hopeless: int = 0
    clocks: HostClocks | None = None
    slack: Slack = field(init=False)

    def __post_init__(self) -> None:
        self.slack = Slack(self.align.slack)

    @property
    def stamps(self) -> Stamps:
        return Stamps.concatenate(self.done)

    @property
    def clock(self) -> SampleClock:
        """That of the stamps."""
        return "synced" if self.clocks is not None else "common" if self.method.clock == "common" else "local"

    def times(self, stamps: Stamps) -> Times:
        """Of one operation, from the stamps of every rank. Collective."""
        call = self.timed_call
        return times_of(stamps, call.session.world, self.clock, call.burst * call.operations)

    def keep(self, stamps: Stamps, portions: int) -> None:
        """Keep samples evenly, of so many portions in all no more than the plan wants of a case."""
        self.done.append(stamps[:: -(-len(stamps.late) * portions // self.method.most)])

    def anew(self, align: Alignment) -> None:
        """Forget all samples, and begin again, with this alignment."""
        if align != self.align.kind:
            self.align = AlignmentSetting(align, self.timed_call.session.signals)
            self.notes.append(f"align {align}: with roundtime most samples were late")
        self.done, self.began = [], self.timed_call.session.clock()

    def displace(self) -> None:
        """Make a random number of announcements, the same on all ranks. Collective."""
        session = self.timed_call.session
        for _ in range(session.world.bcast(self._displacements(self.align.kind))):
            session.signals.announce()

    def take(self, n: int) -> None:
        """Take a batch of `n` samples. Collective."""
        self.done.append(self.on_one_clock(self.timed_call.run(self.align, n)))

    def resume(self) -> None:
        """Catch up with the clocks of hosts after a sleep. Collective."""
        if self.clocks is not None:
            self.clocks.resume()
            self.align = replace(self.align, line=self.clocks.line)

    def on_one_clock(self, stamps: Stamps) -> Stamps:
        """Stamps since the last synchronisation, on rank 0's clock. Collective."""
        if self.clocks is None:
            return stamps
        self.clocks.synchronise()
        self.align = replace(self.align, line=self.clocks.line)
        return self.clocks.common(stamps)

    def agree(self, watch: Watch) -> int:
        """Let rank 0 decide from the reports of all ranks: the size of the next batch. Collective."""
        session = self.timed_call.session
        late = [int(batch.late.sum()) for batch in self.done]
        _, largest = session.world.minmax([late[-1] if late else 0, sum(late), watch.stopped or 0])
        decision: Decision = session.world.bcast(self._decide(*largest.tolist()) if session.world.rank == 0 else None)
        if decision.stop:
            raise Interrupted("interrupted.")
        if decision.align != self.align.kind:
            self.anew(decision.align)
        self.align = self.align.with_slack(decision.slack)
        for _ in range(decision.displacements):
            session.signals.announce()
        return decision.samples

    def _decide(self, late: int, late_in_all: int, stopped: int) -> Decision:
        """More slack after late samples; after a hopeless batch also a short one, to see whether it was enough.

        Of all ranks the most late samples of the last batch and of all, and the signal that stopped one (0: none).
        """
        done = sum(len(batch.late) for batch in self.done)
        n = self.method.stop.next_batch(done, (self.timed_call.session.clock() - self.began) * 1e-9)
        align = self.align.kind
        if self.done and self.slack.adapt(late, len(self.done[-1].late)):
            self.hopeless += 1
            n = min(n, FIRST_BATCH)
        else:
            self.hopeless = 0
        mostly_late = late_in_all > HOPELESS_SHARE * done
        give_up = self.hopeless >= HOPELESS_BATCHES or (n == 0 and mostly_late)
        if self.method.align_may_change and give_up:
            n, align = self.method.stop.next_batch(0, 0.0), "barrier"
        return Decision(n, self.slack.value, align, stopped > 0, self._displacements(align))

    def _displacements(self, align: Alignment) -> int:
        """A random number, because the number of control messages so far depends on names and paths.

        A round-time alignment announces before every sample. Ranks that share a core would announce for seconds.
        """
        simulated = self.timed_call.session.clock is not time.monotonic_ns
        if align != "barrier" or self.method.oversubscribed or simulated:
            return 0
        return random.randrange(MOST_DISPLACEMENTS)  # noqa: S311 - not a secret


def sample(
    timed_call: TimedCall, method: Method, watch: Watch, doing: str,
    in_turns: Callable[[Sampling], bool] | None = None,
) -> Sampling:  # fmt: skip
    """Warm up, and take samples until the stop rule is met. Collective.

    In a world beside others `in_turns` takes them, if it returns True.

    Raises:
        Interrupted: on all ranks, when one was told to stop.
        LibraryError: the library returned an error on this rank.
    """
    sampling = _warmed_up(timed_call, method, watch, doing)
    if in_turns is not None and in_turns(sampling):
        return sampling
    sampling.anew(sampling.align.kind)  # without what was sampled in turns
    while (n := sampling.agree(watch)) > 0:
        watch.beat(f"{doing}: timing")
        sampling.take(n)
    return sampling


def _announced(align: AlignmentSetting, session: Session, announcements: int) -> int:
    """The 90th percentile of how long announcements take, to the slowest rank (ns), without the first ones."""
    delays = loop.announcement_delays(align, session.clock, announcements)
    _, slowest = session.world.minmax([int(np.quantile(delays[FEW_ANNOUNCEMENTS // 3 :], 0.9))])
    return int(slowest[0])


def _warmed_up(timed_call: TimedCall, method: Method, watch: Watch, doing: str) -> Sampling:
    session = timed_call.session
    if method.clocks is not None:
        watch.beat(f"{doing}: comparing the hosts' clocks")
    why_not = trusted(method.clocks, timed_call, method.align, method.align_may_change)
    clocks = method.clocks if why_not is None else None
    align = AlignmentSetting("barrier" if why_not and method.align_may_change else method.align, session.signals)
    if clocks is not None:
        align = replace(align, line=clocks.line)
    if align.kind == "roundtime":
        delay = min(_announced(align, session, FEW_ANNOUNCEMENTS) for _ in range(SHORT_PILOTS))
        if delay * ANNOUNCEMENTS * PILOTS < LONGEST_PILOT:
            delay = min(_announced(align, session, ANNOUNCEMENTS) for _ in range(PILOTS))
        align = align.with_slack(max(2 * delay, SMALLEST_SLACK))
    notes = [note for note in (timed_call.note, why_not) if note is not None]
    sampling = Sampling(timed_call, method, align, notes, clocks=clocks)
    for start in range(0, method.warmup, FIRST_BATCH):  # so that the watchdog notices the progress of a long one
        watch.beat(f"{doing}: warming up")
        timed_call.run(sampling.align, min(FIRST_BATCH, method.warmup - start))
    return sampling
