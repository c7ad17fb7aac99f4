"""`history --fail-on`: what makes a nightly check fail, so that one that passes means that everything was measured."""

from __future__ import annotations

from collections.abc import Callable

from collbench.analysis.history.history import History, Told
from collbench.units import counted

#: What --fail-on takes: how a cell takes now, over the shortest and the longest of its earlier levels.
FAILING: dict[str, Callable[[float, float, float], bool]] = {
    "slower": lambda over_shortest, over_longest, margin: over_shortest > 1 + margin,
    "faster": lambda over_shortest, over_longest, margin: over_longest < 1 / (1 + margin),
    "different": lambda over_shortest, over_longest, margin: (
        over_shortest > 1 + margin or over_longest < 1 / (1 + margin)
    ),
}


def failures(history: History, fail_on: str, since: int) -> list[str]:
    """Why a check fails, in words; empty where it passes. `since`: the number of the first run that counts.

    Besides the cells whose level differs, what the latest runs did not measure fails every check, and so does a history
    without a run that counts, or without a single cell that could be judged.
    """
    differing = [one for one in history.cells if FAILING[fail_on](*one.now, history.margin)]
    reasons = [f"{counted(len(differing), 'cell')} {fail_on} now than before"] if differing else []
    current = [one for one in history.cells if one.series.last >= since or (one.series.missing or -1) >= since]
    lacking = sum(map(_not_measured, current))
    if lacking:
        reasons.append(f"{counted(lacking, 'cell')} not measured in the latest run")
    if since >= len(history.runs.runs):
        reasons.append("no run since then")
    if not any(one.tested for one in history.cells):
        reasons.append("too few runs to judge any cell")
    return reasons


def _not_measured(one: Told) -> bool:
    series = one.series
    return series.missing is not None or bool(series.lacking)
