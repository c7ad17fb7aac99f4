"""The fastest option at a size: the one that no other beats by the ratio that is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median

from collbench.analysis.alike import alike
from collbench.analysis.contended import undisturbed
from collbench.analysis.estimate import ratio_in_blocks, ratio_of_sides
from collbench.analysis.observations import Cell
from collbench.analysis.options import Option, Question
from collbench.analysis.pair import Pair


def fastest(question: Question, size: int, in_blocks: bool) -> Option | None:
    """The option over which no other has a ratio below 1; None where none was measured with right results.

    Medians of ratios can form a cycle (A below B, B below C, C below A): then the option over which the least ratio is
    the largest. Options are tried in the order of their typical times, and that decides between equal ones.
    """
    typical = _typical(question.cells[size], in_blocks)
    ordered = sorted(typical, key=lambda option: (typical[option], option))
    least: dict[Option, float] = {}
    for option in ordered:
        ratios = (_ratio(question, size, option, other, in_blocks) for other in ordered if other != option)
        least[option] = min((ratio for ratio in ratios if ratio is not None), default=1.0)
        if least[option] >= 1.0:
            return option
    return max(least, key=lambda option: least[option]) if least else None


def pair_of(question: Question, size: int, best: Option, option: Option) -> Pair:
    """An option against the best one; they may differ in the driver and in the place."""
    base, other = question.cells[size][best], question.cells[size][option]
    return Pair(base, other, question.name(best), question.name(option), frozenset({"driver", "place"}))


def _ratio(question: Question, size: int, best: Option, option: Option, in_blocks: bool) -> float | None:
    """The time of an option over that of the best, as `compare` has it; None where they cannot be compared."""
    used, _ = undisturbed(pair_of(question, size, best, option), in_blocks)
    found = alike(used, in_blocks)
    if found.refused or not found.base or not found.other:
        return None
    return (ratio_in_blocks if in_blocks else ratio_of_sides)(found.other, found.base).value


def _typical(cells: Mapping[Option, Cell], in_blocks: bool) -> dict[Option, float]:
    """Logarithm of the median of launch medians (in blocks: relative to the block's mean) of options that are right.

    An option that had a wrong result is none of them, nor is one whose every launch was contended.
    """
    right = {option: cell.without(cell.disturbed) for option, cell in cells.items() if cell.medians and not cell.wrong}
    measured = {option: cell.by_launch for option, cell in right.items() if cell.medians and min(cell.medians) > 0}
    blocks: dict[int, list[float]] = {}
    for times in measured.values():
        for launch, time in times.items():
            blocks.setdefault(launch, []).append(math.log(time))
    centre = {launch: fmean(logs) if in_blocks else 0.0 for launch, logs in blocks.items()}
    return {
        option: median(math.log(time) - centre[launch] for launch, time in times.items())
        for option, times in measured.items()
    }
