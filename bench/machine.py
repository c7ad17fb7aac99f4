"""The machine while it measures itself: what it is, and whether it is now what it was a moment ago."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
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


class Watched:
    """Looks for disturbances. `distance` measures how far the two cores in use are apart now, in ns."""

    def __init__(self, distance: Callable[[], float]) -> None:
        self._distance = distance
        self.nearest = min(distance() for _ in range(5))
        self.seen: list[float] = []

    def disturbed(self) -> bool:
        """Whether the cores are further apart than at their best: a virtual machine's cores move about."""
        now = self._distance()
        self.seen.append(now)
        self.nearest = min(self.nearest, now)
        return now > FURTHER * self.nearest

    def wait(self, limit: float) -> None:
        """Wait until nobody else computes and the cores are near, at most `limit` seconds."""
        until = time.monotonic() + limit
        while (_busy_share() > BUSY_SHARE or self.disturbed()) and time.monotonic() < until:
            pass


def _busy_share() -> float:
    """Share of the cores in use during a moment: the first line of /proc/stat (user nice system idle iowait ...)."""
    ticks: list[list[int]] = []
    for pause in (LOOK, 0.0):
        ticks.append([int(field) for field in _lines("/proc/stat")[0].split()[1:9]])
        time.sleep(pause)
    passed = [later - earlier for earlier, later in zip(ticks[0], ticks[1], strict=True)]
    return 1.0 - (passed[3] + passed[4]) / max(sum(passed), 1)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
