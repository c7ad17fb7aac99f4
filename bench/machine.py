"""The machine while it measures itself: what it is, and whether others leave it alone."""

from __future__ import annotations

import os
import platform
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean

BUSY_SHARE = 0.10
LOOK = 0.25  # s


def describe() -> str:
    """One line: processor, cores, kernel, Python."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{processor}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}"


def clock_step() -> float:
    """The usual smallest step of CLOCK_MONOTONIC in seconds; its nanoseconds may be rounded from a coarser counter."""
    apart = sorted({-time.monotonic_ns() + time.monotonic_ns() for _ in range(20_000)})[:20]
    gaps = [later - earlier for earlier, later in pairwise(apart) if later - earlier > 1]
    return mean(gaps or [1]) * 1e-9


def wait_for_quiet(limit: float) -> float:
    """Wait until nobody else computes, for at most `limit` seconds; returns the share of the cores still busy."""
    until = time.monotonic() + limit
    while True:
        busy, total = _busy_and_total()
        time.sleep(LOOK)
        busy_later, total_later = _busy_and_total()
        share = (busy_later - busy) / max(total_later - total, 1)
        if share < BUSY_SHARE or time.monotonic() > until:
            return share


def _busy_and_total() -> tuple[int, int]:
    """Ticks of all cores since boot: the first line of /proc/stat (user nice system idle iowait ...)."""
    ticks = [int(field) for field in _lines("/proc/stat")[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
