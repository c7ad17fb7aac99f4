"""Hosts with simulated clocks that exchange them as real ones do, and the truth about them. Times in ns."""

from __future__ import annotations

import queue
import random
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.processes import LIMIT

from collbench.backends.fake import FakeSession, Fault, Hub
from collbench.errors import LostRankError
from collbench.run.host_clocks import (
    EXCHANGES,
    Offset,
    Synchronisation,
    direct_pairs,
    interval,
    partners,
    synchronisation,
)
from collbench.schema.axes import ThreadLevel
from collbench.timing.loop import Messages


@dataclass(frozen=True)
class SimulatedClock:
    """A host's clock against true time.

    `drift` is the part by which it runs fast; `slews` are moments from which on it runs faster by another part, as when
    NTP corrects a rate. `slow_in` is how much longer messages to this host take than those from it.
    """

    offset: int = 0
    drift: float = 0.0
    slews: tuple[tuple[int, float], ...] = ()
    slow_in: int = 0

    def read(self, true: float) -> int:
        """What it shows at a moment of true time."""
        gained = true * self.drift + sum(max(true - begins, 0.0) * part for begins, part in self.slews)
        return self.offset + int(true + gained)


#: One way of a message between two ranks, and how much longer at most it may take.
_MESSAGE, _JITTER = 1_000, 300

#: How often a rank that waits for a message looks whether others are gone (s).
_LOOK = 0.05


class SessionOnHosts(FakeSession):
    """One rank of the fake backend, on one of several hosts in turn, whose clocks disagree; ranks send messages."""

    def __init__(
        self, clocks: tuple[SimulatedClock, ...], hub: Hub, rank: int, level: ThreadLevel, fault: Fault | None
    ) -> None:
        super().__init__(hub, rank, level, fault)
        self._clocks = clocks
        self._random = random.Random(rank)  # noqa: S311 - noise, not secrecy
        # setdefault is atomic, so that all ranks have one table, and both sides one queue
        self._posts: dict[tuple[int, int], queue.SimpleQueue[Any]] = vars(hub).setdefault("posts", {})
        self.clock_id, self.clock = f"simulated {rank % len(clocks)}", self._read_clock
        self._cell = np.zeros(1, np.int64)
        self.signals = replace(self.signals, messages=Messages(self._cell, self._send, self._receive))

    def _host_of(self, rank: int) -> SimulatedClock:
        return self._clocks[rank % len(self._clocks)]

    def _read_clock(self) -> int:
        return self._host_of(self._rank).read(self.moment())

    def _send(self, other: int) -> None:
        way = _MESSAGE + self._random.randrange(_JITTER) + self._host_of(other).slow_in
        message = (self.moment() + way, int(self._cell[0]))
        self._posts.setdefault((self._rank, other), queue.SimpleQueue()).put(message)

    def _receive(self, other: int) -> None:
        post = self._posts.setdefault((other, self._rank), queue.SimpleQueue())
        ends = time.monotonic() + LIMIT
        while not self._hub._barrier.broken and time.monotonic() < ends:
            with suppress(queue.Empty):
                arrived, self._cell[0] = post.get(timeout=_LOOK)
                self._hub.clocks[self._rank] = max(self.moment(), arrived)
                return
        raise LostRankError("another rank left, or sent no message")


@dataclass(frozen=True)
class Hosts:
    """Clocks by host. A message takes `way`, and by chance half as long again; every tenth much longer."""

    clocks: tuple[SimulatedClock, ...]
    chance: random.Random
    way: float = 1_000.0

    def travel(self, receiver: SimulatedClock) -> float:
        late = 20 * self.way * self.chance.random() if self.chance.random() < 0.1 else 0.0
        return self.way * (1 + 0.5 * self.chance.random()) + receiver.slow_in + late

    def exchanged(self, asks: int, asked: int, true: float) -> tuple[Offset, float]:
        """How far the first is ahead, as `ask` finds it from this moment on; and the moment when it has."""
        one, other = self.clocks[asks], self.clocks[asked]
        rows = []
        for _ in range(EXCHANGES):
            before = one.read(true)
            true += self.travel(other)
            theirs = other.read(true)
            true += self.travel(one)
            rows.append((before, theirs, one.read(true)))
            true += 50
        return interval(*np.array(rows, np.int64).T), true - 50

    def synchronised(self, true: float) -> tuple[Synchronisation, float]:
        """All hosts, with the exchanges of a round at the same time; and the moment when they are through."""
        hosts = len(self.clocks)
        found, ready = [Offset(self.clocks[0].read(true), 0, 0)] * hosts, [true] * hosts
        for host in sorted(range(1, hosts), key=lambda host: host & -host):
            parent = next(other for other, asks in partners(host, hosts) if asks)
            found[host], ready[host] = self.exchanged(host, parent, max(ready[host], ready[parent]))
            ready[parent] = ready[host]
        direct = []
        for asked, asks in direct_pairs(hosts):
            offset, ready[asks] = self.exchanged(asks, asked, max(ready[asked], ready[asks]))
            direct.append((asked, asks, offset))
        return synchronisation(found, direct), max(ready)

    def true_offset(self, host: int, true: float) -> int:
        """How far a host's clock is ahead of the first one's."""
        return self.clocks[host].read(true) - self.clocks[0].read(true)


def drifting(hosts: int, seed: int, slew: float = 0.0) -> Hosts:
    """Offsets of up to hours, rates off by 5 ppm, and at a random moment of 10 s the rate of each changes by `slew`."""
    chance = random.Random(seed)  # noqa: S311 - noise, not secrecy
    clocks = tuple(
        SimulatedClock(
            offset=chance.randrange(10**13),
            drift=chance.gauss(0, 5e-6),
            slews=((chance.randrange(10**10), slew),) if slew else (),
            slow_in=chance.randrange(100),
        )
        for _ in range(hosts)
    )
    return Hosts(clocks, chance)
