"""From every rank's stamps to samples, by reductions: last rank out minus first rank in, or the largest local time.

No rank holds the stamps of another: time and memory grow with the samples, and hardly with the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import World
from collbench.schema.case import SampleClock
from collbench.timing.loop import Stamps

#: Samples that are reduced at once: a message of half a megabyte for an operation of one stage.
PORTION = 1 << 14


@dataclass(frozen=True)
class Times:
    """The samples of a case on one rank, in ns. A late sample is negative on every rank, and none is 0.

    `samples` [n] are the same on every rank, `own` [n] are this rank's part in them: with a common clock from when the
    first rank entered to when this one left, without the time between its own two stamps. The largest of all ranks is
    the sample. `legs` [stages, n] is how much each stage adds to the time of an operation, the same on every rank.
    """

    samples: NDArray[np.int64]
    own: NDArray[np.int64]
    legs: NDArray[np.int64]

    @property
    def in_time(self) -> NDArray[np.bool_]:
        """[n]: which samples were not late, on all ranks alike."""
        return self.samples > 0


def times_of(stamps: Stamps, world: World, clock: SampleClock, burst: int = 1) -> Times:
    """The times of one operation, from the stamps of `burst`. Collective; all ranks took as many samples."""
    portions = (stamps.part(begin, begin + PORTION) for begin in range(0, max(len(stamps.late), 1), PORTION))
    parts = [_reduced(portion, world, clock) for portion in portions]
    samples, own, legs = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    return Times(per_operation(samples, burst), per_operation(own, burst), legs)


def _reduced(
    stamps: Stamps, world: World, clock: SampleClock
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Samples, own times and legs of some samples, before a burst is shared out.

    With a common clock a stage lasts from the last rank's end of the previous stage to the last rank's end of this one,
    so that the stages add up to the sample. Without, it is the largest local time.
    """
    n = len(stamps.late)
    ends = np.column_stack((stamps.marks, stamps.left))  # [n, stages]
    if clock == "local":
        own = stamps.left - stamps.entered
        stages = ends - np.column_stack((stamps.entered, stamps.marks))
        _, highest = world.extremes(np.concatenate((own, stamps.late, stages.ravel())))
        samples, legs = highest[:n], highest[2 * n :].reshape(ends.shape)
    else:
        lowest, highest = world.extremes(np.concatenate((stamps.entered, stamps.late, ends.ravel())))
        first, last = lowest[:n], highest[2 * n :].reshape(ends.shape)
        legs = last - np.column_stack((first, last[:, :-1]))
        samples, own = last[:, -1] - first, stamps.left - first
    sign = 1 - 2 * highest[n : 2 * n]
    return sign * np.maximum(samples, 1), sign * np.maximum(own, 1), np.ascontiguousarray(legs.T)


def per_operation(times: NDArray[np.int64], burst: int) -> NDArray[np.int64]:
    """Times in ns for one operation, from the times of `burst`; signs are kept, and nothing rounds to 0."""
    shared = np.rint(np.abs(times) / burst).astype(np.int64)
    signed: NDArray[np.int64] = np.sign(times) * np.maximum(shared, 1)
    return signed


def left_early(stamps: Stamps, world: World, tolerance: int = 0) -> int:
    """How often a rank left a barrier more than `tolerance` ns before the last one had entered.

    Over all samples and ranks. Collective.
    """
    _, entered = world.extremes(stamps.entered)
    return int(world.total([int(np.count_nonzero(stamps.left + tolerance < entered))])[0])
