"""The resolution of a run's times: the step of the clock that they were taken with.

A launch whose every sample is a multiple of 10 ns has a median that is one too. Ten such medians can be equal although
the operation does not always take equally long, so no interval may be narrower than the step.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from collbench.schema.manifest import Manifest

#: Steps searched for in medians (s): rounding to whole nanoseconds lies below, no clock in use lies above.
_FINEST, _COARSEST = 1.5e-9, 100e-9

#: Times above this (s) are many steps long.
_SHORT = 5e-6


class Timed(Protocol):
    """A cell, as far as its times go: launch medians, the shortest and the longest sample, the clock's step (s)."""

    medians: array[float]
    least: float
    most: float
    clock_step: float


def set_clock_step(cells: Iterable[Timed], manifests: Sequence[Manifest]) -> None:
    """Set the clock step of every cell: the coarsest of the run's hosts, or for older runs the one seen in medians."""
    cells = list(cells)
    steps = [host.clock_step for manifest in manifests for host in manifest.hosts]
    known = max((step for step in steps if step is not None), default=None)
    step = _shown(cells) if known is None else known
    for cell in cells:
        cell.clock_step = step


def _shown(cells: Iterable[Timed]) -> float:
    """The least distance between two times of a cell, among cells half of whose launches agree to the nanosecond (s).

    Where all launches of every such cell agree, at most the place of the last digit that any of them shows. 0.0 where
    no cell has such launches: then the resolution is finer than the differences between launches.
    """
    step, places = 0.0, []
    for cell in cells:
        if len(cell.medians) < 2 or min(cell.medians) > _SHORT:
            continue
        distinct = sorted(set(cell.medians))
        if len(distinct) > len(cell.medians) / 2:
            continue
        ends = distinct if len(distinct) > 1 else sorted({*distinct, cell.least, cell.most})
        gaps = [above - below for below, above in pairwise(ends)]
        wide = [gap for gap in gaps if _FINEST < gap <= _COARSEST]
        step = max(step, min(wide, default=0.0))
        if len(ends) == 1:
            places.append(_last_place(ends[0]))
    return step or min(places, default=0.0)


def _last_place(time: float) -> float:
    """The power of ten of the last digit that is not 0 in a time in nanoseconds, in s; 0.0 below what is a step."""
    nanoseconds = round(time * 1e9)
    digits = str(nanoseconds)
    place = 10.0 ** (len(digits) - len(digits.rstrip("0"))) * 1e-9
    return place if place > _FINEST and math.isclose(time * 1e9, nanoseconds, rel_tol=1e-6) else 0.0
