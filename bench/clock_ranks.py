"""What a rank of `clocks.py` does: synchronises clocks, measures, and compares both with the truth.

    clock_ranks.py TIMES SAMPLES

The truth is in /proc/self/timens_offsets of each rank. Rank 0 prints JSON: of TIMES synchronisations the errors and
half widths of the other rank's clock (ns); of each case what the stamps say on synchronised clocks and by the truth.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench import collectives
from collbench.backends import get
from collbench.bindings.spec import Session, WorldSettings, allgather
from collbench.machine.facts import rank_facts
from collbench.run.cases import cases_of
from collbench.run.failures import Unwatched
from collbench.run.host_clocks import HostClocks, readers_of
from collbench.run.measure import measure
from collbench.run.sampling import choose_method
from collbench.schema.plan import Plan
from collbench.timing.loop import Stamps


class Keeping(HostClocks):
    """Keeps the stamps of this rank as they were beside what is made of them."""

    kept: list[tuple[Stamps, Stamps]]

    def common(self, stamps: Stamps) -> Stamps:
        """On rank 0's clock."""
        moved = super().common(stamps)
        self.kept.append((stamps, moved))
        return moved


def true_offset() -> int:
    """Nanoseconds by which CLOCK_MONOTONIC is ahead in this process's time namespace."""
    lines = (line.split() for line in Path("/proc/self/timens_offsets").read_text().splitlines())
    return next(int(seconds) * 10**9 + int(ns) for name, seconds, ns in lines if name == "monotonic")


def offsets(clocks: Keeping, truth: list[int], times: int) -> dict[str, list[int]]:
    """Errors and half widths of the last rank's clock."""
    error, half = [], []
    for _ in range(times):
        clocks.synchronise()
        error.append(int(clocks.past[-1].offset[-1]) - (truth[-1] - truth[0]))
        half.append(int(clocks.past[-1].half[-1]))
    return {"error": error, "half": half}


def judged(by_rank: list[list[tuple[Stamps, Stamps]]], truth: list[int]) -> dict[str, Any]:
    """Samples on synchronised clocks and by the truth, and how far apart ranks began by the truth, in ns."""
    pairs = [[Stamps.concatenate([pair[which] for pair in kept]) for kept in by_rank] for which in (0, 1)]
    true = [
        replace(one, entered=one.entered - ahead, left=one.left - ahead)
        for one, ahead in zip(pairs[0], truth, strict=True)
    ]
    in_time = np.logical_not(np.any([one.late for one in true], axis=0))

    def samples(stamps: list[Stamps]) -> NDArray[np.int64]:
        last, first = np.stack([one.left for one in stamps]).max(axis=0), np.stack([one.entered for one in stamps])
        kept: NDArray[np.int64] = (last - first.min(axis=0))[in_time]
        return kept

    synced, by_truth = samples(pairs[1]), samples(true)
    apart = np.ptp(np.stack([one.entered for one in true]), axis=0)[in_time]
    return {
        "n": len(in_time), "late": int((~in_time).sum()), "synced": float(np.median(synced)),
        "true": float(np.median(by_truth)), "apart": float(np.median(apart)),
        "off": float(np.abs(synced - by_truth).max()),
    }  # fmt: skip


def work(session: Session) -> None:
    """All of it, on one rank."""
    world, (times, samples) = session.world, map(int, sys.argv[1:])
    ranks = tuple(allgather(world, rank_facts()))
    truth: list[int] = allgather(world, true_offset())
    clocks = Keeping(session, readers_of(rank.clock_id for rank in ranks), ranks[world.rank].clock_id)
    clocks.begin()
    found: dict[str, Any] = {"offsets": offsets(clocks, truth, times), "cases": []}
    plan = Plan(collectives=("bcast", "allreduce"), backends=("mpi",), sizes=("8", "4K", "64K"), drivers=("native",),
                iters=samples, align="roundtime")  # fmt: skip
    method = choose_method(plan, ranks, False, clocks)
    for case in cases_of(plan, "mpi", world.size):
        clocks.kept = []
        record, _ = measure(case, collectives.get(case.collective), session, method, Unwatched())
        by_rank = world.gather(clocks.kept)
        if by_rank is not None and record.clock_error is not None:
            errors = {"seen": record.clock_error.seen * 1e9, "bound": record.clock_error.bound * 1e9}
            found["cases"].append({"what": f"{case.collective} {case.size} B"} | errors | judged(by_rank, truth))
    if world.rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    get("mpi").run(WorldSettings(), work)
