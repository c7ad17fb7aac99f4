"""A history in words, tables and JSON, and as a page with a plot for each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import to_builtins

from collbench.analysis.change_points import FEWEST, LEAST, WAVES
from collbench.analysis.factors import side_of
from collbench.analysis.history import CellSeries, Change, Event, History, Lack, TimedRun, Trend
from collbench.analysis.results import grouped
from collbench.report.caveats import flaw_text
from collbench.report.headings import apart, drivers_in, heading, image_and_place, size_text
from collbench.report.numbers import between, change, percents, span
from collbench.report.page import render
from collbench.report.page.render import BETTER, INK, OPEN, SERIES, WORSE, Section
from collbench.report.tables import Table, more, without_empty
from collbench.units import counted, format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SeriesName(NamedTuple):
    """`allreduce sum float32`, `mpich single strict`, `64K`, `EPYC 7003, 4 cores`; empty where all cells share it."""

    what: str
    place: str
    size: str
    machine: str

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


class SeriesNames:
    """The names of all series of a history. `shared` is what all of them have in common."""

    def __init__(self, all_series: Sequence[CellSeries]) -> None:
        parts = [heading(line.case, drivers_in([line.way])).split(", ") for line in all_series]
        settings, shared = apart([words[1:] for words in parts])  # the operation is always named
        places, machines = {image_and_place(line.case) for line in all_series}, {line.machine for line in all_series}
        self.shared = ", ".join(shared)
        self._names = {
            series: SeriesName(", ".join((name, *setting)), image_and_place(series.case) * (len(places) > 1),
                               size_text(series.case), series.machine * (len(machines) > 1))
            for series, (name, *_), setting in zip(all_series, parts, settings, strict=True)
        }  # fmt: skip
        sizes = ((name._replace(size=""), series.case["size"] or 0) for series, name in self._names.items())
        self._sizes = {name: sorted(set(of_name)) for name, of_name in grouped(sizes).items()}

    def __getitem__(self, series: CellSeries) -> SeriesName:
        return self._names[series]

    def groups(self, several: Iterable[CellSeries]) -> dict[str, list[CellSeries]]:
        """By operation, place and machine: `allreduce 64K..1M (host)`, with neighbouring sizes as a range."""
        named = {}
        for name, members in grouped((self[series]._replace(size=""), series) for series in several).items():
            where = ", ".join(filter(None, (name.place, name.machine)))
            sizes = self._ranges(name, members) if self[members[0]].size else ""
            named[f"{name.what} {sizes}".strip() + (f" ({where})" if where else "")] = members
        return named

    def _ranges(self, name: SeriesName, members: Sequence[CellSeries]) -> str:
        order = self._sizes[name]
        indices = sorted(order.index(member.case["size"]) for member in members)
        if len(indices) == len(order) > 2:
            return "all sizes"
        ranges: list[list[str]] = []
        for index in indices:
            if index - 1 not in indices:
                ranges.append([])
            ranges[-1].append(format_size(order[index]))
        return ", ".join(", ".join(ends) if len(ends) < 3 else f"{ends[0]}..{ends[-1]}" for ends in ranges)


GRID = ("since", "change", "where", "with")

#: The most words and characters of the sentence, rows of the grid, characters of its last columns, lines of caveats.
WORDS, LONG, MOST_ROWS, TEXTS, MOST_LINES = 25, 100, 16, 66, 3


def sentence(history: History, names: SeriesNames) -> str:
    """`slower by 12 % since 2026-11-03 for allreduce 64K..1M, with library Open MPI 5.0.8 -> 5.0.9`."""
    runs = history.runs
    tested = sum(cell.series.tested for cell in history.cells)
    if not tested:
        most = max((len(cell.series.points) for cell in history.cells), default=0)
        return f"too few runs to tell a change: {most} of {FEWEST}"
    if history.first >= len(runs):
        return "no run since then"
    if history.events:
        event, several = history.events[0], len(history.events) > 1
        start = f"{len(history.events)} changes, the latest: " if several else ""
        cells = f" in {len(event.changes)} of {counted(tested, 'cell')}"
        where = f" for {' and '.join(names.groups(change.series for change in event.changes))}"
        facts = f", with {briefly(event.facts[event.run])}" if event.run in event.facts else ""
        size = _ratios(step.ratio.value for step in event.changes).replace("+", "").replace("-", "")
        size = size if "%" in size else f"a factor of {size.removesuffix('x')}"
        texts = [f"{start}{'slower' if event.slower else 'faster'} by {size} since {runs[event.run].day}{end}"
                for end in (where + facts, cells + facts, where, cells)]  # fmt: skip
        return next(filter(_short, texts), texts[-1])
    if history.latest:
        latest = history.latest[0]
        series, ratio = latest.cells[0]
        in_cells = f"{len(latest.cells)} of {counted(latest.of, 'cell')}"
        text = f"no change yet, but the latest run lies outside in {in_cells}"
        where = f"{', farthest' * (len(latest.cells) > 1)}: {next(iter(names.groups([series])))}, {change(ratio)}"
        return text + where * _short(text + where)
    none = f"no change beyond {history.margin * 100:g} %"
    return {
        "none": f"{none} in {counted(tested, 'cell')} over {counted(len(runs) - history.first, 'run')}",
        "alike": f"{none} seen; only large ones can be, because neighbouring runs resemble each other",
        "unknown": f"{none} seen; {counted(len(runs), 'run')} are too few to tell small ones from waves",
    }[history.correlation.dependence]


def _short(text: str) -> bool:
    return len(text.split()) <= WORDS and len(text) <= LONG


def _ratios(ratios: Iterable[float]) -> str:
    low, *_, high = [*sorted(ratios, key=lambda ratio: abs(ratio - 1))] * 2
    return change(low) if change(low) == change(high) else span(low, high)


def briefly(facts: dict[str, str]) -> str:
    """`library Open MPI 5.0.8 -> 5.0.9 and 2 more`."""
    name, text = next(iter(facts.items()))
    return f"{name} {text}" + (f" and {len(facts) - 1} more" if len(facts) > 1 else "")


def in_full(facts: dict[str, str]) -> str:
    """`library Open MPI 5.0.8 -> 5.0.9; kernel 6.1 -> 6.6`."""
    return "; ".join(f"{name} {text}" for name, text in facts.items())


def grid(history: History, names: SeriesNames) -> Table:
    """A row for each change of an operation and place, and of the latest run where it is outside; the latest first."""
    groups = [(latest.run, dict(latest.cells), "latest run only") for latest in history.latest]
    for event in history.events:
        facts = event.facts.get(event.run) or next(iter(event.facts.values()), {})
        near = f" on {history.runs[min(event.facts)].day}" if facts and event.run not in event.facts else ""
        ratios = {step.series: step.ratio.value for step in event.changes}
        groups.append((event.run, ratios, f"{briefly(facts)}{near}" if facts else ""))
    rows = [
        (history.runs[run].day, _ratios(ratios[series] for series in members), name, reason)
        for run, ratios, reason in groups for name, members in names.groups(ratios).items()
    ]  # fmt: skip
    room = min(max((len(row[3]) for row in rows), default=0), TEXTS // 2)
    short = tuple((*row[:2], _shortened(row[2], TEXTS - room), _shortened(row[3], room)) for row in rows[:MOST_ROWS])
    return without_empty(Table("", GRID, short, tuple(more(len(rows) - MOST_ROWS, "more rows: --all"))))


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def tables(history: History, names: SeriesNames, every: bool = False) -> list[Table]:
    """The answer in a sentence, a grid, what must be known of it, what to do next; with `every` all tables instead."""
    lines, next_step = [common(history, names), *caveats(history, names)], _next(history)
    if every:
        full = (table for table in complete(history, names) if table.rows)
        return [Table(sentence(history, names), (), (), (*lines, *next_step)), *full]
    shown = grid(history, names)
    first = (_shortened(line, LONG - 2) for line in (*lines[: 1 + MOST_LINES], *shown.notes))
    left = more(len(lines) - 1 - MOST_LINES, "more, and every cell: --all")
    return [Table(sentence(history, names), shown.columns, shown.rows, (*first, *left, *next_step))]


def common(history: History, names: SeriesNames) -> str:
    """`41 runs until 2026-11-23; 40 cells: backend mpi`."""
    runs = history.runs
    shared = f": {names.shared}" if names.shared else ""
    return f"{counted(len(runs), 'run')} until {runs[-1].day}; {counted(len(history.cells), 'cell')}{shared}"


def _next(history: History) -> list[str]:
    if history.events:
        runs = (history.runs[number].name for number in (history.events[0].before, history.events[0].run))
        both = (quote(str(PurePath(history.name, run))) for run in runs)
        return [f"next: collbench compare {' '.join(both)}"]
    return [f"next: measure again, {LEAST} runs that hold are a change"] if history.latest else []


def _lack_text(lacks: Lack) -> str:
    launches = counted(lacks.launches, "launch", "launches")
    words = {"wrong results": f"results were wrong in {launches}",
             "not resolved": "the clock does not resolve it, or others used its cores",
             "another way": f"measured in another way: {lacks.detail}"}  # fmt: skip
    return words.get(lacks.kind, f"{lacks.kind}{f' in {launches}' if lacks.launches else ''}: {lacks.detail}")


def caveats(history: History, names: SeriesNames) -> list[str]:
    """What could mislead, the gravest first."""
    runs, correlation, every = history.runs, history.correlation, [cell.series for cell in history.cells]
    lacking: dict[str, list[CellSeries]] = {}
    for series in every:
        if series.missing is not None:
            lacking.setdefault(f"no record since run {runs[series.missing].name}", []).append(series)
        elif series.lacks:
            text = f"not measured in run {runs[series.last].name}, {_lack_text(series.lacks)}"
            lacking.setdefault(text, []).append(series)
    lines = [f"{why}: {', '.join(names.groups(cells))}" for why, cells in lacking.items()]
    if history.latest and history.events:
        outside = counted(sum(len(latest.cells) for latest in history.latest), "cell")
        lines.append(f"the latest run lies outside its level in {outside}; a change needs {LEAST} runs")
    if any(line.tested for line in every):
        known = f"neighbouring runs resemble each other (r = {correlation.estimate:.2f})"
        lines += {"none": [], "alike": [f"{known}: waves with r up to {correlation.limit:.2f} are allowed for"],
                  "unknown": [f"whether runs resemble their neighbours is unknown: r = {WAVES} is not excluded, "
                              f"{correlation.limit:.2f} allowed for"]}[correlation.dependence]  # fmt: skip
    untested = sum(bool(line.points) and not line.tested for line in every)
    lines += [f"{counted(untested, 'cell')} with fewer than {FEWEST} runs: not tested"] * (untested > 0)
    machines = dict.fromkeys(run.machine for run in runs)
    lines += [f"{len(machines)} machines, each with its own series: {'; '.join(machines)}"] * (len(machines) > 1)
    skipped = sum(not line.points and not line.lacks for line in every)
    lines += [f"{counted(skipped, 'cell')} skipped in every run"] * (skipped > 0)
    left_out = (f"left out: {why.removeprefix(f'{history.name}/')}" for why in history.left_out)
    return [*lines, *left_out, *map(flaw_text, history.flaws)]


CHANGES = ("since", "verdict", "what", "place", "size (B)", "machine", "difference (%)", "difference 95 %", "before",
           "after", "runs", "may have begun", "run", "in the same run")  # fmt: skip
CELLS = ("what", "place", "size (B)", "machine", "now", "now 95 %", "runs", "changes", "not measured")
ENVIRONMENT = ("since", "run", "side", "what changed", "machine")


def complete(history: History, names: SeriesNames) -> tuple[Table, Table, Table]:
    """Every change, every cell, and every change of the environment."""
    runs, shared = history.runs, f": {names.shared}" if names.shared else ""
    several = len({run.machine for run in runs}) > 1
    changed = tuple(_row(change, event, runs, names) for event in history.events for change in event.changes)
    renewed = dict.fromkeys(
        (runs[renewal.run].day, runs[renewal.run].name, renewal.side[0] or "", in_full(renewal.facts),
         renewal.machine * several)
        for renewal in history.renewals
    )  # fmt: skip
    every = tuple(_cell(cell, runs, names) for cell in history.cells)
    return (without_empty(Table(f"what changed{shared}", CHANGES, changed)),
            without_empty(Table(f"every cell{shared}", CELLS, every)),
            without_empty(Table("what changed in the environment", ENVIRONMENT, tuple(renewed))))  # fmt: skip


def _row(change: Change, event: Event, runs: Sequence[TimedRun], names: SeriesNames) -> tuple[str, ...]:
    ratio, levels = change.ratio, (change.before, change.after)
    first, last = (runs[number].day for number in change.between)
    return (runs[change.run].day, "slower" if change.slower else "faster", *names[change.series],
            percents(ratio.value), between(ratio.interval or (), percents),
            *(format_duration(change.series.time(level).value) for level in levels),
            " and ".join(str(level.stop - level.start) for level in levels),
            "" if first == last else f"{first} .. {last}", runs[change.run].name,
            in_full(event.facts.get(event.run, {})))  # fmt: skip


def _cell(trend: Trend, runs: Sequence[TimedRun], names: SeriesNames) -> tuple[str, ...]:
    series, gaps = trend.series, trend.series.gaps
    now = series.time(trend.levels[-1]) if series.points else None
    days = ", ".join(f"{percents(change.ratio.value)} % since {runs[change.run].day}" for change in trend.changes)
    gap = max(gaps, key=lambda gap: gap.run, default=None)
    lacks = f"{counted(len(gaps), 'run')}, the latest {runs[gap.run].name}: {_lack_text(gap.lacks)}" if gap else ""
    return (*names[series], format_duration(now.value) if now else "",
            between((now and now.interval) or (), format_duration), str(len(series.points)),
            days or ("none" if series.tested else "too few runs"), lacks)  # fmt: skip


def document(history: History, names: SeriesNames) -> dict[str, Any]:
    """Times in seconds; runs by their number in time; null where there is none."""
    return {
        "answer": sentence(history, names), "margin": history.margin, "correlation": to_builtins(history.correlation),
        "runs": [{"name": run.name, "started": run.started.isoformat(), "machine": run.machine}
                 for run in history.runs],
        "events": [
            {"run": event.run, "before": event.before, "verdict": "slower" if event.slower else "faster",
             "facts": {str(number): facts for number, facts in event.facts.items()},
             "cells": [str(names[change.series]) for change in event.changes]}
            for event in history.events
        ],
        "latest": [{"run": latest.run, "of": latest.of,
                    "cells": [{"name": str(names[series]), "ratio": ratio} for series, ratio in latest.cells]}
                   for latest in history.latest],
        "cells": [
            {"name": str(names[cell.series]), "tested": cell.series.tested, **to_builtins(cell.series),
             "changes": [{"run": change.run, "between": change.between, "ratio": to_builtins(change.ratio),
                          "p_adjusted": change.after.p} for change in cell.changes]}
            for cell in history.cells
        ],
        "environment": to_builtins(history.renewals, order="deterministic"),
        "notes": caveats(history, names), "left_out": history.left_out, "doubts": list(map(flaw_text, history.flaws)),
    }  # fmt: skip


# As a page.

SIZE, TOP = (4.8, 2.5), (9.6, 3.2)  # of a plot, and of the one on top (inches)
CAPTION = (
    "A dot for each run with the 95 % interval of its launches; horizontal lines: levels; a thick vertical line: a "
    "change (red: slower, green: faster), its shade: where it may have begun; dotted lines: the environment changed; "
    "triangles at the edge: far beyond it; x: not measured."
)


def _paint(axes: Axes, trend: Trend, runs: Sequence[TimedRun], renewed: set[int]) -> None:
    """`renewed` are the numbers of runs in which the environment of this cell changed."""
    numbers, times = [point.run for point in trend.series.points], [point.time.value for point in trend.series.points]
    gaps = [gap.run for gap in trend.series.gaps if not gap.measured]
    for run in renewed:
        axes.axvline(run - 0.5, color=OPEN, linewidth=0.9, linestyle=":")
    render.whiskers(axes, [(point.run, point.time.interval) for point in trend.series.points], OPEN)
    (dots,) = axes.plot(numbers, times, "o", markersize=3, color=SERIES[0])
    render.mark(dots, 0)
    for level in trend.levels:
        span = numbers[level.start] - 0.5, numbers[level.stop - 1] + 0.5
        axes.plot(span, [trend.series.time(level).value] * 2, color=INK, linewidth=1.4)
    for step in trend.changes:
        (first, last), colour = step.between, WORSE if step.slower else BETTER
        axes.axvspan(first - 0.5, last - 0.5, color=colour, alpha=0.15, linewidth=0)
        axes.axvline(step.run - 0.5, color=colour, linewidth=1.8)
    _scale(axes, trend, times)
    axes.plot(gaps, [axes.get_ylim()[0]] * len(gaps), "x", color=WORSE, markersize=6, clip_on=False)
    days = range(0, len(runs), -(-len(runs) // 6))
    axes.set_xticks(days, [runs[number].started.strftime("%b %d") for number in days])
    axes.set_xlim(-0.7, len(runs) - 0.3)
    axes.grid(visible=False, axis="x")


def _scale(axes: Axes, trend: Trend, times: Sequence[float]) -> None:
    """Around the levels, so that one slow run does not hide them; what lies beyond is drawn at the edge."""
    levels = [trend.series.time(level).value for level in trend.levels]
    low, high = min(min(levels), float(np.quantile(times, 0.05))), max(max(levels), float(np.quantile(times, 0.95)))
    room = max((high - low) * 0.35, high * 0.03)
    low, high = low - room, high + room
    above = [point.run for point in trend.series.points if point.time.value > high]
    below = [point.run for point in trend.series.points if point.time.value < low]
    axes.plot(above, [high] * len(above), "^", color=SERIES[0], markersize=5, clip_on=False)
    axes.plot(below, [low] * len(below), "v", color=SERIES[0], markersize=5, clip_on=False)
    axes.set_ylim(low, high)
    render.one_unit(axes)


#: Plots of cells that changed, and of others: more make a page too large for browsers.
MOST_CHANGED, MOST_OTHERS = 60, 40

FOOTER = (
    "Times are medians of launch medians; a level is the median of its runs. How changes are found, and what that "
    "controls: docs/history.md of collbench."
)


def page(history: History, names: SeriesNames) -> str:
    """One HTML file: the sentence, a plot of the cell that changed most with the latest change, the grid, every plot.

    Raises:
        RequestError: Jinja or Matplotlib is not installed.
    """
    trends = {cell.series: cell for cell in history.cells}
    latest = sorted(history.events[0].changes, key=lambda step: -abs(step.ratio.value - 1)) if history.events else []
    order = (*latest, *(change for event in history.events[1:] for change in event.changes))
    changed = [trends[series] for series in dict.fromkeys(change.series for change in order)]
    others = [cell for cell in history.cells if not cell.changes and cell.series.points]
    evidence = _plots(f"{counted(len(changed), 'cell')} that changed", changed, MOST_CHANGED, history, names)
    rest = _plots(f"{counted(len(others), 'cell')} without a change", others, MOST_OTHERS, history, names)
    changes, cells, environment = complete(history, names)
    sections = (
        *([replace(evidence, figures=evidence.figures[1:], tables=(grid(history, names),),
                   folded_tables=(changes,))] if changed else []),
        replace(rest, figures=(), folded=rest.figures, folded_tables=(cells,), fold="Their plots"),
    )  # fmt: skip
    run = render.Chapter(common(history, names), f"History: {history.name}", (sentence(history, names),),
                  tuple(caveats(history, names)), sections, (environment,) * bool(environment.rows),
                  evidence.figures[:1])  # fmt: skip
    return render.html([run], FOOTER)


def _plots(title: str, cells: Sequence[Trend], most: int, history: History, names: SeriesNames) -> Section:
    lines = [CAPTION] * bool(cells)
    lines += [f"Plots of {len(cells) - most} more cells are left out; the table has them."] * (len(cells) > most)
    runs, figures = history.runs, []
    for number, trend in enumerate(cells[:most]):
        series = trend.series
        renewed = {renewal.run for renewal in history.renewals
                   if (renewal.side, renewal.machine) == (side_of(series.case), series.machine)}  # fmt: skip
        levels = [f"{format_duration(series.time(level).value)} from {runs[series.points[level.start].run].day}"
                  for level in trend.levels]  # fmt: skip
        figures.append(render.draw(f"{title.split()[-1]}-{number}", str(names[series]), "",
                            partial(_paint, trend=trend, runs=runs, renewed=renewed),
                            SIZE if number or not trend.changes else TOP,
                            f"Levels: {'; '.join(levels)}."))  # fmt: skip
    return Section(title, tuple(lines), figures=tuple(figures))
