"""Time and bus bandwidth against size, with intervals: a line for each option."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.options import Option, Question
from collbench.report.page.drawing import MARKERS, SERIES, Figure, draw, legend, mark, size_axis, time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[int, Estimate]]


def curves(question: Question, name: str, title: str) -> list[Figure]:
    """Both plots, for groups of as many options as can be told apart; none where there is one size only."""
    series = {option: _points(question, option) for option in sorted(question.options, key=_order)}
    drawn = {option: points for option, points in series.items() if len(points) > 1}
    groups = _groups(list(drawn))
    figures = []
    for number, group in enumerate(groups):
        part = f", {group[0]['library']}" if len(groups) > 1 else ""
        chosen = {question.name(option): drawn[option] for option in group}
        figures.append(
            draw(f"{name}-time-{number}", f"{title}: time against size{part}",
                 "Median of launch medians with its 95 % interval; both axes logarithmic.",
                 lambda axes, chosen=chosen: _times(axes, chosen))  # type: ignore[misc]
        )  # fmt: skip
        factors = {size: cell.bus_factor for size, cells in question.cells.items() for cell in cells.values()}
        if any(factors.values()) and question.case.collective != "barrier":
            figures.append(
                draw(f"{name}-busbw-{number}", f"{title}: bus bandwidth against size{part}",
                     "Size times bus factor over the median, in 1e9 bytes per second; higher is better.",
                     lambda axes, chosen=chosen, factors=factors: _rates(axes, chosen, factors))  # type: ignore[misc]
            )  # fmt: skip
    return figures


def _order(option: Option) -> tuple[object, ...]:
    return (option["library"], option.isolation_order, option)


def _groups(options: list[Option]) -> list[list[Option]]:
    """All in one plot if there is a colour for each, else a plot or more for each library."""
    if len(options) <= len(SERIES):
        return [options] if options else []
    groups = []
    for _, same in groupby(options, key=lambda option: option["library"]):
        own = list(same)
        groups += [own[start : start + len(SERIES)] for start in range(0, len(own), len(SERIES))]
    return groups


def _points(question: Question, option: Option) -> Points:
    """Sizes that were measured, each with the centre of its launches."""
    found = []
    for size in question.sizes:
        cell = question.cells[size].get(option)
        if cell is not None and cell.medians and min(cell.medians) > 0 and size > 0:
            found.append((size, centre(cell.medians)))
    return found


def _times(axes: Axes, series: dict[str, Points]) -> None:
    for number, (label, points) in enumerate(series.items()):
        _line(axes, number, label, [(size, one.value, one.interval) for size, one in points])
    _finish(axes, series)
    time_axis(axes)


def _rates(axes: Axes, series: dict[str, Points], factors: dict[int, float]) -> None:
    for number, (label, points) in enumerate(series.items()):
        rates = []
        for size, one in points:
            moved = size * factors[size] / 1e9
            ends = None if one.interval is None else (moved / one.interval[1], moved / one.interval[0])
            rates.append((size, moved / one.value, ends))
        _line(axes, number, label, rates)
    _finish(axes, series)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("bus bandwidth (GB/s)")


def _line(axes: Axes, number: int, label: str, points: list[tuple[int, float, tuple[float, float] | None]]) -> None:
    sizes, values = [size for size, _, _ in points], [value for _, value, _ in points]
    colour = SERIES[number]
    (line,) = axes.plot(sizes, values, color=colour, marker=MARKERS[number], label=label)
    mark(line, number)
    known = [(size, ends) for size, _, ends in points if ends is not None]
    if known:
        spans = [ends for _, ends in known]
        axes.fill_between([size for size, _ in known], [low for low, _ in spans], [high for _, high in spans],
                          color=colour, alpha=0.18, linewidth=0)  # fmt: skip


def _finish(axes: Axes, series: dict[str, Points]) -> None:
    size_axis(axes, sorted({size for points in series.values() for size, _ in points}))
    legend(axes)
