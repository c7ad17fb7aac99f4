"""Time and rate against size, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from collbench.analysis.estimate import centre
from collbench.analysis.options import Option, Question
from collbench.report.numbers import rate, rate_unit
from collbench.report.page.drawing import MARKERS, SERIES, Figure, draw, legend, mark, size_axis, time_axis, whiskers
from collbench.schema.record import Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Size asked for (bytes), a value, and the ends of its interval.
CurveLine = list[tuple[int, float, tuple[float, float] | None]]

#: Sizes at most this many times apart are joined by a solid line.
NEAR = 16

_WHISKERS = " Whiskers: 95 % interval; series are drawn side by side."


def curves(question: Question, name: str, title: str) -> list[Figure]:
    """Both plots, for groups of as many options as there are colours; none where there is only one size."""
    shown = _rate(question)
    ordered = sorted(question.options, key=lambda option: (option["library"], option.isolation_order, option))
    series = {option: _times(question, option) for option in ordered}
    groups = _groups([option for option, line in series.items() if len(line) > 1])
    figures = []
    for number, group in enumerate(groups):
        part = f", {group[0]['library']}" if len(groups) > 1 else ""
        times = {question.name(option): series[option] for option in group}
        notes = _notes(times)
        figures.append(draw(f"{name}-time-{number}", f"{title}: time against size{part}",
                            f"Median of launch medians; both axes logarithmic.{notes}",
                            partial(_paint, series=times, finish=time_axis)))  # fmt: skip
        if shown is not None:
            rates = {label: _rates(line, shown.amounts) for label, line in times.items()}
            finish = partial(_rate_axis, f"{shown.kind} ({shown.unit})")
            figures.append(draw(f"{name}-rate-{number}", f"{title}: {shown.kind} against size{part}",
                                f"{shown.caption} over the median; higher is better.{notes}",
                                partial(_paint, series=rates, finish=finish)))  # fmt: skip
    return figures


class Rate(NamedTuple):
    """What is shown over the time: its kind, unit and numerator in words, and by size the numerator in that unit."""

    kind: str
    unit: str
    caption: str
    amounts: dict[int, float]


def _rate(question: Question) -> Rate | None:
    """None where cells are shown as a time alone."""
    works = [cell.work for cells in question.cells.values() for cell in cells.values()]
    amounts = {size: max(_amount(cell.work) for cell in cells.values()) for size, cells in question.cells.items()}
    if not any(amounts.values()):
        return None
    if any(work.bus_factor for work in works):
        moved = "Bytes that move (the size asked for, rounded to whole blocks) times the bus factor,"
        return Rate("bus bandwidth", "GB/s", moved, amounts)
    unit = rate_unit(works)
    return Rate("rate", unit, "The work of a sample", amounts) if unit else None


def _amount(work: Work) -> float:
    """The numerator of the rate, in its unit; 0 where there is no rate."""
    if work.bus_factor is not None:
        return work.amount * work.bus_factor / 1e9
    return rate(work, 1.0) or 0.0 if work.shown == "rate" else 0.0


def _groups(options: list[Option]) -> list[list[Option]]:
    """All in one plot if there is a colour for each, else one or more plots for each library."""
    if len(options) <= len(SERIES):
        return [options] if options else []
    groups = []
    for _, same in groupby(options, key=lambda option: option["library"]):
        own = list(same)
        groups += [own[start : start + len(SERIES)] for start in range(0, len(own), len(SERIES))]
    return groups


def _times(question: Question, option: Option) -> CurveLine:
    """Sizes that were measured, each with the median of its launches (s)."""
    line: CurveLine = []
    for size in question.sizes:
        cell = question.cells[size].get(option)
        if cell is not None and cell.medians and min(cell.medians) > 0 and size > 0:
            time = centre(cell.medians, half_step=cell.half_step)
            line.append((size, time.value, time.interval))
    return line


def _rates(times: CurveLine, amounts: dict[int, float]) -> CurveLine:
    """`amounts`: the work of each size asked for; of a collective the GB that pass the busiest link."""
    return [(size, amounts[size] / time, ends and (amounts[size] / ends[1], amounts[size] / ends[0]))
            for size, time, ends in times if amounts[size] > 0]  # fmt: skip


def _notes(series: dict[str, CurveLine]) -> str:
    whiskers = any(ends for line in series.values() for _, _, ends in line)
    gaps = any(_far(size, following) for line in series.values() for (size, *_), (following, *_) in pairwise(line))
    return f"{_WHISKERS if whiskers else ''}{' Dotted: no size was measured in between.' if gaps else ''}"


def _far(size: int, following: int) -> bool:
    return following > NEAR * size


def _rate_axis(label: str, axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel(label)


def _paint(axes: Axes, series: dict[str, CurveLine], finish: Callable[[Axes], None]) -> None:
    """`finish` makes the vertical axis."""
    sizes = sorted({size for line in series.values() for size, _, _ in line})
    step = _beside(sizes, len(series)) if any(ends for line in series.values() for _, _, ends in line) else 0.0
    for number, (label, line) in enumerate(series.items()):
        _line(axes, number, 2 ** (step * (number - (len(series) - 1) / 2)), label, line)
    size_axis(axes, sizes)
    legend(axes)
    finish(axes)


def _beside(sizes: list[int], series: int) -> float:
    """Octaves between series at one size, so that whiskers do not overlap."""
    gaps = [math.log2(following / size) for size, following in pairwise(sizes)]
    return min(0.3 * min(gaps) / series, 0.008 * sum(gaps))


def _line(axes: Axes, number: int, aside: float, label: str, points: CurveLine) -> None:
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
