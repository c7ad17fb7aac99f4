"""The step of a clock: the spacing of the values that it can show.

CLOCK_MONOTONIC is given in nanoseconds, but the counter behind it may step by 10 ns or 42 ns. A time of some
hundred nanoseconds is then a small multiple of the step, whatever a statistic makes of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: Pairs of reads that lie farther apart than this (ns) are left out: the phase of a wrong step adds up over them.
_FARTHEST = 400
#: Steps that are searched for between reads (ns). With a longer one, neighbouring reads are equal.
_LONGEST, _SHORTEST = 200.0, 2.0
#: Coherence above which reads lie on multiples of a step. Rounding to whole ns leaves 0.97 for 10 ns, 0.81 for 4 ns.
_COHERENT = 0.75
_READS, _WINDOW = 200, 12


def clock_step(clock: Callable[[], int] = time.monotonic_ns) -> float:
    """Nanoseconds from one value that `clock` can show to the next, at least 1."""
    reads = np.array([clock() for _ in range(_READS)], dtype=np.int64)
    steps = np.diff(reads)
    if np.any(steps == 0) and np.any(steps > 0):
        return float(np.min(steps[steps > 0]))  # several reads within one step
    spans = np.concatenate([reads[lag:] - reads[:-lag] for lag in range(1, _WINDOW)])
    return max(lattice(spans[(spans > 0) & (spans < _FARTHEST)]), 1.0)


def lattice(values: NDArray[np.int64]) -> float:
    """The longest step of which all `values` [n] in ns are multiples, up to rounding; 0.0 where there is none.

    The measure is |mean exp(2 pi i v / step)|, which is 1 on a lattice and near 0 elsewhere (Rayleigh). A step
    counts only if three consecutive multiples occur: two clusters of values are not a lattice.
    """
    if len(values) < 3:
        return 0.0
    frequencies = np.arange(1 / _LONGEST, 1 / _SHORTEST, 0.2 / _FARTHEST)
    distinct, counts = np.unique(values, return_counts=True)
    phases = np.exp(2j * np.pi * np.outer(frequencies, distinct))
    coherence = np.abs(phases @ counts) / counts.sum()
    for frequency in frequencies[coherence >= _COHERENT]:
        multiples = np.unique(np.rint(distinct * frequency))
        if np.any(multiples[2:] - multiples[:-2] == 2):
            near = (frequencies >= frequency) & (frequencies < 1.3 * frequency)
            return float(1 / frequencies[near][np.argmax(coherence[near])])
    return 0.0
