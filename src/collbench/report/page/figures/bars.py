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
    """One bar: where it stands, whose it is, and how high."""

    group: str
    library: str
    found: Estimate


def bars(questions: list[Question], size: int, name: str, title: str) -> list[Figure]:
    """Of one operation, over its numbers of ranks, at one size. Nothing where there is one bar only."""
    places = sorted({_place(option) for question in questions for option in question.options}, key=_order)
    where = f"{title} at {format_size(size)}"
    figures = []
    if len(questions) > 1:
        for number, place in enumerate(places):
            found = _of_place(questions, size, place)
            if len(found) > 1:
                said = f"{where}: {' '.join(filter(None, place))}"
                figures.append(_draw(f"{name}-policy-{number}", said, found, "ranks"))
    largest = max(questions, key=lambda question: question.case.where.ranks)
    found = [bar for place in places for bar in _of_place([largest], size, place, " ".join(filter(None, place)))]
    if len({bar.group for bar in found}) > 1 or len(found) > 1:
        who = counted(largest.case.where.ranks, "rank")
        figures.append(_draw(f"{name}-policies", f"{where}: policies side by side, {who}", found, ""))
    return figures


Place = tuple[str, str, str]


def _place(option: Option) -> Place:
    return (option["policy"], option["isolation"], option["affinity"])


def _order(place: Place) -> tuple[object, ...]:
    return (place[2], policy_order(place[0]), step_order(place[1] or None))


def _of_place(questions: list[Question], size: int, place: Place, group: str | None = None) -> list[Bar]:
    found = []
    for question in sorted(questions, key=lambda one: one.case.where.ranks):
        for option, cell in sorted(question.cells.get(size, {}).items()):
            if _place(option) == place and cell.medians:
                named = f"{option['library']} {option['driver']}" if "driver" in question.varying else option["library"]
                time = centre(cell.medians, half_step=cell.half_step)
                found.append(Bar(group or str(question.case.where.ranks), named, time))
    return found


def _draw(name: str, title: str, found: list[Bar], axis: str) -> Figure:
    values = "; ".join(f"{bar.group} {bar.library} {format_us(bar.found.value)} us" for bar in found)
    caption = "Median of launch medians; whiskers: 95 % interval."
    width = max(4.8, 0.45 * len(found) + 1.5)
    return draw(name, title, caption, lambda axes: _paint(axes, found, axis), (min(width, 9.6), 3.3), values)


def _paint(axes: Axes, found: list[Bar], axis: str) -> None:
    from matplotlib.ticker import FuncFormatter

    groups = list(dict.fromkeys(bar.group for bar in found))
    libraries = list(dict.fromkeys(bar.library for bar in found))
    width = 0.8 / len(libraries)
    for number, library in enumerate(libraries):
        own = [bar for bar in found if bar.library == library]
        at = [groups.index(bar.group) + (number - (len(libraries) - 1) / 2) * width for bar in own]
        heights = [bar.found.value for bar in own]
        drawn = axes.bar(at, heights, width * 0.92, color=SERIES[number % len(SERIES)], edgecolor=PAPER,
                         hatch=HATCHES[number % len(HATCHES)], label=library, linewidth=0)  # fmt: skip
        for index, patch in enumerate(drawn):
            mark(patch, number * 1000 + index)
        spans = [bar.found.interval or (bar.found.value, bar.found.value) for bar in own]
        low = [max(height - span[0], 0.0) for height, span in zip(heights, spans, strict=True)]
        high = [max(span[1] - height, 0.0) for height, span in zip(heights, spans, strict=True)]
        axes.errorbar(at, heights, yerr=[low, high], fmt="none", ecolor=INK, elinewidth=0.8, capsize=2)
    axes.set_xticks(range(len(groups)), [group.replace(" ", "\n") for group in groups])
    axes.set_xlabel(axis)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value)))
    axes.set_ylabel("time")
    legend(axes)
