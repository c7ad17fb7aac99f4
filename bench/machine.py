"""The machine while it measures itself: what it is, and whether it is now what it was a moment ago."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean

from installation import HERE, Installation

#: More than this share of the cores in use by others, or cores this much further apart than at their best, is a
#: disturbance.
BUSY_SHARE = 0.10
FURTHER = 1.4
LOOK = 0.25  # s


def describe() -> str:
    """One line: processor, cores, kernel, Python."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{processor}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}"


def clock_step() -> float:
    """The usual smallest step of CLOCK_MONOTONIC in seconds; its nanoseconds may be rounded from a coarser counter."""
    apart = sorted(-time.monotonic_ns() + time.monotonic_ns() for _ in range(20_000))
    usual = sorted(set(apart[: len(apart) * 9 // 10]))
    steps = [value for before, value in pairwise([-2, *usual]) if value - before > 1]
    return mean([later - earlier for earlier, later in pairwise(steps)] or [1]) * 1e-9


def core_distance(here: Installation) -> Callable[[], float]:
    """A measurement of how far apart the first two cores are now, in ns: where both MPIs put two bound ranks."""
    program = here.compile(HERE / "core_distance.c")
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
    return lambda: float(here.run((str(program), *cores), limit=60.0))


@dataclass(frozen=True)
class Moment:
    """Core-seconds in use since boot, by everybody and by us and our children, at a time in seconds."""

    at: float
    everybody: float
    ours: float

    @staticmethod
    def now() -> Moment:
        """From the first line of /proc/stat (user nice system idle iowait irq softirq steal) and getrusage."""
        ticks = [int(field) for field in _lines("/proc/stat")[0].split()[1:9]]
        used = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return Moment(time.monotonic(), used, sum(usage.ru_utime + usage.ru_stime for usage in spent))

    def others_since(self, before: Moment) -> float:
        """Share of the cores that others used since an earlier moment."""
        passed = (self.at - before.at) * len(os.sched_getaffinity(0))
        return (self.everybody - before.everybody - self.ours + before.ours) / passed


class Watched:
    """Looks for disturbances. `distance` measures how far the two cores in use are apart now, in ns."""

    def __init__(self, distance: Callable[[], float]) -> None:
        self._distance = distance
        self._before = Moment.now()
        self.nearest = min(distance() for _ in range(5))
        self.seen: list[float] = []

    def begin(self, limit: float) -> None:
        """Wait until nobody else computes and the cores are near, at most `limit` seconds. Then look."""
        until = time.monotonic() + limit
        while True:
            self._before = Moment.now()
            time.sleep(LOOK)
            if self.disturbance() is None or time.monotonic() > until:
                break
        self._before = Moment.now()

    def disturbance(self) -> str | None:
        """What happened since `begin`: others computed, or a virtual machine's cores moved apart. None: nothing."""
        others = Moment.now().others_since(self._before)
        self.seen.append(self._distance())
        self.nearest = min(self.nearest, self.seen[-1])
        if others > BUSY_SHARE:
            return f"others used {others:.0%} of the cores"
        if self.seen[-1] > FURTHER * self.nearest:
            return f"the cores moved apart ({self.seen[-1]:.0f} ns)"
        return None


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
