"""Gates: how ranks are lined up before a sample.

`roundtime`: after a barrier the root announces a start a little in the future, and every rank spins until then. A rank
that is late marks the sample invalid. `barrier`: leave a barrier, start. `none`: start.
After Hunold and Carpen-Amarie, "Hierarchical clock synchronization in MPI", IEEE Cluster 2018 (round-time scheme).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collbench.schema.case import Gate
from collbench.timing.call import Words
from collbench.timing.clocks import SAME, Line

#: A rank that enters this much after the announced start is late (ns): a few reads of the clock.
TOLERANCE_NATIVE = 200
TOLERANCE_PYTHON = 1_000

#: Slack grows up to this (ns). Where ranks are late even then, there is no common start.
LARGEST_SLACK = 20_000_000

_KIND: dict[Gate, int] = {"none": 0, "barrier": 1, "roundtime": 2}


@dataclass(frozen=True)
class Messages:
    """Messages of 8 bytes between two ranks, by which hosts compare their clocks: `send` and `receive` block.

    `cell` is the int64 [1] that is sent, and into which is received. The native forms are the same as words of C calls,
    `explain` turns their error codes into the library's text, and `keep` is what they need alive.
    """

    cell: NDArray[np.int64]
    send: Callable[[int], object]
    receive: Callable[[int], object]
    native_send: Callable[[int], Words | None] = lambda rank: None
    native_receive: Callable[[int], Words | None] = lambda rank: None
    explain: Callable[[int], str] | None = None
    keep: object = None


@dataclass(frozen=True)
class Signals:
    """What a backend provides for gates: a barrier, and a broadcast of the root's 8 bytes, in Python and as words.

    `start` is the int64 [1] that `announce` broadcasts, in nanoseconds of the ranks' clock; `announces` is true on the
    root. `relax` is called while a rank spins: a library whose own threads finish the broadcast needs the core for
    them. `explain` turns an error code of the words into the library's text. Without `messages` ranks on several hosts
    have no common time.
    """

    barrier: Callable[[], object]
    announce: Callable[[], object]
    start: NDArray[np.int64]
    announces: bool
    relax: Callable[[], object] | None = None
    native_barrier: Words | None = None
    native_announce: Words | None = None
    explain: Callable[[int], str] | None = None
    messages: Messages | None = None


@dataclass(frozen=True)
class GateSetting:
    """A gate ready to use: its kind, and how far in the future (ns) the root announces the start.

    The start is announced on the root's clock; `line` makes it one of this rank's.
    """

    kind: Gate
    signals: Signals
    slack: int = 0
    line: Line = SAME

    def native_fields(self) -> tuple[object, ...]:
        """The gate as an argument of the native loop."""
        s, line = self.signals, self.line
        calls = (_KIND[self.kind], s.native_barrier, s.native_announce)
        return (*calls, s.start, s.announces, self.slack, TOLERANCE_NATIVE, line.offset, line.slope, line.origin)

    @property
    def has_native(self) -> bool:
        """Whether the native loop can pass this gate."""
        needed: dict[Gate, tuple[Words | None, ...]] = {
            "none": (),
            "barrier": (self.signals.native_barrier,),
            "roundtime": (self.signals.native_barrier, self.signals.native_announce),
        }
        return None not in needed[self.kind]

    def wait(self, clock: Callable[[], int]) -> int:
        """Pass the gate from Python. Returns the announced start on this rank's clock, or 0 for the other kinds."""
        if self.kind == "none":
            return 0
        self.signals.barrier()
        if self.kind == "barrier":
            return 0
        if self.signals.announces:
            self.signals.start[0] = clock() + self.slack
        self.signals.announce()
        target = self.line.local(int(self.signals.start[0]))
        relax = self.signals.relax
        while clock() < target:
            if relax is not None:
                relax()
        return target

    def with_slack(self, slack: int) -> GateSetting:
        """The same gate with another slack in nanoseconds."""
        return replace(self, slack=min(slack, LARGEST_SLACK))


def announcement_delays(gate: GateSetting, clock: Callable[[], int], repetitions: int) -> NDArray[np.int64]:
    """Time from the root's stamp to this rank's receipt, [repetitions] in ns. Collective."""
    signals, delays = gate.signals, np.empty(repetitions, np.int64)
    for i in range(repetitions):
        signals.barrier()
        if signals.announces:
            signals.start[0] = clock()
        signals.announce()
        delays[i] = clock() - gate.line.local(int(signals.start[0]))
    return delays


#: No batch is planned to take longer than this (s): between batches ranks agree, feed the watchdog and can be stopped.
LONGEST_BATCH = 0.5
FIRST_BATCH = 10
LARGEST_BATCH = 2_000


class StopRule(Protocol):
    """Decides after every batch."""

    def next_batch(self, done: int, seconds: float) -> int:
        """Samples to take next, 0 to stop, after `done` samples that took `seconds` including their gates."""


def _batch(remaining: int, done: int, seconds: float) -> int:
    if done == 0:
        return min(remaining, FIRST_BATCH)
    affordable = LONGEST_BATCH * done / seconds if seconds > 0 else math.inf
    return max(1, min(remaining, int(min(affordable, LARGEST_BATCH))))


@dataclass(frozen=True)
class Fixed:
    """Exactly `n` samples."""

    n: int

    def next_batch(self, done: int, seconds: float) -> int:
        return 0 if done >= self.n else _batch(self.n - done, done, seconds)


@dataclass(frozen=True)
class Budget:
    """As many samples as fit into `seconds`, but at least `floor` and at most `cap`."""

    seconds: float
    floor: int
    cap: int

    def next_batch(self, done: int, seconds: float) -> int:
        """What the remaining budget allows at the pace so far."""
        if done >= self.cap or (done >= self.floor and seconds >= self.seconds):
            return 0
        if done == 0:
            return min(self.cap, FIRST_BATCH)
        affordable = done * max(self.seconds - seconds, 0.0) / seconds if seconds > 0 else math.inf
        wanted = max(int(min(affordable, self.cap)), self.floor - done)
        return _batch(min(wanted, self.cap - done), done, seconds) if wanted > 0 else 0
