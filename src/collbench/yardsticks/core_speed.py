"""Yardstick `core_speed`: steps of a fixed integer loop in a microsecond, on the slowest core of all at once.

It changes with the clock rate, and where a hypervisor or another process takes time from a core.
"""

from __future__ import annotations

from collbench.yardsticks import LIMIT, RunYardstick, Yardstick

#: Steps of a piece, and pieces: some 10 ms.
STEPS, PIECES = 1_000_000, 8


def read(run: RunYardstick, cores: tuple[int, ...]) -> float:
    slowest = max(ended - began for began, ended in run("compute", cores, STEPS, PIECES, LIMIT))
    return STEPS * PIECES * 1e3 / slowest


YARDSTICK = Yardstick("core_speed", "1/us", 0.1, read)
