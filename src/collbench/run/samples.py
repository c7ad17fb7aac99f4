"""From every rank's stamps to samples: last rank out minus first rank in, or the largest local time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collbench.schema.case import SampleClock
from collbench.timing.loop import Stamps


def out_times(stamps: list[Stamps], clock: SampleClock) -> NDArray[np.int64]:
    """[ranks, n] in ns, of which the largest over the ranks is the sample; a late sample is negative on every rank.

    With stamps of one clock a rank's value is when it left, counted from when the first rank entered. Without, it is
    the time between its own two stamps.
    """
    entered = np.stack([s.entered for s in stamps])
    left = np.stack([s.left for s in stamps])
    late = np.stack([s.late for s in stamps]).any(axis=0)
    begin = entered if clock == "local" else entered.min(axis=0)
    times: NDArray[np.int64] = np.maximum(left - begin, 1)
    return np.where(late, -times, times)


def per_operation(matrix: NDArray[np.int64], burst: int) -> NDArray[np.int64]:
    """[ranks, n] in ns for one operation, from the times of `burst`; signs are kept, and nothing rounds to 0."""
    times = np.rint(np.abs(matrix) / burst).astype(np.int64)
    signed: NDArray[np.int64] = np.sign(matrix) * np.maximum(times, 1)
    return signed


def leg_times(stamps: list[Stamps], clock: SampleClock) -> NDArray[np.int64]:
    """[stages, n] in ns: how much each stage adds to the time of an operation.

    With a common clock a stage lasts from the last rank's end of the previous stage to the last rank's end of this one,
    so that the stages add up to the sample. Without, it is the largest local time.
    """
    ends = np.stack([np.column_stack((s.marks, s.left)) for s in stamps])  # [ranks, n, stages]
    begins = np.stack([np.column_stack((s.entered, s.marks)) for s in stamps])
    if clock == "local":
        return np.asarray((ends - begins).max(axis=0).T, np.int64)
    last = ends.max(axis=0)
    first = np.column_stack((begins[:, :, 0].min(axis=0), last[:, :-1]))
    return np.asarray((last - first).T, np.int64)


def valid_samples(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """[valid]: the largest value over the ranks, of every sample that was not late."""
    largest: NDArray[np.int64] = matrix.max(axis=0)
    return largest[largest > 0]


def left_early(stamps: list[Stamps], tolerance: int = 0) -> int:
    """How often a rank left a barrier more than `tolerance` ns before the last one had entered, over all samples."""
    entered = np.stack([s.entered for s in stamps])
    left = np.stack([s.left for s in stamps])
    return int(np.count_nonzero(left + tolerance < entered.max(axis=0)))
