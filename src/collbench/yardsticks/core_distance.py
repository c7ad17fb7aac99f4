"""Yardstick `core_distance`: the way of a cache line from a core to another and back, in ns.

The mean over pairs of cores of the shortest batch of each. The hypervisor of a virtual machine moves its cores.
"""

from __future__ import annotations

import random
from itertools import combinations

from collbench.yardsticks import LIMIT, RunYardstick, Yardstick

#: Trips in a batch, and batches of a pair.
TRIPS, BATCHES = 500, 40

#: Every pair is measured up to so many, else a sample, which is the same at each reading of the same cores.
PAIRS = 6


def pairs_of(cores: tuple[int, ...]) -> list[tuple[int, int]]:
    pairs = list(combinations(cores, 2))
    return pairs if len(pairs) <= PAIRS else random.Random(1).sample(pairs, PAIRS)  # noqa: S311 - no secret


def read(run: RunYardstick, cores: tuple[int, ...]) -> float:
    pairs = pairs_of(cores)
    batches = [run("exchange", pair, TRIPS, BATCHES, LIMIT / len(pairs))[0] for pair in pairs]
    return sum(ended - began for began, ended in batches) / TRIPS / len(pairs)


YARDSTICK = Yardstick("core_distance", "ns", 0.2, read, fewest=2)
