"""The timed part of a case: warm up, then batch after batch until the stop rule says enough.

Between batches the ranks agree on rank 0's word: how many samples next, how much slack at the gate, whether to give the
gate up, whether to stop. All ranks hear the same, so they never part ways.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

from collbench.bindings.spec import Session, allgather
from collbench.errors import Interrupted
from collbench.machine.facts import RankFacts
from collbench.run.driver import TimedCall
from collbench.schema.case import Cadence, Gate
from collbench.timing.gates import GateSetting, announcement_delays
from collbench.timing.loop import Stamps
from collbench.timing.stops import FIRST_BATCH, StopRule

#: How the slack of a round-time gate is found: this many announcements, twice their slowest tenth, doubled while late.
PILOT_ANNOUNCEMENTS = 30
SMALLEST_SLACK = 1_000
LATE_SHARE = 0.05
#: A batch with a larger share of late samples quadruples the slack; after this many in a row, or when all samples
#: together are that late, an automatic gate gives round time up.
HOPELESS_SHARE = 0.5
HOPELESS_BATCHES = 6
#: Before a batch behind a barrier rank 0 announces less often than this, as often as chance says. Where a transport
#: keeps small messages in rings, the cost of the next ones depends on how many went each way before. Open MPI's rings
#: of 4 KiB hold 127 (opal/mca/btl/sm/btl_sm_fbox.h).
MOST_DISPLACEMENTS = 127


class Watch(Protocol):
    """What measuring tells and asks the watchdog."""

    stopped: int | None

    def beat(self, doing: str) -> None:
        """Something moved."""


@dataclass(frozen=True)
class Method:
    """How all cases of a run are measured. `ranks` are the facts of all ranks, by rank.

    `gate_may_change`: the user left the gate to us, so a gate that makes most samples late gives way to a barrier.
    A sample is `burst` operations, or `launches` of a graph that holds as many.
    """

    gate: Gate
    gate_may_change: bool
    clock: Literal["common", "local"]
    stop: StopRule
    warmup: int
    check: int
    cadence: Cadence
    ranks: tuple[RankFacts, ...]
    oversubscribed: bool
    burst: int = 1
    launches: int = 1


class Decision(NamedTuple):
    """Rank 0's word after a batch. `displacements` is how often it announces before the next one."""

    samples: int
    slack: int
    gate: Gate
    stop: bool
    displacements: int = 0


@dataclass
class Sampling:
    """A rank's samples of one case as they grow. `notes` are for the record."""

    form: TimedCall
    method: Method
    gate: GateSetting
    notes: list[str]
    began: int = 0
    done: list[Stamps] = field(default_factory=list)
    hopeless: int = 0

    @property
    def stamps(self) -> Stamps:
        """All samples so far."""
        return Stamps.concatenate(self.done)

    def agree(self, watch: Watch) -> int:
        """Rank 0 hears of late samples and of requests to stop, and decides. Returns the size of the next batch.

        Raises:
            Interrupted: some rank was told to stop.
        """
        late = (
            (int(self.done[-1].late.sum()), sum(int(batch.late.sum()) for batch in self.done)) if self.done else (0, 0)
        )
        heard = self.form.session.world.gather((late, watch.stopped))
        decision: Decision = self.form.session.world.bcast(None if heard is None else self._decide(heard))
        if decision.stop:
            raise Interrupted("interrupted.")
        if decision.gate != self.gate.kind:
            self.gate = GateSetting(decision.gate, self.form.session.signals)
            self.notes.append(f"gate {decision.gate}: with roundtime most samples were late")
            self.done, self.began = [], self.form.session.clock()
        self.gate = self.gate.with_slack(decision.slack)
        for _ in range(decision.displacements):
            self.form.session.signals.announce()
        return decision.samples

    def _decide(self, heard: list[tuple[tuple[int, int], int | None]]) -> Decision:
        """After a late batch: more slack, and a short batch to see whether it was enough."""
        taken = sum(len(batch.late) for batch in self.done)
        late_now = max(now for (now, _), _ in heard)
        late_ever = max(ever for (_, ever), _ in heard)
        share = late_now / len(self.done[-1].late) if self.done else 0.0
        self.hopeless = self.hopeless + 1 if share > HOPELESS_SHARE else 0
        slack = self.gate.slack * (4 if self.hopeless else 2 if share > LATE_SHARE else 1)
        n = self.method.stop.next_batch(taken, (self.form.session.clock() - self.began) * 1e-9)
        n = min(n, FIRST_BATCH) if self.hopeless else n
        stop = any(stopped for _, stopped in heard)
        tried = self.hopeless >= HOPELESS_BATCHES or (n == 0 and late_ever > HOPELESS_SHARE * taken)
        if self.method.gate_may_change and tried:
            return Decision(self.method.stop.next_batch(0, 0.0), slack, "barrier", stop, self._displacements("barrier"))
        return Decision(n, slack, self.gate.kind, stop, self._displacements(self.gate.kind))

    def _displacements(self, gate: Gate) -> int:
        """Chance in the place of how many control messages went from rank 0 so far, which depends on names and paths.

        A round-time gate announces before every sample. Ranks that share a core would announce for seconds.
        """
        if gate != "barrier" or self.method.oversubscribed or self.form.session.clock is not time.monotonic_ns:
            return 0
        return random.randrange(MOST_DISPLACEMENTS)  # noqa: S311 - not a secret


def sample(form: TimedCall, method: Method, watch: Watch, doing: str) -> Sampling:
    """Warm up and sample until enough. Collective.

    Raises:
        Interrupted: on all ranks, when one was told to stop.
        LibraryError: the library returned an error on this rank.
    """
    session = form.session
    gate = GateSetting(method.gate, session.signals)
    if gate.kind == "roundtime":
        gate = gate.with_slack(_pilot_slack(session))
    sampling = Sampling(form, method, gate, [] if form.note is None else [form.note])
    for n in _portions(method.warmup):
        watch.beat(f"{doing}: warming up")
        form.run(sampling.gate, n)
    sampling.began = session.clock()
    while (n := sampling.agree(watch)) > 0:
        watch.beat(f"{doing}: timing")
        sampling.done.append(form.run(sampling.gate, n))
    return sampling


def _portions(n: int) -> Iterator[int]:
    """Portions of at most a first batch, so that the watchdog hears from a long warm-up."""
    for start in range(0, n, FIRST_BATCH):
        yield min(FIRST_BATCH, n - start)


def _pilot_slack(session: Session) -> int:
    """Twice the ninth decile of the announcement's delay on the slowest rank, in ns."""
    delays = announcement_delays(session.signals, session.clock, PILOT_ANNOUNCEMENTS)
    slowest: int = max(allgather(session.world, int(np.quantile(delays[PILOT_ANNOUNCEMENTS // 3 :], 0.9))))
    return max(2 * slowest, SMALLEST_SLACK)
