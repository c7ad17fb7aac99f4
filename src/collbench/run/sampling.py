"""The timed part of a case: warm up, then batch after batch until the stop rule is met.

Between batches rank 0 decides for all ranks how many samples come next, how much slack the gate has, whether the gate
changes and whether to stop, so that all ranks make the same calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from collbench.bindings.spec import Session
from collbench.errors import Interrupted
from collbench.machine.cgroup import distinct
from collbench.machine.facts import RankFacts
from collbench.run import facts_of_ranks
from collbench.run.driver import TimedCall
from collbench.run.host_clocks import HostClocks, trusted
from collbench.run.samples import Times, times_of
from collbench.schema.case import Cadence, Gate, SampleClock
from collbench.schema.plan import USUAL_CAP
from collbench.schema.record import Confinement
from collbench.timing.gates import FIRST_BATCH, GateSetting, StopRule, announcement_delays
from collbench.timing.loop import Stamps

#: How the slack of a round-time gate is found: this many announcements, twice their slowest tenth, doubled while late.
PILOT_ANNOUNCEMENTS = 30
SMALLEST_SLACK = 1_000
LATE_SHARE = 0.05
#: A batch with a larger share of late samples quadruples the slack; after this many in a row, or when that share of all
#: samples is late, an automatic gate changes from round time to a barrier.
HOPELESS_SHARE = 0.5
HOPELESS_BATCHES = 6
#: Before a batch with a barrier gate rank 0 makes a random number of announcements below this. Where a transport keeps
#: small messages in rings, the cost of a message depends on how many were sent before. Open MPI's rings of 4 KiB hold
#: 127 (opal/mca/btl/sm/btl_sm_fbox.h).
MOST_DISPLACEMENTS = 127


class Watch(Protocol):
    """A watchdog as seen by what it watches."""

    @property
    def stopped(self) -> int | None:
        """The number of the signal that told the process to stop."""

    def beat(self, doing: str) -> None:
        """The process makes progress; `doing` is what comes next."""

    def failed(self, reason: str | None, lost: bool = False) -> None:
        """A call has failed on this rank, and others may wait inside theirs; None: they have come out of it."""


@dataclass(frozen=True)
class Method:
    """How all cases of a run are measured. `ranks` are the facts of all ranks, by rank, on rank 0; empty elsewhere.

    `gate_may_change`: the user left the gate to us, so a barrier replaces a gate with which most samples are late.
    A sample is `burst` operations, or `launches` of a graph that holds as many. `clocks` are those of several hosts,
    where they can be synchronised. A case has `most` samples at most, of slices.
    """

    gate: Gate
    gate_may_change: bool
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


class BatchReport(NamedTuple):
    """What a rank reports after a batch: its late samples, of the batch and of all, and the signal that stopped it (0).

    Of all ranks: the largest of each.
    """

    late: int
    late_in_all: int
    stopped: int


class Decision(NamedTuple):
    """What rank 0 decides after a batch. `displacements` is how often it announces before the next one."""

    samples: int
    slack: int
    gate: Gate
    stop: bool
    displacements: int = 0


@dataclass
class Sampling:
    """A rank's samples of one case as they grow. `notes` are for the record; `clocks` of hosts are kept up with."""

    timed_call: TimedCall
    method: Method
    gate: GateSetting
    notes: list[str]
    began: int = 0
    done: list[Stamps] = field(default_factory=list)
    hopeless: int = 0
    clocks: HostClocks | None = None

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
        step = -(-len(stamps.late) * portions // self.method.most)
        self.done.append(stamps.every(step))

    def anew(self, gate: Gate) -> None:
        """Forget all samples, and begin again, with this gate."""
        if gate != self.gate.kind:
            self.gate = GateSetting(gate, self.timed_call.session.signals)
            self.notes.append(f"gate {gate}: with roundtime most samples were late")
        self.done, self.began = [], self.timed_call.session.clock()

    def displace(self) -> None:
        """Make a random number of announcements, the same on all ranks. Collective."""
        for _ in range(self.timed_call.session.world.bcast(self._displacements(self.gate.kind))):
            self.timed_call.session.signals.announce()

    def take(self, n: int) -> None:
        """Take a batch of `n` samples. Collective.

        Raises:
            LibraryError: the library returned an error on this rank.
        """
        self.done.append(self.on_one_clock(self.timed_call.run(self.gate, n)))

    def resume(self) -> None:
        """Catch up with the clocks of hosts after a sleep. Collective."""
        if self.clocks is not None:
            self.clocks.resume()
            self.gate = replace(self.gate, line=self.clocks.line)

    def on_one_clock(self, stamps: Stamps) -> Stamps:
        """Stamps since the last synchronisation, on rank 0's clock. Collective."""
        if self.clocks is None:
            return stamps
        self.clocks.synchronise()
        self.gate = replace(self.gate, line=self.clocks.line)
        return self.clocks.common(stamps)

    def agree(self, watch: Watch) -> int:
        """Let rank 0 decide from the reports of all ranks. Returns the size of the next batch. Collective.

        Raises:
            Interrupted: some rank was told to stop.
        """
        session = self.timed_call.session
        late = [int(batch.late.sum()) for batch in self.done]
        _, largest = session.world.extremes(BatchReport(late[-1] if late else 0, sum(late), watch.stopped or 0))
        decided = self._decide(BatchReport(*largest.tolist())) if session.world.rank == 0 else None
        decision: Decision = session.world.bcast(decided)
        if decision.stop:
            raise Interrupted("interrupted.")
        if decision.gate != self.gate.kind:
            self.anew(decision.gate)
        self.gate = self.gate.with_slack(decision.slack)
        for _ in range(decision.displacements):
            session.signals.announce()
        return decision.samples

    def _decide(self, largest: BatchReport) -> Decision:
        """More slack after late samples; after a hopeless batch also a short one, to see whether it was enough."""
        stop = largest.stopped > 0
        share = largest.late / len(self.done[-1].late) if self.done else 0.0
        done = sum(len(batch.late) for batch in self.done)
        n = self.method.stop.next_batch(done, (self.timed_call.session.clock() - self.began) * 1e-9)
        slack = self.gate.slack
        if share > HOPELESS_SHARE:
            self.hopeless += 1
            slack *= 4
            n = min(n, FIRST_BATCH)
        else:
            self.hopeless = 0
            slack *= 2 if share > LATE_SHARE else 1
        mostly_late = largest.late_in_all > HOPELESS_SHARE * done
        give_up = self.hopeless >= HOPELESS_BATCHES or (n == 0 and mostly_late)
        if self.method.gate_may_change and give_up:
            return Decision(self.method.stop.next_batch(0, 0.0), slack, "barrier", stop, self._displacements("barrier"))
        return Decision(n, slack, self.gate.kind, stop, self._displacements(self.gate.kind))

    def _displacements(self, gate: Gate) -> int:
        """A random number, because the number of control messages so far depends on names and paths.

        A round-time gate announces before every sample. Ranks that share a core would announce for seconds.
        """
        simulated = self.timed_call.session.clock is not time.monotonic_ns
        if gate != "barrier" or self.method.oversubscribed or simulated:
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
    sampling.anew(sampling.gate.kind)  # without what was sampled in turns
    while (n := sampling.agree(watch)) > 0:
        watch.beat(f"{doing}: timing")
        sampling.take(n)
    return sampling


def _warmed_up(timed_call: TimedCall, method: Method, watch: Watch, doing: str) -> Sampling:
    session = timed_call.session
    if method.clocks is not None:
        watch.beat(f"{doing}: comparing the hosts' clocks")
    why_not = trusted(method.clocks, timed_call, method.gate, method.gate_may_change)
    clocks = method.clocks if why_not is None else None
    gate = GateSetting("barrier" if why_not and method.gate_may_change else method.gate, session.signals)
    if clocks is not None:
        gate = replace(gate, line=clocks.line)
    if gate.kind == "roundtime":
        gate = gate.with_slack(_pilot_slack(session, gate))
    notes = [note for note in (timed_call.note, why_not) if note is not None]
    sampling = Sampling(timed_call, method, gate, notes, clocks=clocks)
    for start in range(0, method.warmup, FIRST_BATCH):  # so that the watchdog notices the progress of a long one
        watch.beat(f"{doing}: warming up")
        timed_call.run(sampling.gate, min(FIRST_BATCH, method.warmup - start))
    return sampling


def _pilot_slack(session: Session, gate: GateSetting) -> int:
    """Twice the ninth decile of the announcement's delay on the slowest rank, in ns."""
    delays = announcement_delays(gate, session.clock, PILOT_ANNOUNCEMENTS)
    _, slowest = session.world.extremes([int(np.quantile(delays[PILOT_ANNOUNCEMENTS // 3 :], 0.9))])
    return max(2 * int(slowest[0]), SMALLEST_SLACK)
