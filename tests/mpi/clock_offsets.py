"""On every rank of a world: synchronises clocks, and compares each offset with the true one.

`clock_offsets.py TIMES native|python [BACKEND]`. Rank 0 prints JSON: `error` and `half`
[times][hosts] in ns, and `crossed`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from collbench.backends import get
from collbench.bindings.spec import Session, WorldSettings, allgather
from collbench.machine.facts import rank_facts
from collbench.run.host_clocks import host_clocks


def true_offset() -> int:
    """Nanoseconds by which CLOCK_MONOTONIC is ahead in this process's time namespace."""
    for line in Path("/proc/self/timens_offsets").read_text().splitlines():
        name, seconds, nanoseconds = line.split()
        if name == "monotonic":
            return int(seconds) * 10**9 + int(nanoseconds)
    raise LookupError("monotonic")


def compare(session: Session) -> None:
    facts = rank_facts()
    clocks = host_clocks(session, allgather(session.world, facts), facts.clock_id)
    assert clocks is not None
    if sys.argv[2] == "python":
        session.clock = lambda: time.monotonic_ns()
    truth = allgather(session.world, true_offset())
    error, half, crossed = [], [], []
    for _ in range(int(sys.argv[1])):
        clocks.synchronise()
        found = clocks.past[-1]
        true = [truth[reader] - truth[0] for reader in clocks.readers]
        error.append((found.offset - true).tolist())
        half.append(found.half.tolist())
        crossed.append(found.crossed)
    if session.world.rank == 0:
        sys.stdout.write(json.dumps({"error": error, "half": half, "crossed": crossed}))


if __name__ == "__main__":
    get((*sys.argv[3:], "mpi")[0]).run(WorldSettings(), compare)
