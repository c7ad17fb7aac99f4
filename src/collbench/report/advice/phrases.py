"""Phrases that several sentences of advice have."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.compare import Comparison
from collbench.units import counted


def p_adjusted(comparisons: Sequence[Comparison]) -> str:
    """`not established among 45 comparisons (p adjusted 0.07 to 0.14)`."""
    cells = sorted(one.cells for one in comparisons)
    values = sorted(one.p_adjusted for one in comparisons if one.p_adjusted is not None)
    number = f"{cells[0]} to " if cells[0] < cells[-1] else ""
    span = " to ".join(dict.fromkeys(f"{value:.2g}" for value in (values[0], values[-1])))
    return f"not established among {number}{counted(cells[-1], 'comparison')} (p adjusted {span})"


def some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
