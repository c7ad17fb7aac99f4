"""Time and rate against size with intervals, and every sample launch by launch."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.options import Option, Question
from collbench.report.page.drawing import MARKERS, SERIES, Figure, draw, legend, mark, size_axis, time_axis, whiskers
from collbench.report.scales import rate, rate_unit
from collbench.schema.record import Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Points = list[tuple[int, Estimate]]

#: Size asked for (bytes), a value, and the ends of its interval.
Line = list[tuple[int, float, tuple[float, float] | None]]

#: Sizes at most this many times apart are joined by a solid line.
NEAR = 16

_WHISKERS = " Whiskers: 95 % interval; series are drawn side by side."


def curves(question: Question, name: str, title: str) -> list[Figure]:
    """Both plots, for groups of as many options as there are colours; none where there is only one size."""
    series = {option: _points(question, option) for option in sorted(question.options, key=_order)}
    drawn = {option: points for option, points in series.items() if len(points) > 1}
    groups = _groups(list(drawn))
    figures = []
    for number, group in enumerate(groups):
        part = f", {group[0]['library']}" if len(groups) > 1 else ""
        chosen = {question.name(option): drawn[option] for option in group}
        figures.append(
            draw(f"{name}-time-{number}", f"{title}: time against size{part}",
                 f"Median of launch medians; both axes logarithmic.{_notes(chosen)}",
                 lambda axes, chosen=chosen: _times(axes, chosen))  # type: ignore[misc]
        )  # fmt: skip
        figures += _rate_figure(question, f"{name}-rate-{number}", title, part, chosen)
    return figures


def _rate_figure(question: Question, name: str, title: str, part: str, chosen: dict[str, Points]) -> list[Figure]:
    """One where the cells have a rate; none where they are shown as a time alone."""
    works = [cell.work for cells in question.cells.values() for cell in cells.values()]
    kind, unit = ("bus bandwidth", "GB/s") if any(work.bus_factor for work in works) else ("rate", rate_unit(works))
    amounts = {size: max(_amount(cell.work) for cell in cells.values()) for size, cells in question.cells.items()}
    if not unit or not any(amounts.values()):
        return []
    over = ("Bytes that move (the size asked for, rounded to whole blocks) times the bus factor, over the median"
            if kind == "bus bandwidth" else "The work of a sample over the median")  # fmt: skip
    figure = draw(name, f"{title}: {kind} against size{part}", f"{over}; higher is better.{_notes(chosen)}",
                  lambda axes: _rates(axes, chosen, amounts, f"{kind} ({unit})"))  # fmt: skip
    return [figure]


def _amount(work: Work) -> float:
    """The numerator of the rate, in its unit; 0 where there is no rate."""
    if work.bus_factor is not None:
        return work.amount * work.bus_factor / 1e9
    return rate(work, 1.0) or 0.0 if work.shown == "rate" else 0.0


def _order(option: Option) -> tuple[object, ...]:
    return (option["library"], option.isolation_order, option)


def _groups(options: list[Option]) -> list[list[Option]]:
    """All in one plot if there is a colour for each, else one or more plots for each library."""
    if len(options) <= len(SERIES):
        return [options] if options else []
    groups = []
    for _, same in groupby(options, key=lambda option: option["library"]):
        own = list(same)
        groups += [own[start : start + len(SERIES)] for start in range(0, len(own), len(SERIES))]
    return groups


def _points(question: Question, option: Option) -> Points:
    """Sizes that were measured, each with the median of its launches."""
    points = []
    for size in question.sizes:
        cell = question.cells[size].get(option)
        if cell is not None and cell.medians and min(cell.medians) > 0 and size > 0:
            points.append((size, centre(cell.medians, half_step=cell.half_step)))
    return points


def _notes(series: dict[str, Points]) -> str:
    """What whiskers and dotted lines are, where there are any."""
    whiskers = any(time.interval for points in series.values() for _, time in points)
    gaps = any(_far(size, following) for points in series.values() for (size, _), (following, _) in pairwise(points))
    return f"{_WHISKERS if whiskers else ''}{' Dotted: no size was measured in between.' if gaps else ''}"


def _far(size: int, following: int) -> bool:
    return following > NEAR * size


def _times(axes: Axes, series: dict[str, Points]) -> None:
    _lines(
        axes, {name: [(size, time.value, time.interval) for size, time in points] for name, points in series.items()}
    )
    time_axis(axes)


def _rates(axes: Axes, series: dict[str, Points], amounts: dict[int, float], label: str) -> None:
    """`amounts`: the work of each size asked for; of a collective the GB that pass the busiest link."""
    lines: dict[str, Line] = {}
    for name, points in series.items():
        lines[name] = []
        for size, time in points:
            amount = amounts[size]
            if amount > 0:
                ends = None if time.interval is None else (amount / time.interval[1], amount / time.interval[0])
                lines[name].append((size, amount / time.value, ends))
    _lines(axes, lines)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel(label)


def _lines(axes: Axes, series: dict[str, Line]) -> None:
    sizes = sorted({size for points in series.values() for size, _, _ in points})
    step = _beside(sizes, len(series)) if any(ends for points in series.values() for _, _, ends in points) else 0.0
    for number, (label, points) in enumerate(series.items()):
        _line(axes, number, 2 ** (step * (number - (len(series) - 1) / 2)), label, points)
    size_axis(axes, sizes)
    legend(axes)


def _beside(sizes: list[int], series: int) -> float:
    """Octaves between series at one size, so that whiskers do not overlap."""
    gaps = [math.log2(following / size) for size, following in pairwise(sizes)]
    return min(0.3 * min(gaps) / series, 0.008 * sum(gaps))


def _line(axes: Axes, number: int, aside: float, label: str, points: Line) -> None:
    """Solid between near sizes, dotted over gaps; sizes are multiplied by `aside`."""
    colour = SERIES[number]
    places, values = [size * aside for size, _, _ in points], [value for _, value, _ in points]
    gaps = [index for index, (point, following) in enumerate(pairwise(points), 1) if _far(point[0], following[0])]
    if gaps:
        axes.plot(places, values, color=colour, linewidth=0.7, linestyle=":")
    for count, index in enumerate(gaps):
        places.insert(index + count, math.nan)
        values.insert(index + count, math.nan)
    (line,) = axes.plot(places, values, color=colour, marker=MARKERS[number], label=label)
    mark(line, number)
    whiskers(axes, [(size * aside, ends) for size, _, ends in points], colour)
