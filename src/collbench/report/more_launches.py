"""What would decide cells that are undecided: so many more launches, or something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.planning import MOST
from collbench.units import counted

#: Reasons that are named, before the rest is counted.
_MOST_REASONS = 2

_OVER = f"needs more than {MOST} more launches"


#: What measures only what is open.
UNTIL = "collbench launch PLAN --until decided launches again what is open, and nothing else"


def can_tell(comparisons: Iterable[Comparison]) -> bool:
    """Whether more launches would decide any of these."""
    return any(one.launches_more is not None for one in comparisons)


def what_tells(comparisons: Sequence[Comparison]) -> str:
    """How many launches would decide how many of these cells, or why launches would not."""
    few = [one.launches_more for one in comparisons if one.launches_more and _few(one)]
    if few:
        return f"at least {counted(max(few), 'more launch', 'more launches')} needed"
    counts = sorted(one.launches_more for one in comparisons if one.launches_more is not None)
    why = sorted({_reason(one) for one in comparisons if one.launches_more is None})
    said = []
    if counts:
        of = "" if len(counts) == len(comparisons) else f" for {len(counts)} of {len(comparisons)} cells"
        number = counted(counts[-1], "more launch", "more launches")
        said.append(f"about {number} would tell{of}")
    elif _OVER in why:
        said.append(f"not even {MOST} more launches would tell")
    others = list({re.sub(r"[0-9.]+ %", "", text): text for text in why if text != _OVER}.values())
    left = len(others) - _MOST_REASONS
    more = [counted(left, "other reason")] if left > 0 else []
    return "; ".join((*said, *others[:_MOST_REASONS], *more))


def _few(comparison: Comparison) -> bool:
    return comparison.ratio is None or comparison.ratio.interval is None


def _reason(comparison: Comparison) -> str:
    """Why it is undecided, without slow launches, of which the same is not true of all cells."""
    about_slow = "" if comparison.slow is None else f"; {comparison.slow.text}"
    return comparison.why.removesuffix(about_slow)
