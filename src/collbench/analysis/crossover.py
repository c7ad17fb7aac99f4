"""Where the choice flips: the size at which two options take equally long, with an interval."""

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


@dataclass(frozen=True)
class Crossover:
    """Below `bytes` take `below`, above it `above`.

    The interval is None with too few launches; an end of 0 or infinity lies beyond the sizes that were measured.
    """

    below: Option
    above: Option
    bytes: float
    interval: tuple[float, float] | None


def crossover(question: Question, below: Option, above: Option, in_blocks: bool) -> Crossover | None:
    """The crossing between two options, on straight lines between measured sizes, both axes logarithmic.

    Every block has a crossing; theirs are the median and its interval. None where most blocks have none at sizes that
    were measured with both options.
    """
    sizes = [size for size in question.sizes if _measured(question, size, below) and _measured(question, size, above)]
    if len(sizes) < 2:
        return None
    rows = together([question.cells[size][option] for option in (below, above) for size in sizes], in_blocks)
    if not len(rows):
        return None
    axis = np.log2(np.maximum(np.array(sizes, dtype=float), 1.0))
    logs = np.log(rows).reshape(len(rows), 2, len(sizes))
    found = centre([crossing(axis, upper - lower) for lower, upper in logs])
    if not axis[0] <= found.value <= axis[-1]:
        return None
    between = None if found.interval is None else _bytes(axis, *found.interval)
    return Crossover(below, above, 2.0**found.value, between)


def _measured(question: Question, size: int, option: Option) -> bool:
    cell = question.cells[size].get(option)
    return cell is not None and bool(cell.medians) and min(cell.medians) > 0


def _bytes(axis: NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    return (0.0 if low < axis[0] else 2.0**low, math.inf if high > axis[-1] else 2.0**high)


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
