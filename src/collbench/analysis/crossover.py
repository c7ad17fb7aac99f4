"""Crossovers: between which measured sizes two options take equally long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.blocks import together
from collbench.analysis.estimate import centre
from collbench.analysis.options import Option, Question

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Logarithms of sizes closer than this are those of the same size.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Crossover:
    """Below `size` take `below`, above it `above`.

    `size` (bytes asked for) is the crossing by linear interpolation between measured sizes. The ends of the interval
    are measured sizes, because nothing is known about the times between two of them: libraries change their protocol
    there. An end of 0 or infinity lies beyond the sizes that were measured. None with too few launches.
    """

    below: Option
    above: Option
    size: float
    interval: tuple[float, float] | None


def crossover(question: Question, below: Option, above: Option, in_blocks: bool) -> Crossover | None:
    """The crossing between two options; None where most blocks have none at sizes measured with both options.

    Every block has a crossing. The median of these counts, and its interval reaches to the measured sizes around it.
    """
    sizes, logs = crossings(question, below, above, in_blocks)
    if not len(logs):
        return None
    axis, middle = _axis(sizes), centre(logs)
    if not axis[0] <= middle.value <= axis[-1]:
        return None
    return Crossover(below, above, 2.0**middle.value, middle.interval and _around(sizes, *middle.interval))


def crossings(
    question: Question, below: Option, above: Option, in_blocks: bool
) -> tuple[list[int], NDArray[np.float64]]:
    """Sizes measured with both options in bytes, and the crossing of each block as binary logarithm of bytes.

    By linear interpolation between measured sizes, both axes logarithmic. No crossings where fewer than two sizes were
    measured with both options, or no block has all of them.
    """
    sizes = [size for size in question.sizes if _measured(question, size, below) and _measured(question, size, above)]
    if len(sizes) < 2:
        return sizes, np.empty(0)
    rows = together([question.cells[size][option] for option in (below, above) for size in sizes], in_blocks)
    logs = np.log(rows).reshape(len(rows), 2, len(sizes))
    return sizes, np.array([crossing(_axis(sizes), upper - lower) for lower, upper in logs])


def _measured(question: Question, size: int, option: Option) -> bool:
    cell = question.cells[size].get(option)
    return cell is not None and bool(cell.medians) and min(cell.medians) > 0


def _axis(sizes: list[int]) -> NDArray[np.float64]:
    return np.asarray(np.log2(np.maximum(np.array(sizes, dtype=float), 1.0)))


def _around(sizes: list[int], low: float, high: float) -> tuple[float, float]:
    """The last measured size before `low` and the first that is not before `high`, both binary logarithms."""
    logs = _axis(sizes)
    before = [float(size) for size, log in zip(sizes, logs, strict=True) if log < low - _ROUNDING]
    after = [float(size) for size, log in zip(sizes, logs, strict=True) if log >= high - _ROUNDING]
    return (before[-1] if before else 0.0, after[0] if after else math.inf)


def crossing(axis: NDArray[np.float64], difference: NDArray[np.float64]) -> float:
    """Where `difference` [n] over `axis` [n] last goes from positive to negative.

    The last one: from there on the upper option stays the better one. One octave before the axis where it is never
    positive, one after it where it is positive at the end.
    """
    if difference[-1] > 0:
        return float(axis[-1] + 1)
    falls = np.flatnonzero((difference[:-1] > 0) & (difference[1:] <= 0))
    if not len(falls):
        return float(axis[0] - 1)
    i = falls[-1]
    share = difference[i] / (difference[i] - difference[i + 1])
    return float(axis[i] + share * (axis[i + 1] - axis[i]))
