"""Where the best option changes, in a sentence."""

from __future__ import annotations

import math

from collbench.analysis.crossover import Crossover
from collbench.analysis.options import Question
from collbench.units import format_size


def crossing_at(question: Question, crossing: Crossover) -> str:
    sides = f"below {question.name(crossing.below)}, above {question.name(crossing.above)}"
    where = f"Crossover at about {_rounded(crossing.size)} (interpolated"
    if crossing.interval is None:
        return f"{where}; too few launches for an interval): {sides}."
    return f"{where}; {_between(*crossing.interval)}): {sides}."


def _between(low: float, high: float) -> str:
    """In words, from measured sizes; an end of 0 or infinity lies beyond them."""
    if low == 0.0 and high == math.inf:
        return "possibly beyond the sizes measured, either way"
    if low == 0.0:
        return f"below {format_size(int(high))}"
    if high == math.inf:
        return f"above {format_size(int(low))}"
    return f"between {format_size(int(low))} and {format_size(int(high))}"


def _rounded(size: float) -> str:
    """Two significant digits, in binary units: a crossing is not an exact number of bytes."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.2g}{name}" if size < 99.5 * unit else f"{size / unit:.0f}{name}"
    return f"{size:.0f}"
