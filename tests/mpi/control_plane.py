"""A rank that tries its world: `control_plane.py BACKEND`. Rank 0 prints what every rank found, if it is the same."""

from __future__ import annotations

import json
import sys

import numpy as np

from collbench import backends
from collbench.bindings.spec import Session, WorldSettings, allgather


def tried(session: Session) -> None:
    """Numbers that no float holds, as many as a message of one piece does not."""
    world = session.world
    rank, large = world.rank, 2**62 + 1
    lowest, highest = world.minmax([rank, -rank, large - rank])
    many = np.arange(50_000) + rank
    least, most = world.minmax(many)
    found = {
        "extremes": [lowest.tolist(), highest.tolist()],
        "total": world.total([rank, large // 4, -1]).tolist(),
        "many": [int(least[-1]), int(most[-1]), int(world.total(many)[0])],
        "empty": [each.tolist() for each in world.minmax([])],
        "told": [world.bcast_from(f"of {rank}", source) for source in range(world.size)],
    }
    by_rank = allgather(world, found)
    assert by_rank == [found] * world.size, by_rank
    if rank == 0:
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    backends.usable(sys.argv[1]).run(WorldSettings(), tried)
