"""A history as a page: the answer, and a plot for each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.environment import side_of
from collbench.analysis.history.history import History, TimedRun, Trend
from collbench.report.history import Names, caveats, common, complete, grid, sentence
from collbench.report.page.drawing import BETTER, INK, OPEN, SERIES, WORSE, draw, mark, one_unit
from collbench.report.page.render import Chapter, Section, html
from collbench.units import counted, format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SIZE, TOP = (4.8, 2.5), (9.6, 3.2)  # of a plot, and of the one on top (inches)
CAPTION = (
    "A dot for each run with the 95 % interval of its launches; horizontal lines: levels; a thick vertical line: a "
    "change (red: slower, green: faster), its shade: where it may have begun; dotted lines: the environment changed; "
    "triangles at the edge: far beyond it; x: not measured."
)


def _paint(axes: Axes, one: Trend, runs: Sequence[TimedRun], renewed: set[int]) -> None:
    """`renewed` are the numbers of runs in which the environment of this cell changed."""
    numbers = np.array([point.run for point in one.series.points])
    times = np.array([point.time.value for point in one.series.points])
    ends = np.array([point.time.interval or (np.nan, np.nan) for point in one.series.points])
    gaps = [gap.run for gap in one.series.gaps if not gap.measured]
    for run in renewed:
        axes.axvline(run - 0.5, color=OPEN, linewidth=0.9, linestyle=":")
    axes.vlines(numbers, ends[:, 0], ends[:, 1], color=OPEN, linewidth=1.0)
    (dots,) = axes.plot(numbers, times, "o", markersize=3, color=SERIES[0])
    mark(dots, 0)
    for level in one.levels:
        span = numbers[level.start] - 0.5, numbers[level.stop - 1] + 0.5
        axes.plot(span, [one.time(level).value] * 2, color=INK, linewidth=1.4)
    for change in one.changes:
        (first, last), colour = change.between, WORSE if change.slower else BETTER
        axes.axvspan(first - 0.5, last - 0.5, color=colour, alpha=0.15, linewidth=0)
        axes.axvline(change.run - 0.5, color=colour, linewidth=1.8)
    _scale(axes, one, times)
    axes.plot(gaps, [axes.get_ylim()[0]] * len(gaps), "x", color=WORSE, markersize=6, clip_on=False)
    days = range(0, len(runs), -(-len(runs) // 6))
    axes.set_xticks(days, [runs[number].started.strftime("%b %d") for number in days])
    axes.set_xlim(-0.7, len(runs) - 0.3)
    axes.grid(visible=False, axis="x")


def _scale(axes: Axes, one: Trend, times: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
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


#: Plots of cells that changed, and of others: more make a page too large for browsers.
MOST_CHANGED, MOST_OTHERS = 60, 40

FOOTER = (
    "Times are medians of launch medians; a level is the median of its runs. How changes are found, and what that "
    "controls: docs/history.md of collbench."
)


def page(history: History, names: Names) -> str:
    """One HTML file: the sentence, a plot of the cell that changed most with the latest change, the grid, every plot.

    Raises:
        RequestError: Jinja or Matplotlib is not installed.
    """
    by_series = {id(one.series): one for one in history.cells}
    latest = sorted(history.events[0].changes, key=lambda one: -abs(one.ratio.value - 1)) if history.events else []
    order = (*latest, *(change for event in history.events[1:] for change in event.changes))
    changed = list({id(change.series): by_series[id(change.series)] for change in order}.values())
    others = [one for one in history.cells if not one.changes and one.series.points]
    evidence = _plots(f"{counted(len(changed), 'cell')} that changed", changed, MOST_CHANGED, history, names)
    rest = _plots(f"{counted(len(others), 'cell')} without a change", others, MOST_OTHERS, history, names)
    changes, cells, environment = complete(history, names)
    sections = (
        *([replace(evidence, figures=evidence.figures[1:], tables=(grid(history, names),),
                   folded_tables=(changes,))] if changed else []),
        replace(rest, figures=(), folded=rest.figures, folded_tables=(cells,), fold="Their plots"),
    )  # fmt: skip
    run = Chapter(common(history, names), f"History: {history.runs.name}", (sentence(history, names),),
                  tuple(caveats(history, names)), sections, (environment,) * bool(environment.rows),
                  evidence.figures[:1])  # fmt: skip
    return html([run], FOOTER)


def _plots(title: str, cells: Sequence[Trend], most: int, history: History, names: Names) -> Section:
    """At most so many plots, of the first of these cells."""
    lines = [CAPTION] if cells else []
    lines += [f"Plots of {len(cells) - most} more cells are left out; the table has them."] if len(cells) > most else []
    runs, figures = history.runs.runs, []
    for number, one in enumerate(cells[:most]):
        renewed = {found.run for found in history.renewals
                   if (found.side, found.machine) == (side_of(one.series.case), one.series.machine)}  # fmt: skip
        levels = [f"{format_duration(one.time(level).value)} from {runs[one.series.points[level.start].run].day}"
                  for level in one.levels]  # fmt: skip
        figures.append(draw(f"{title.split()[-1]}-{number}", str(names[one.series]), "",
                            partial(_paint, one=one, runs=runs, renewed=renewed),
                            TOP if one.changes and not number else SIZE, f"Levels: {'; '.join(levels)}."))  # fmt: skip
    return Section(title, tuple(lines), figures=tuple(figures))
