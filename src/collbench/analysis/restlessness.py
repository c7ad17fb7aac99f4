"""How far yardsticks moved, and how many launches a side the spread of launches costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from collbench.analysis.detectable import POWER, PairedLaunches
from collbench.analysis.estimate import CONFIDENCE, FEWEST


@dataclass(frozen=True)
class Movement:
    """The least and the largest value of a yardstick, in its unit, of so many readings."""

    name: str
    least: float
    largest: float
    readings: int

    @property
    def share(self) -> float:
        """By what share the largest exceeds the least."""
        return self.largest / self.least - 1


def movements(readings: Iterable[Mapping[str, float | None]]) -> tuple[Movement, ...]:
    """Of each yardstick that has a value in some reading, in the order of the first one."""
    values: dict[str, list[float]] = {}
    for reading in readings:
        for name, value in reading.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return tuple(Movement(name, min(found), max(found), len(found)) for name, found in values.items())


@dataclass(frozen=True)
class Cost:
    """What the spread of launches costs: its size, and the launches a side that show a `difference`.

    `spread` is the standard deviation of a block's log ratio, `launches` those of the cell that spreads most.
    """

    spread: float
    difference: float
    launches: int


def cost(cells: Sequence[PairedLaunches], difference: float) -> Cost | None:
    """The launches a side by which a difference (a share, above 0) of one cell alone is seen in 80 % of experiments.

    n = ((z_0.975 + z_0.8) s / log(1 + difference))^2 blocks with a spread s of their log ratios: the sample size of a
    paired test of normal values (Cohen, Statistical Power Analysis, 2nd ed., section 2.3), and at least `FEWEST`. Cells
    that are tested together, and launches that are not normal, need more. None for a difference of 0, and where no cell
    has two blocks.
    """
    several = [cell for cell in cells if len(cell.base) > 1]
    if not several or difference <= 0:
        return None
    spread = max(float(np.std(np.log(cell.other) - np.log(cell.base), ddof=1)) for cell in several)
    normal = NormalDist()
    scores = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)
    return Cost(spread, difference, max(FEWEST, math.ceil((scores * spread / math.log1p(difference)) ** 2)))
