"""Clocks of simulated hosts: offset, drift, changes of rate, and a slow way into a host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SimulatedClock:
    """A host's clock against true time (ns).

    `drift` is the part by which it runs fast; `slews` are moments from which on it runs faster by another part, as when
    NTP corrects a rate. `slow_in` is how much longer (ns) messages to this host take than those from it.
    """

    offset: int = 0
    drift: float = 0.0
    slews: tuple[tuple[int, float], ...] = ()
    slow_in: int = 0

    def read(self, true: float) -> int:
        """What it shows at a moment of true time."""
        gained = true * self.drift + sum(max(true - begins, 0.0) * part for begins, part in self.slews)
        return self.offset + int(true + gained)
