"""Sizes in sentences of advice: what has no size, as most programs, is spoken of without one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collbench.analysis.advise import ESTABLISHED, Advice, AtSize, Crossover, Sure
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.units import counted, format_size


def sized(question: Question) -> bool:
    return any("size" in cell.case.what for cells in question.cells.values() for cell in cells.values())


def at(question: Question, *sizes: int) -> str:
    """` at 64K, 1M`, or nothing; neighbours of those measured as ` at 8 to 64K`."""
    return f" at {', '.join(_spans(question.sizes, set(sizes)))}" if sized(question) else ""


def at_some(question: Question, *sizes: int) -> str:
    """The same, or nothing where these are all sizes."""
    return at(question, *sizes) if set(question.sizes) - set(sizes) else ""


def led(question: Question, sizes: Iterable[int], text: str) -> str:
    """A sentence behind its first and last size, as `8 to 1M: take host`, or alone."""
    ends = list(map(format_size, sizes))
    return f"{' to '.join(dict.fromkeys((ends[0], ends[-1])))}: {text}" if sized(question) else text


def _spans(measured: list[int], chosen: set[int]) -> list[str]:
    """Three neighbours or more as `8 to 64K`."""
    runs: list[list[int]] = [[]]
    for size in measured:
        if size in chosen:
            runs[-1].append(size)
        elif runs[-1]:
            runs.append([])
    listed: list[str] = []
    for run in runs:
        if len(run) > 2:
            listed.append(f"{format_size(run[0])} to {format_size(run[-1])}")
        else:
            listed += map(format_size, run)
    return listed


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


@dataclass(frozen=True)
class Chosen:
    """At one size the option that is told of, and what is known of it. `ranged`: the option of the range around."""

    at: AtSize
    option: Option
    sure: Sure
    ranged: Option

    @property
    def established(self) -> bool:
        """Whether it may be recommended: no other is known, or may be, faster."""
        return self.sure in ESTABLISHED


def chosen(advice: Advice) -> list[Chosen]:
    """By size."""
    found = []
    for of in advice.ranges:
        for one in of.sizes:
            sure = one.sure(of.option)
            found.append(Chosen(one, of.option if sure in ESTABLISHED else one.best, sure, of.option))
    return found


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
