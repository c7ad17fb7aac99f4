"""A cell over the runs in time: its times with intervals, its levels, and where they changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.history.history import Told
from collbench.analysis.history.reading import TimedRun
from collbench.report.page.drawing import BETTER, INK, OPEN, SERIES, WORSE, Figure, draw, mark, one_unit
from collbench.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (4.8, 2.5)
CAPTION = (
    "A dot for each run with the 95 % interval of its launches; horizontal lines: levels; a thick vertical line: a "
    "change (red: slower, green: faster), its shade: where it may have begun; dotted lines: the environment changed; "
    "triangles at the edge: far beyond it; x: not measured."
)


def trend(one: Told, runs: Sequence[TimedRun], renewed: Sequence[int], name: str, title: str) -> Figure:
    """`renewed` are the numbers of runs in which the environment of this cell changed."""
    return draw(name, title, "", lambda axes: _paint(axes, one, runs, renewed), SIZE, _values(one, runs))


def run_axis(axes: Axes, runs: Sequence[TimedRun], labels: int) -> None:
    """Runs in time, evenly, with about so many days written."""
    step = max(-(-len(runs) // labels), 1)
    ticks = list(range(0, len(runs), step))
    axes.set_xticks(ticks, [runs[number].started.strftime("%b %d") for number in ticks])
    axes.set_xlim(-0.7, len(runs) - 0.3)
    axes.grid(visible=False, axis="x")


def colour(slower: bool) -> str:
    return WORSE if slower else BETTER


def _values(one: Told, runs: Sequence[TimedRun]) -> str:
    levels = [f"{format_duration(one.time(level).value)} from {runs[one.series.points[level.start].run].day}"
              for level in one.levels]  # fmt: skip
    return f"Levels: {'; '.join(levels)}. Not measured in {len(one.series.gaps)} runs."


def _paint(axes: Axes, one: Told, runs: Sequence[TimedRun], renewed: Sequence[int]) -> None:
    numbers = np.array([point.run for point in one.series.points])
    times = np.array([point.time.value for point in one.series.points])
    spans = [(point.run, point.time.interval) for point in one.series.points if point.time.interval]
    for run in renewed:
        axes.axvline(run - 0.5, color=OPEN, linewidth=0.9, linestyle=":")
    axes.vlines([run for run, _ in spans], [span[0] for _, span in spans], [span[1] for _, span in spans],
                color=OPEN, linewidth=1.0)  # fmt: skip
    (dots,) = axes.plot(numbers, times, "o", markersize=3, color=SERIES[0])
    mark(dots, 0)
    for level in one.levels:
        ends = numbers[level.start] - 0.5, numbers[level.stop - 1] + 0.5
        axes.plot(ends, [one.time(level).value] * 2, color=INK, linewidth=1.4)
    for change in one.changes:
        first, last = change.between
        if first < last:
            axes.axvspan(first - 0.5, last - 0.5, color=colour(change.slower), alpha=0.15, linewidth=0)
        axes.axvline(change.run - 0.5, color=colour(change.slower), linewidth=1.8)
    _scale(axes, one, times)
    if one.series.gaps:
        bottom = axes.get_ylim()[0]
        axes.plot([gap.run for gap in one.series.gaps], [bottom] * len(one.series.gaps), "x", color=WORSE, markersize=6,
                  clip_on=False)  # fmt: skip
    run_axis(axes, runs, 6)


def _scale(axes: Axes, one: Told, times: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    """Around the levels, so that one slow run does not hide them; what lies beyond is drawn at the edge."""
    levels = [one.time(level).value for level in one.levels]
    low, high = min(min(levels), float(np.quantile(times, 0.05))), max(max(levels), float(np.quantile(times, 0.95)))
    room = max((high - low) * 0.35, high * 0.03)
    low, high = low - room, high + room
    above = [point.run for point in one.series.points if point.time.value > high]
    below = [point.run for point in one.series.points if point.time.value < low]
    axes.plot(above, [high] * len(above), "^", color=SERIES[0], markersize=5, clip_on=False)
    axes.plot(below, [low] * len(below), "v", color=SERIES[0], markersize=5, clip_on=False)
    axes.set_ylim(low, high)
    one_unit(axes)
