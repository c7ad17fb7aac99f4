"""A history as a page: the answer, when what changed, and a plot for each cell that did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.environment import side_of
from collbench.analysis.history.history import History, TimedRun, Told
from collbench.report.history import Names, complete, latest, line, notes, sentence, signed
from collbench.report.history import changed as of_changes
from collbench.report.page.contents import Chapter
from collbench.report.page.drawing import BETTER, FAINT, INK, OPEN, SERIES, WORSE, Figure, draw, mark, one_unit
from collbench.report.page.render import html
from collbench.report.page.samples import Section
from collbench.units import counted, format_duration

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
    return draw(name, title, "", lambda axes: _paint_trend(axes, one, runs, renewed), SIZE, _values(one, runs))


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


def _paint_trend(axes: Axes, one: Told, runs: Sequence[TimedRun], renewed: Sequence[int]) -> None:
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


WIDTH, ROW, FRAME = 10.0, 0.24, 1.1

#: More cells have no row.
MOST = 60

#: More changes of the environment have no label, only their lines.
_LABELS = 6


def timeline(history: History, names: Names, rows: Sequence[Told], name: str) -> Figure:
    """Of the cells `rows`, all of which changed."""
    shown = rows[:MOST]
    labels = _renewed(history)
    caption = (
        "A row for each cell that changed: red from where it became slower, green from where it became faster, by so "
        "many per cent, up to the next change; grey: as at the start. Dotted lines: what changed in the environment."
        + (f" {len(rows) - MOST} more cells changed." if len(rows) > MOST else "")
    )
    values = "; ".join(line(event, history, names) for event in history.events)
    size = (WIDTH, FRAME + ROW * len(shown) + 0.16 * len(labels))

    def paint(axes: Axes) -> None:
        _paint_timeline(axes, history, names, shown, labels)

    return draw(name, "What changed, and when", caption, paint, size, values)


def _renewed(history: History) -> dict[int, str]:
    """By run the names of the facts that changed, for the latest."""
    found: dict[int, dict[str, str]] = {}
    for renewal in history.surroundings.renewals:
        found.setdefault(renewal.run, {}).update(renewal.facts)
    latest = sorted(found)[-_LABELS:]
    return {run: _label(found[run]) for run in latest}


def _label(facts: dict[str, str]) -> str:
    name, text = next(iter(facts.items()))
    first = f"{name} {text}"
    more = f" and {len(facts) - 1} more" if len(facts) > 1 else ""
    return f"{first if len(first) <= 50 else f'{first[:47]}...'}{more}"


def _paint_timeline(axes: Axes, history: History, names: Names, rows: Sequence[Told], labels: dict[int, str]) -> None:
    runs = history.runs.runs
    for number, one in enumerate(rows):
        _row(axes, number, one)
    for renewal in {one.run for one in history.surroundings.renewals}:
        axes.axvline(renewal - 0.5, color=OPEN, linewidth=0.9, linestyle=":")
    for height, (run, text) in enumerate(labels.items()):
        right = run > len(runs) * 0.6
        axes.annotate(text, (run - 0.5, 1), xycoords=("data", "axes fraction"), textcoords="offset points",
                      xytext=(-3 if right else 3, 3 + 11 * height), ha="right" if right else "left", va="bottom",
                      fontsize=7.5, color=INK, annotation_clip=False)  # fmt: skip
    axes.set_yticks(range(len(rows)), [str(names[one.series]) for one in rows])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    run_axis(axes, runs, 12)


def _row(axes: Axes, number: int, one: Told) -> None:
    points = one.series.points
    ends = [*(change.run for change in one.changes), points[-1].run + 1]
    axes.barh(number, ends[0] - points[0].run, 0.6, left=points[0].run - 0.5, color=FAINT, linewidth=0)
    for index, change in enumerate(one.changes):
        start, stop = ends[index : index + 2]
        (bar,) = axes.barh(
            number, stop - start, 0.6, left=start - 0.5, color=colour(change.slower), linewidth=0, alpha=0.85
        )
        mark(bar, number)
        axes.annotate(f"{signed(change.change.ratio.value)} %", (start - 0.5, number), (-3, 0), ha="right", va="center",
                      textcoords="offset points", fontsize=8, color=INK, fontweight="bold")  # fmt: skip


#: Plots of cells that changed, and of others: more make a page too large for browsers.
MOST_CHANGED, MOST_OTHERS = 60, 40

FOOTER = (
    "Times are medians of launch medians; a level is the median of its runs. How changes are found, and what that "
    "controls: docs/history.md of collbench."
)


def page(history: History, names: Names) -> str:
    """One HTML file.

    Raises:
        RequestError: Jinja or Matplotlib is not installed.
    """
    changed = _changed(history)
    others = [one for one in history.cells if not one.changes and one.series.points]
    cells, *environment = complete(history, names)
    evidence = _plots(f"{counted(len(changed), 'cell')} that changed", changed, MOST_CHANGED, history, names)
    rest = _plots(f"{counted(len(others), 'cell')} without a change", others, MOST_OTHERS, history, names)
    sections = (
        *([replace(evidence, folded_tables=tuple(of_changes(history, names)))] if changed else []),
        replace(rest, figures=(), folded=rest.figures, folded_tables=(cells,), fold="Their plots"),
    )
    picture = (timeline(history, names, changed, "timeline"),) if changed else ()
    lines = (sentence(history, names), *(line(event, history, names) for event in history.events[1:]),
             *latest(history, names))  # fmt: skip
    about = ", ".join(filter(None, (*dict.fromkeys(run.machine for run in history.runs.runs), names.shared)))
    run = Chapter(about, f"History: {history.runs.name}", lines, tuple(notes(history, names)), sections,
                  tuple(environment), picture)  # fmt: skip
    return html([run], FOOTER)


def _changed(history: History) -> list[Told]:
    """Event by event, the latest first, each cell once."""
    by_series = {id(one.series): one for one in history.cells}
    found = {id(change.series): by_series[id(change.series)] for event in history.events for change in event.changes}
    return list(found.values())


def _plots(title: str, cells: Sequence[Told], most: int, history: History, names: Names) -> Section:
    lines = [CAPTION] if cells else []
    lines += [f"Plots of {len(cells) - most} more cells are left out; the table has them."] if len(cells) > most else []
    prefix = title.split()[-1]
    figures = tuple(_trend(one, history, names, f"{prefix}-{number}") for number, one in enumerate(cells[:most]))
    return Section(title, tuple(lines), figures=figures)


def _trend(one: Told, history: History, names: Names, name: str) -> Figure:
    side = side_of(one.series.case)
    renewed = {found.run for found in history.surroundings.renewals
               if found.side == side and found.machine == one.series.machine}  # fmt: skip
    return trend(one, history.runs.runs, sorted(renewed), name, str(names[one.series]))
