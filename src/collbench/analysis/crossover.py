"""Where the choice flips: the size at which two options take equally long, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.estimate import FEWEST
from collbench.analysis.options import Option, Question
from collbench.analysis.resample import middle, resampled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Crossover:
    """Below `bytes` take `below`, above it `above`. The interval is None where launches do not agree on a crossing."""

    below: Option
    above: Option
    bytes: float
    interval: tuple[float, float] | None


def crossover(question: Question, below: Option, above: Option, in_blocks: bool) -> Crossover | None:
    """The crossing between two options, on straight lines between measured sizes, both axes logarithmic.

    Its interval comes from drawing launches anew (`resample`). None where they do not cross at sizes that both have.
    """
    sizes = [size for size in question.sizes if _measured(question, size, below) and _measured(question, size, above)]
    if len(sizes) < 2:
        return None
    cells = [question.cells[size][option] for option in (below, above) for size in sizes]
    if any(min(cell.medians) <= 0 for cell in cells):
        return None
    logs = np.log(np.array([float(np.median(cell.medians)) for cell in cells])).reshape(2, -1)
    axis = np.log2(np.maximum(np.array(sizes, dtype=float), 1.0))
    found = crossing(axis, logs[1] - logs[0])
    if not np.isfinite(found):
        return None
    drawn = np.log(resampled(cells, in_blocks)).reshape(-1, 2, len(sizes))
    crossings = np.array([crossing(axis, draw[1] - draw[0]) for draw in drawn])
    enough = min(len(cell.medians) for cell in cells) >= FEWEST
    between = middle(crossings) if enough else None
    interval = None if between is None else (2.0 ** between[0], 2.0 ** between[1])
    return Crossover(below, above, float(2.0**found), interval)


def _measured(question: Question, size: int, option: Option) -> bool:
    return option in question.cells[size] and bool(question.cells[size][option].medians)


def crossing(axis: NDArray[np.float64], difference: NDArray[np.float64]) -> float:
    """Where `difference` [n] over `axis` [n] last goes from positive to negative; NaN where it never does.

    The last one: from there on the upper option stays the better one.
    """
    falls = np.flatnonzero((difference[:-1] > 0) & (difference[1:] <= 0))
    if not len(falls) or difference[-1] > 0:
        return float("nan")
    i = falls[-1]
    share = difference[i] / (difference[i] - difference[i + 1])
    return float(axis[i] + share * (axis[i + 1] - axis[i]))
