"""From the stamps of all ranks to the numbers of a record."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.collectives.case import CollectiveCase
from collbench.run.driver import TimedCall
from collbench.run.samples import leg_times, out_times, per_operation, valid_samples
from collbench.run.sampling import Method, Sampling
from collbench.schema.record import Ranks, Record, Samples
from collbench.schema.summary import Seconds, summarise
from collbench.timing.loop import Stamps

#: Operations that are timed on the device, and how long that may take (s).
DEVICE_SAMPLES, DEVICE_BUDGET = 50, 0.5
FEWEST_DEVICE_SAMPLES = 3


def calls_of(case: CollectiveCase, method: Method) -> int:
    """How often a sample issues the call: once, in streaming cadence a burst; a graph holds a burst itself."""
    if method.cadence == "isolated":
        return 1
    return method.launches if case.graph else method.burst


def device_seconds(form: TimedCall, timed: Sampling) -> Seconds | None:
    """How long the operation takes by the devices' own clocks, the slowest rank's; None without devices. Collective."""
    world = form.session.world
    mine = form.operation.call.stopwatch is not None
    taken = timed.stamps
    each = float(np.median(taken.left - taken.entered)) * 1e-9
    heard = world.gather((mine, each))
    n: int = world.bcast(None if heard is None else _how_many(heard))
    if n == 0:
        return None
    gathered = world.gather(form.device_times(n))
    if gathered is None:
        return None
    slowest = np.stack([times for times in gathered if times is not None]).max(axis=0)
    return summarise(np.maximum(np.rint(slowest * 1e9), 1).astype(np.int64))


def _how_many(heard: list[tuple[bool, float]]) -> int:
    if not any(has for has, _ in heard):
        return 0
    slowest = max(each for _, each in heard)
    return max(FEWEST_DEVICE_SAMPLES, min(DEVICE_SAMPLES, int(DEVICE_BUDGET / max(slowest, 1e-9))))


def fill_results(
    blank: Record, stamps: list[Stamps], stages: tuple[str, ...], method: Method
) -> tuple[Record, NDArray[np.int64]]:
    """The record with everything that follows from the samples, and the samples [ranks, n] in ns."""
    matrix = per_operation(out_times(stamps, method.clock), blank.burst)
    valid = valid_samples(matrix)
    n = matrix.shape[1]
    samples = Samples(n=n, invalid=n - len(valid), warmup=method.warmup)
    if len(valid) == 0:
        reason = f"all {n} samples were late at the gate: too few cores, or a busy machine. Use --gate barrier"
        return msgspec.structs.replace(blank, status="failed", reason=reason, samples=samples), matrix
    good = matrix.max(axis=0) > 0
    gpus = tuple(rank.gpu for rank in method.ranks)
    ranks = Ranks(
        p50=tuple(float(median) * 1e-9 for median in np.quantile(matrix[:, good], 0.5, axis=1)),
        binding=tuple(rank.binding for rank in method.ranks),
        container=tuple(rank.container for rank in method.ranks),
        gpu=gpus if any(gpus) else (),
    )
    legs = _legs(stamps, stages, method, good) if len(stages) > 1 else {}
    return msgspec.structs.replace(blank, samples=samples, seconds=summarise(valid), ranks=ranks, legs=legs), matrix


def _legs(stamps: list[Stamps], stages: tuple[str, ...], method: Method, good: NDArray[np.bool_]) -> dict[str, Seconds]:
    times = leg_times(stamps, method.clock)[:, good]
    return {name: summarise(np.maximum(leg, 1)) for name, leg in zip(stages, times, strict=True)}
