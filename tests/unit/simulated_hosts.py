"""Hosts with simulated clocks that exchange them as real ones do, and the truth about them. Times in ns."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from collbench.backends.fake import SimulatedClock
from collbench.run.host_clocks import (
    EXCHANGES,
    Offset,
    Synchronisation,
    direct_pairs,
    interval,
    partners,
    synchronisation,
)


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
