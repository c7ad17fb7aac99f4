"""CPU seconds of programs beside the time that passed: whether a side computes for longer, or waits."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from collbench.analysis.observations import Cell

#: CPU seconds that differ by less are called the same, and times that differ by more are not explained by them.
SAME, APART = 0.03, 0.05


class ProcessorTime(NamedTuple):
    """Of a side, medians over its launches: CPU seconds for each sample, and the time (s) that passed for it."""

    seconds: float
    wall: float

    @property
    def share(self) -> float:
        """CPU seconds in a second: how many processors were busy for it."""
        return self.seconds / self.wall if self.wall > 0 else 0.0


def processor_time(cell: Cell) -> ProcessorTime | None:
    """None where the cell is of ranks, or was recorded without."""
    if not cell.cpu:
        return None
    seconds, walls = zip(*cell.cpu.values(), strict=True)
    return ProcessorTime(median(seconds), median(walls))


def only_waited(base: ProcessorTime, other: ProcessorTime) -> bool:
    """Whether one side needed more time for the same CPU seconds."""
    return not _apart(base.seconds, other.seconds, SAME) and _apart(base.wall, other.wall, APART)


def _apart(base: float, other: float, share: float) -> bool:
    return max(base, other) > min(base, other) * (1 + share)
