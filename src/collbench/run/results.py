"""From the stamps of all ranks to the numbers of a record."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.collectives.case import CollectiveCase
from collbench.run.driver import TimedCall
from collbench.run.host_clocks import doubts
from collbench.run.samples import leg_times, out_times, per_operation, valid_samples
from collbench.run.sampling import Method, Sampling
from collbench.schema.record import Ranks, Record, Samples
from collbench.schema.summary import Seconds, summarise
from collbench.timing.loop import Stamps

#: A record, and on rank 0 its samples [ranks, n] in ns.
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
    median = float(np.median(stamps.left - stamps.entered)) * 1e-9
    by_rank = world.gather((timed_call.operation.call.stopwatch is not None, median))
    n: int = world.bcast(None if by_rank is None else _how_many(by_rank))
    if n == 0:
        return None
    gathered = world.gather(timed_call.device_times(n))
    if gathered is None:
        return None
    slowest = np.stack([times for times in gathered if times is not None]).max(axis=0)
    return summarise(np.maximum(np.rint(slowest * 1e9), 1).astype(np.int64))


def _how_many(by_rank: list[tuple[bool, float]]) -> int:
    """Operations to time, from whether each rank has a device, and its median time."""
    if not any(has_device for has_device, _ in by_rank):
        return 0
    slowest = max(median for _, median in by_rank)
    return max(FEWEST_DEVICE_SAMPLES, min(DEVICE_SAMPLES, int(DEVICE_BUDGET / max(slowest, 1e-9))))


def fill_results(
    blank: Record, stamps: list[Stamps], stages: tuple[str, ...], method: Method
) -> tuple[Record, NDArray[np.int64]]:
    """The record with all that is computed from the samples, and the samples [ranks, n] in ns."""
    matrix = per_operation(out_times(stamps, blank.clock or method.clock), blank.burst)
    valid = valid_samples(matrix)
    n = matrix.shape[1]
    samples = Samples(n=n, invalid=n - len(valid), warmup=method.warmup)
    if len(valid) == 0:
        reason = f"all {n} samples were late at the gate: too few cores, or a busy machine. Use gate barrier"
        return msgspec.structs.replace(blank, status="failed", reason=reason, samples=samples), matrix
    in_time = matrix.max(axis=0) > 0
    gpus = tuple(rank.gpu for rank in method.ranks)
    ranks = Ranks(
        p50=tuple(float(median) * 1e-9 for median in np.quantile(matrix[:, in_time], 0.5, axis=1)),
        binding=tuple(rank.binding for rank in method.ranks),
        container=tuple(rank.container for rank in method.ranks),
        gpu=gpus if any(gpus) else (),
    )
    legs = {}
    if len(stages) > 1:
        times = leg_times(stamps, blank.clock or method.clock)[:, in_time]
        legs = {name: summarise(np.maximum(leg, 1)) for name, leg in zip(stages, times, strict=True)}
    seconds = summarise(valid)
    notes = (*blank.notes, *doubts(blank.clock_error, seconds.p50 * blank.burst))
    filled = msgspec.structs.replace(blank, samples=samples, seconds=seconds, ranks=ranks, legs=legs, notes=notes)
    return filled, matrix
