"""Yardstick `copy`: bytes read and written in a second by all cores together, each of which copies a block, in GB/s."""

from __future__ import annotations

from collbench.yardsticks import LIMIT, RunYardstick, Yardstick

#: Bytes of a core's block, of all blocks together at most, and how often it is copied.
BLOCK, MOST, ROUNDS = 4 << 20, 128 << 20, 8


def read(run: RunYardstick, cores: tuple[int, ...]) -> float:
    block = min(BLOCK, MOST // len(cores))
    done = run("copy", cores, block, ROUNDS, LIMIT)
    took = max(ended for _, ended in done) - min(began for began, _ in done)
    return 2 * block * ROUNDS * len(cores) / took


YARDSTICK = Yardstick("copy", "GB/s", 0.2, read)
