"""From the stamps of all ranks to the numbers of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import World
from collbench.collectives.case import CollectiveCase
from collbench.run.driver import TimedCall
from collbench.run.facts_of_ranks import ranks_of
from collbench.run.host_clocks import doubts
from collbench.run.samples import Times
from collbench.run.sampling import Method, Sampling
from collbench.schema.record import Record, Samples, Seconds, summarise
from collbench.schema.samples import ALL_RANKS_LIMIT

#: A record, and on rank 0 its samples in ns: [ranks, n], above 64 ranks [1, n].
Measured = tuple[Record, NDArray[np.int64] | None]

#: Most operations that are timed on the device, and how long that may take (s).
DEVICE_SAMPLES, DEVICE_BUDGET = 50, 0.5
FEWEST_DEVICE_SAMPLES = 3


def calls_of(case: CollectiveCase, method: Method) -> int:
    """Calls in a sample: one, or a burst in streaming cadence; a graph contains a burst itself."""
    if method.cadence == "isolated":
        return 1
    return method.launches if case.graph else method.burst


def device_seconds(timed_call: TimedCall, sampling: Sampling) -> Seconds | None:
    """The operation's time on the slowest device, by the devices' own clocks; None without devices. Collective."""
    world = timed_call.session.world
    stamps = sampling.stamps
    median = round(float(np.median(stamps.left - stamps.entered)))
    _, (device, slowest) = world.extremes([timed_call.operation.call.stopwatch is not None, median])
    if not device:
        return None
    n = operations_on_device(int(slowest) * 1e-9)
    own = timed_call.device_times(n)
    _, times = world.extremes(np.zeros(n, np.int64) if own is None else np.rint(own * 1e9).astype(np.int64))
    return summarise(np.maximum(times, 1))


def operations_on_device(seconds: float) -> int:
    """Operations to time on the device, from the median time of the slowest rank."""
    return max(FEWEST_DEVICE_SAMPLES, min(DEVICE_SAMPLES, int(DEVICE_BUDGET / max(seconds, 1e-9))))


@dataclass(frozen=True)
class Gathered:
    """What rank 0 has of the samples of a case.

    `matrix` in ns is [ranks, n], above 64 ranks the samples alone, [1, n]; late samples are negative. `legs` are
    [stages, n] in ns. `p50` is each rank's median over the samples in time, in ns; empty where all were late.
    """

    matrix: NDArray[np.int64]
    legs: NDArray[np.int64]
    p50: list[float]


def gathered(times: Times, world: World) -> Gathered | None:
    """On rank 0, from the times of every rank; None elsewhere. Collective."""
    rows = world.gather(times.own) if world.size <= ALL_RANKS_LIMIT else None
    p50: list[float] | None = []
    if times.in_time.any():
        p50 = world.gather(float(np.quantile(times.own[times.in_time], 0.5)))
    if world.rank != 0 or p50 is None:
        return None
    return Gathered(times.samples[np.newaxis] if rows is None else np.stack(rows), times.legs, p50)


def fill_results(
    blank: Record, found: Gathered, stages: Sequence[str], method: Method
) -> tuple[Record, NDArray[np.int64]]:
    """The record with all that is computed from the samples, and the samples as they are stored."""
    largest = found.matrix.max(axis=0)
    in_time = largest > 0
    n, valid = len(largest), largest[in_time]
    samples = Samples(n=n, invalid=n - len(valid), warmup=method.warmup)
    if len(valid) == 0:
        reason = f"all {n} samples were late at the gate: too few cores, or a busy machine. Use gate barrier"
        return msgspec.structs.replace(blank, status="failed", reason=reason, samples=samples), found.matrix
    legs = {}
    if len(stages) > 1:
        times = found.legs[:, in_time]
        legs = {name: summarise(np.maximum(leg, 1)) for name, leg in zip(stages, times, strict=True)}
    ranks = ranks_of([median * 1e-9 for median in found.p50], method.ranks)
    seconds = summarise(valid)
    notes = (*blank.notes, *doubts(blank.clock_error, seconds.p50 * blank.burst))
    filled = msgspec.structs.replace(blank, samples=samples, seconds=seconds, ranks=ranks, legs=legs, notes=notes)
    return filled, found.matrix
