"""What a gate's comparisons say against its margins: the bounds of every cell, and how many launches an answer lacks.

A gate passes where every cell's own upper bound lies within its margin, and fails where a lower bound exceeds it, of
all cells at once. Of launches until decided bounds are those of bets, which hold after every block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from collbench.analysis.bounds import Bounds, Launches, bounds, log_ratios
from collbench.analysis.compare import Comparison, needs
from collbench.analysis.estimate import FEWEST, Estimate, in_logarithms
from collbench.analysis.pairs import alike, undisturbed
from collbench.analysis.planning import MOST, hidden_by_clock
from collbench.analysis.sequential import bounds_at_any_time
from collbench.schema.gate_plan import Margins, margin_of


def no_slower(comparison: Comparison, margin: float) -> bool:
    """Whether there is no loss beyond the margin: the upper bound is within."""
    ratio = comparison.ratio
    return ratio is not None and ratio.interval is not None and ratio.interval[1] <= 1 + margin


def slower(comparison: Comparison, margin: float) -> bool:
    """Whether there is a loss beyond the margin: the lower bound exceeds it."""
    ratio = comparison.ratio
    return ratio is not None and ratio.interval is not None and ratio.interval[0] > 1 + margin


def bounded(comparisons: Sequence[Comparison], margins: Margins) -> list[Comparison]:
    """With bounds for intervals, and what is missing for an answer."""
    logs = {index: found for index, one in enumerate(comparisons) if len(found := _logs(one)) >= FEWEST}
    until_decided = any(one.pair.base.until_decided for one in comparisons)
    of_cells = (bounds_at_any_time if until_decided else bounds)([*logs.values()]) if logs else ()
    known = dict(zip(logs, of_cells, strict=True))
    return [
        _by_bounds(one, known[index], len(known), margin_of(margins, one.pair.base.case)) if index in known else one
        for index, one in enumerate(comparisons)
    ]


def _logs(comparison: Comparison) -> dict[int, float]:
    """By block that is used; empty where the sides cannot be compared."""
    both = alike(undisturbed(comparison.pair, True)[0], True)
    return {} if comparison.ratio is None else log_ratios(Launches(*both[:4]))


def _by_bounds(comparison: Comparison, known: Bounds, cells: int, margin: float) -> Comparison:
    was = comparison.ratio
    assert was is not None
    ratio = in_logarithms(Estimate(known.value, (known.lower, known.upper), was.n), was.resolution)
    found = replace(comparison, ratio=ratio, sizes=cells, launches_more=None)
    if slower(found, margin) or no_slower(found, margin) or comparison.pair.base.until_decided:
        return found
    more = None if hidden_by_clock(ratio, margin) else _launches_more(known, ratio.n, margin)
    why = f"needs more than {MOST} more launches" if more is None else needs(more)
    return replace(found, launches_more=more, why=why)


#: How many times as far from the margin as the bound is from the location the latter must lie, so that the bound is on
#: the same side with a probability of 80 %: (1.645 + 0.842) / 1.645.
_AMPLE = 1.512


def _launches_more(known: Bounds, n: int, margin: float) -> int | None:
    """How many more blocks bring the bound nearer to the location than the margin is; None of too many."""
    apart = math.log1p(margin) - known.value
    bound = known.upper - known.value if apart > 0 else known.value - known.lower
    needed = n * (_AMPLE * bound / apart) ** 2 if apart else math.inf
    return max(math.ceil(needed - n), 1) if needed - n <= MOST else None
