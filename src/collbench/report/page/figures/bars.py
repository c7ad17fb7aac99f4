"""Policy by library as bars, in the layout of Choi et al. 2021.

One plot for each policy, in it the libraries by number of ranks; then all policies side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.options import Option, Question
from collbench.report.page.drawing import HATCHES, INK, PAPER, SERIES, Figure, draw, legend, mark
from collbench.report.style import format_us
from collbench.schema.axes import step_order
from collbench.schema.policy import policy_order
from collbench.units import counted, format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Bar:
    """One bar: its group, its library, and its height."""

    group: str
    library: str
    time: Estimate


def bars(questions: list[Question], size: int, name: str, title: str) -> list[Figure]:
    """One operation on all its numbers of ranks, at one size. Nothing where there is only one bar."""
    places = sorted({_place(option) for question in questions for option in question.options}, key=_order)
    labels = {place: " ".join(filter(None, place)) for place in places}
    start = f"{title} at {format_size(size)}"
    figures = []
    if len(questions) > 1:
        for number, place in enumerate(places):
            by_ranks = _of_place(questions, size, place)
            if len(by_ranks) > 1:
                figures.append(_draw(f"{name}-policy-{number}", f"{start}: {labels[place]}", by_ranks, "ranks"))
    largest = max(questions, key=lambda question: question.case.where.ranks)
    by_policy = [bar for place in places for bar in _of_place([largest], size, place, labels[place])]
    if len(by_policy) > 1:
        ranks = counted(largest.case.where.ranks, "rank")
        figures.append(_draw(f"{name}-policies", f"{start}: policies side by side, {ranks}", by_policy, ""))
    return figures


Place = tuple[str, str, str]


def _place(option: Option) -> Place:
    return (option["policy"], option["isolation"], option["affinity"])


def _order(place: Place) -> tuple[object, ...]:
    return (place[2], policy_order(place[0]), step_order(place[1] or None))


def _of_place(questions: list[Question], size: int, place: Place, group: str | None = None) -> list[Bar]:
    bars = []
    for question in sorted(questions, key=lambda question: question.case.where.ranks):
        for option, cell in sorted(question.cells.get(size, {}).items()):
            if _place(option) == place and cell.medians:
                named = f"{option['library']} {option['driver']}" if "driver" in question.varying else option["library"]
                time = centre(cell.medians, half_step=cell.half_step)
                bars.append(Bar(group or str(question.case.where.ranks), named, time))
    return bars


def _draw(name: str, title: str, bars: list[Bar], axis: str) -> Figure:
    values = "; ".join(f"{bar.group} {bar.library} {format_us(bar.time.value)} us" for bar in bars)
    known = any(bar.time.interval for bar in bars)
    caption = f"Median of launch medians{'; whiskers: 95 % interval' if known else ''}."
    width = max(4.8, 0.45 * len(bars) + 1.5)
    return draw(name, title, caption, lambda axes: _paint(axes, bars, axis), (min(width, 9.6), 3.3), values)


def _paint(axes: Axes, bars: list[Bar], axis: str) -> None:
    from matplotlib.ticker import FuncFormatter

    groups = list(dict.fromkeys(bar.group for bar in bars))
    libraries = list(dict.fromkeys(bar.library for bar in bars))
    width = 0.8 / len(libraries)
    for number, library in enumerate(libraries):
        own = [bar for bar in bars if bar.library == library]
        at = [groups.index(bar.group) + (number - (len(libraries) - 1) / 2) * width for bar in own]
        heights = [bar.time.value for bar in own]
        drawn = axes.bar(at, heights, width * 0.92, color=SERIES[number % len(SERIES)], edgecolor=PAPER,
                         hatch=HATCHES[number % len(HATCHES)], label=library, linewidth=0)  # fmt: skip
        for index, patch in enumerate(drawn):
            mark(patch, number * 1000 + index)
        _whiskers(axes, [(place, bar.time) for place, bar in zip(at, own, strict=True)])
    axes.set_xticks(range(len(groups)), [group.replace(" ", "\n") for group in groups])
    axes.set_xlabel(axis)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value)))
    axes.set_ylabel("time")
    legend(axes)


def _whiskers(axes: Axes, times: list[tuple[float, Estimate]]) -> None:
    """Of the times that have an interval."""
    known = [(place, time.value, time.interval) for place, time in times if time.interval is not None]
    if known:
        low = [max(value - ends[0], 0.0) for _, value, ends in known]
        high = [max(ends[1] - value, 0.0) for _, value, ends in known]
        axes.errorbar([place for place, _, _ in known], [value for _, value, _ in known], yerr=[low, high], fmt="none",
                      ecolor=INK, elinewidth=0.8, capsize=2)  # fmt: skip
