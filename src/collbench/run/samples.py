"""From every rank's stamps to samples: last rank out minus first rank in, or the largest local time."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from collbench.timing.loop import Stamps


def out_times(stamps: list[Stamps], clock: Literal["common", "local"]) -> NDArray[np.int64]:
    """[ranks, n] in ns, of which the largest over the ranks is the sample; a late sample is negative on every rank.

    With a common clock a rank's value is when it left, counted from when the first rank entered. Without, it is the
    time between its own two stamps.
    """
    entered = np.stack([s.entered for s in stamps])
    left = np.stack([s.left for s in stamps])
    late = np.stack([s.late for s in stamps]).any(axis=0)
    begin = entered.min(axis=0) if clock == "common" else entered
    found: NDArray[np.int64] = np.maximum(left - begin, 1)
    return np.where(late, -found, found)


def valid_samples(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """[valid]: the largest value over the ranks of every sample that was not late."""
    largest: NDArray[np.int64] = matrix.max(axis=0)
    return largest[largest > 0]


def left_early(stamps: list[Stamps]) -> int:
    """How often a rank left a barrier before the last one had entered, over all samples."""
    entered = np.stack([s.entered for s in stamps])
    left = np.stack([s.left for s in stamps])
    return int(np.count_nonzero(left < entered.max(axis=0)))
