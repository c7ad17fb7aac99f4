"""Plots of an operation: time and rate against size, places side by side, and every sample.

Of places the isolation ladder; and policy by library as in Choi et al. 2021, one plot for each policy, then all
policies side by side. Samples are read from the files of a run when a plot needs them, not from its records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.options import Option, Question
from collbench.analysis.results import grouped
from collbench.analysis.runs import Observed
from collbench.errors import RunReadError
from collbench.report.headings import in_place_order
from collbench.report.numbers import digits, each_of, format_us, rate, rate_unit, time_each, times
from collbench.report.page import render
from collbench.report.page.render import INK, SERIES, Figure, draw, mark, whiskers
from collbench.schema.axes import policy_order, step_order
from collbench.schema.case import Case
from collbench.schema.record import Work
from collbench.schema.samples import SampleFiles
from collbench.units import counted, format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

# Time and rate against size.

#: Size asked for (bytes), a value, and the ends of its interval.
CurveLine = list[tuple[int, float, tuple[float, float] | None]]

#: Sizes at most this many times apart are joined by a solid line.
NEAR = 16

_WHISKERS = " Whiskers: 95 % interval; series are drawn side by side."
_DOTTED = " Dotted: no size was measured in between."


def curves(question: Question, name: str, title: str) -> list[Figure]:
    """Both plots, for groups of as many options as there are colours; none where there is only one size."""
    amounts = {size: max(_amount(cell.work) for cell in cells.values()) for size, cells in question.cells.items()}
    works = [cell.work for cells in question.cells.values() for cell in cells.values()]
    kind, unit, numerator = _rate(works)
    series = {option: _times(question, option) for option in in_place_order(question.options)}
    groups = _groups([option for option, line in series.items() if len(line) > 1])
    figures = []
    for number, group in enumerate(groups):
        part = f", {group[0]['library']}" if len(groups) > 1 else ""
        lines = {question.name(option): series[option] for option in group}
        notes = _WHISKERS * any(ends for line in lines.values() for _, _, ends in line)
        notes += _DOTTED * any(map(_gaps, lines.values()))
        figures.append(draw(f"{name}-time-{number}", f"{title}: time{each_of(works)} against size{part}",
                            f"Median of launch medians; both axes logarithmic.{notes}",
                            partial(_paint_curves, series=lines)))  # fmt: skip
        rates = {label: [(size, amounts[size] / time, ends and (amounts[size] / ends[1], amounts[size] / ends[0]))
                         for size, time, ends in line if amounts[size] > 0]
                 for label, line in lines.items()}  # fmt: skip
        if unit and any(len(line) > 1 for line in rates.values()):
            figures.append(draw(f"{name}-rate-{number}", f"{title}: {kind} against size{part}",
                                f"{numerator} over the median; higher is better.{notes}",
                                partial(_paint_curves, series=rates, axis=f"{kind} ({unit})")))  # fmt: skip
    return figures


def _rate(works: Sequence[Work]) -> tuple[str, str, str]:
    """What is shown over the time: its kind, its unit (empty where cells are shown as a time alone), its numerator."""
    if any(work.bus_factor for work in works):
        moved = "Bytes that move (the size asked for, rounded to whole blocks) times the bus factor,"
        return "bus bandwidth", "GB/s", moved
    return "rate", rate_unit(works), "The work of a sample"


def _amount(work: Work) -> float:
    """The numerator of the rate, in its unit: of a collective the GB that pass the busiest link; 0 without a rate."""
    if work.bus_factor is not None:
        return work.amount * work.bus_factor / 1e9
    return rate(work, 1.0) or 0.0 if work.shown in ("rate", "score") else 0.0


def _groups(options: list[Option]) -> list[list[Option]]:
    """All in one plot if there is a colour for each, else one or more plots for each library."""
    if len(options) <= len(SERIES):
        return [options] if options else []
    by_library = grouped((option["library"], option) for option in options)
    return [same[start : start + len(SERIES)]
            for same in by_library.values() for start in range(0, len(same), len(SERIES))]  # fmt: skip


def _times(question: Question, option: Option) -> CurveLine:
    line: CurveLine = []
    for size in question.sizes:
        cell = question.cells[size].get(option)
        if cell is not None and cell.medians and min(cell.medians) > 0 and size > 0:
            time = centre([time_each(cell.work, median) for median in cell.medians],
                          half_step=time_each(cell.work, cell.half_step))  # fmt: skip
            line.append((size, time.value, time.interval))
    return line


def _gaps(line: CurveLine) -> list[int]:
    """The points that are far from the one before them, by number."""
    return [number for number, ((size, *_), (following, *_)) in enumerate(pairwise(line), 1) if following > NEAR * size]


def _paint_curves(axes: Axes, series: dict[str, CurveLine], axis: str = "") -> None:
    """`axis`: what the vertical one is called if it is not of times."""
    sizes, step = sorted({size for line in series.values() for size, _, _ in line}), 0.0
    if any(ends for line in series.values() for _, _, ends in line):
        # Octaves between series at one size, so that whiskers do not overlap.
        octaves = [math.log2(following / size) for size, following in pairwise(sizes)]
        step = min(0.3 * min(octaves) / len(series), 0.008 * sum(octaves))
    for number, (label, line) in enumerate(series.items()):
        _line(axes, number, 2 ** (step * (number - (len(series) - 1) / 2)), label, line)
    render.size_axis(axes, sizes)
    render.legend(axes)
    if axis:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel(axis)
    else:
        render.time_axis(axes)


def _line(axes: Axes, number: int, aside: float, label: str, points: CurveLine) -> None:
    """Solid between near sizes, dotted over gaps; sizes are multiplied by `aside`."""
    colour, gaps = SERIES[number], _gaps(points)
    places, values = [size * aside for size, _, _ in points], [value for _, value, _ in points]
    if gaps:
        axes.plot(places, values, color=colour, linewidth=0.7, linestyle=":")
    for count, index in enumerate(gaps):
        places.insert(index + count, math.nan)
        values.insert(index + count, math.nan)
    (line,) = axes.plot(places, values, color=colour, marker=render.MARKERS[number], label=label)
    mark(line, number)
    whiskers(axes, [(size * aside, ends) for size, _, ends in points], colour)


# The isolation ladder.

#: Behind a ratio: it is undecided, or the same within the margin.
_SIGNS = {"unclear": " ?", "same": " ="}

_COLOURS = {"slower": render.WORSE, "faster": render.BETTER}

_LADDER = (
    "Bars start at the time of the first place and end at their ratio to it, that of the verdicts below; whiskers: "
    "95 % interval. Red: slower, green: faster, grey: unclear (?) or the same within the margin (=)."
)


def ladders(question: Question, size: int, compared: Sequence[Comparison], name: str, title: str) -> list[Figure]:
    """A plot for each library of which two places or more are compared with a first one in `compared` (by policy)."""
    figures = []
    for number, (first, others) in enumerate(_ladders(question, size, compared)):
        seconds = centre(question.cells[size][first].medians).value
        options, comparisons = (first, *(option for option, _ in others)), [comparison for _, comparison in others]
        places = [f"{option['policy']} {option['isolation']}".strip() for option in options]
        texts = [f"{places[0]} {format_duration(seconds)}"]
        for place, comparison in zip(places[1:], comparisons, strict=True):
            measured = f"{times(comparison.ratio)}, " if comparison.ratio else ""
            texts.append(f"{place} {measured}{comparison.verdict}")
        width = min(max(4.8, 0.62 * len(others) + 1.8), 12.0)
        heading = f"{title} at {format_size(size)}: the ladder, {first['library']}"
        paint = partial(_paint_ladder, places=places, first=seconds, others=comparisons)
        figures.append(draw(f"{name}-ladder-{number}", heading, _LADDER, paint, (width, 3.3), "; ".join(texts)))
    return figures


#: The first place of a ladder, and the others, from the least isolated to the most.
_Ladder = tuple[Option, list[tuple[Option, Comparison]]]


def _ladders(question: Question, size: int, compared: Sequence[Comparison]) -> list[_Ladder]:
    """For each library and driver the first ladder, whatever the other factors."""
    options = {id(cell): option for option, cell in question.cells.get(size, {}).items()}
    sides = ((options.get(id(comparison.pair.base)), options.get(id(comparison.pair.other)), comparison)
             for comparison in compared if comparison.base is not None)  # fmt: skip
    by_base = grouped((base, (other, comparison)) for base, other, comparison in sides if base and other)
    ladders: dict[tuple[str, str], _Ladder] = {}
    for base, others in sorted(by_base.items(), key=lambda entry: (entry[0].isolation_order, entry[0])):
        if len(others) > 1:
            ordered = sorted(others, key=lambda pair: (pair[0].isolation_order, pair[0]))
            ladders.setdefault((base["library"], base["driver"]), (base, ordered))
    return [ladder for _, ladder in sorted(ladders.items(), key=lambda entry: entry[0])]


def _paint_ladder(axes: Axes, places: Sequence[str], first: float, others: Sequence[Comparison]) -> None:
    """`first`: the time in seconds at the first place."""
    texts, tops = [format_duration(first)], [first]
    axes.axhline(first, color=INK, linewidth=0.7, linestyle="--")
    mark(axes.bar(0, first, 0.7, color=SERIES[0], linewidth=0)[0], 0)
    for number, comparison in enumerate(others, 1):
        ratio = comparison.ratio
        if ratio is None:
            texts.append("-")
            tops.append(first)
            continue
        time, ends = first * ratio.value, tuple(first * end for end in ratio.interval or ())
        (bar,) = axes.bar(number, abs(time - first), 0.7, bottom=min(first, time), linewidth=0,
                          color=_COLOURS.get(comparison.verdict, render.OPEN))  # fmt: skip
        mark(bar, number)
        axes.plot([number - 0.35, number + 0.35], [time, time], color=INK, linewidth=0.7)
        whiskers(axes, [(number, (ends[0], ends[1]))] if ends else [])
        texts.append(f"{digits(ratio.value)}x{_SIGNS.get(comparison.verdict, '')}")
        tops.append(max(first, time, *ends[1:]))
    for index, (top, text) in enumerate(zip(tops, texts, strict=True)):
        axes.annotate(text, (index, top), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8)
    _name_places(axes, places)
    axes.set_ylim(0, max(tops) * 1.12)
    render.one_unit(axes)


def _name_places(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    axes.grid(visible=False, axis="x")


# Policies and libraries.


class Bar(NamedTuple):
    """One bar: its group, its library, and its height."""

    group: str
    library: str
    time: Estimate


def bars(questions: list[Question], size: int, name: str, title: str) -> list[Figure]:
    """One operation on all its numbers of ranks, at one size. Nothing where there is only one bar."""
    places = sorted({_place(option) for question in questions for option in question.options},
                    key=lambda place: (place[2], policy_order(place[0]), step_order(place[1] or None)))  # fmt: skip
    labels = {place: " ".join(filter(None, place)) for place in places}
    start = f"{title} at {format_size(size)}"
    figures = []
    for number, place in enumerate(places if len(questions) > 1 else ()):
        by_ranks = _of_place(questions, size, place)
        if len(by_ranks) > 1:
            figures.append(_draw_bars(f"{name}-policy-{number}", f"{start}: {labels[place]}", by_ranks, "ranks"))
    largest = max(questions, key=lambda question: question.case.where.ranks)
    by_policy = [bar for place in places for bar in _of_place([largest], size, place, labels[place])]
    if len(by_policy) > 1:
        ranks = counted(largest.case.where.ranks, "rank")
        figures.append(_draw_bars(f"{name}-policies", f"{start}: policies side by side, {ranks}", by_policy, ""))
    return figures


def _place(option: Option) -> tuple[str, str, str]:
    return (option["policy"], option["isolation"], option["affinity"])


def _of_place(questions: list[Question], size: int, place: tuple[str, str, str], group: str | None = None) -> list[Bar]:
    bars = []
    for question in sorted(questions, key=lambda question: question.case.where.ranks):
        for option, cell in sorted(question.cells.get(size, {}).items()):
            if _place(option) == place and cell.medians:
                library = option["library"] + (f" {option['driver']}" if "driver" in question.varying else "")
                time = centre(cell.medians, half_step=cell.half_step)
                bars.append(Bar(group or str(question.case.where.ranks), library, time))
    return bars


def _draw_bars(name: str, title: str, bars: list[Bar], axis: str) -> Figure:
    values = "; ".join(f"{bar.group} {bar.library} {format_us(bar.time.value)} us" for bar in bars)
    intervals = any(bar.time.interval for bar in bars)
    caption = f"Median of launch medians{'; whiskers: 95 % interval' if intervals else ''}."
    width = max(4.8, 0.45 * len(bars) + 1.5)
    return draw(name, title, caption, partial(_paint_bars, bars=bars, axis=axis), (min(width, 9.6), 3.3), values)


def _paint_bars(axes: Axes, bars: list[Bar], axis: str) -> None:
    groups = list(dict.fromkeys(bar.group for bar in bars))
    libraries = list(dict.fromkeys(bar.library for bar in bars))
    width = 0.8 / len(libraries)
    for number, library in enumerate(libraries):
        of_library = [bar for bar in bars if bar.library == library]
        at = [groups.index(bar.group) + (number - (len(libraries) - 1) / 2) * width for bar in of_library]
        drawn = axes.bar(at, [bar.time.value for bar in of_library], width * 0.92, label=library, linewidth=0,
                         color=SERIES[number % len(SERIES)], edgecolor=render.PAPER,
                         hatch=render.HATCHES[number % len(render.HATCHES)])  # fmt: skip
        for index, patch in enumerate(drawn):
            mark(patch, number * 1000 + index)
        whiskers(axes, [(place, bar.time.interval) for place, bar in zip(at, of_library, strict=True)])
    _name_places(axes, groups)
    axes.set_xlabel(axis)
    axes.set_ylim(bottom=0)
    render.one_unit(axes)
    render.legend(axes)


# Every sample, launch by launch.

#: Samples in seconds, by launch.
SamplesByLaunch = dict[int, "NDArray[np.float64]"]

#: Samples that one plot takes (8 bytes each): of more than that it draws every second, every third, and so on.
MOST_DRAWN = 1 << 20

#: The most sizes whose samples are drawn: more make a page too large for browsers.
MOST_STRIPS = 6

#: The dots become one bitmap, which a style sheet cannot colour: these two are visible on light and on dark.
_DOTS = ("#3b82c4", "#c2783a")


class PlottedSamples(NamedTuple):
    """Valid samples in seconds of each named case, by launch: every `step`-th. `unread` files could not be read."""

    samples: dict[str, SamplesByLaunch]
    unread: int
    step: int


class StoredSamples(ExitStack):
    """The samples files of what was observed. Use as a context manager: an archive stays open for the next plot."""

    def __init__(self, observed: Observed) -> None:
        super().__init__()
        self._observed = observed
        self._files: SampleFiles | None = None

    def of(self, cells: Mapping[str, Case], most: int = MOST_DRAWN) -> PlottedSamples:
        """The samples of each named case; a case without any has no entry. Needs the memory of `most` and of a file."""
        stored = [(name, case, file) for name, case in cells.items() for file in self._observed.sample_files(case)]
        step = max(-(-sum(file.n for *_, file in stored) // most), 1)
        samples: dict[str, SamplesByLaunch] = {}
        unread = 0
        for name, case, file in sorted(stored, key=lambda entry: entry[-1].launch):  # one run after the other
            try:
                largest = self._files_of(file.folder).read_file(file.name, case.where.ranks, file.n).max(axis=0)
            except RunReadError:
                unread += 1
                continue
            samples.setdefault(name, {})[file.launch] = largest[largest > 0][::step] * 1e-9
        return PlottedSamples({name: samples[name] for name in cells if name in samples}, unread, step)

    def _files_of(self, folder: Path) -> SampleFiles:
        """Those of this run. Those of the run before are closed: a folder may hold more runs than files may be open."""
        if self._files is None or self._files.directory != folder:
            self.close()
            self._files = SampleFiles(folder)
            self.callback(self._files.close)
        return self._files


def strips(stored: StoredSamples, question: Question, name: str, title: str) -> list[Figure]:
    """One for each size, or for `MOST_STRIPS` of them: a column for each place, its launches from left to right."""
    figures = []
    for number, size in enumerate(question.sizes[:: -(-len(question.sizes) // MOST_STRIPS)]):
        cells = question.cells[size]
        if any(cell.work.shown in ("score", "number") for cell in cells.values()):
            continue  # its seconds are no times
        kept = stored.of({question.name(option): cells[option].case for option in in_place_order(cells)})
        if not kept.samples:
            continue
        launches = sum(map(len, kept.samples.values()))
        total = sum(len(values) for of_place in kept.samples.values() for values in of_place.values())
        caption = (
            f"{total} samples of {counted(launches, 'launch', 'launches')}; neighbouring launches have different "
            "colours, a bar marks the median of each launch."
            f"{f' One in {kept.step} of the samples is drawn.' if kept.step > 1 else ''}"
            f"{f' {kept.unread} samples files cannot be read and are left out.' if kept.unread else ''}"
        )
        at = f" at {format_size(size)}" if size else ""
        width = min(max(4.8, 0.75 * len(kept.samples) + 1.2), 12.0)
        figures.append(draw(f"{name}-{number}-samples", f"{title}{at}: every sample", caption,
                            partial(_paint_strips, places=kept.samples), (width, 3.6)))  # fmt: skip
    return figures


def _paint_strips(axes: Axes, places: Mapping[str, SamplesByLaunch]) -> None:
    number = 0
    for column, launches in enumerate(places.values()):
        width = 0.84 / max(len(launches), 1)
        for place, values in enumerate(launches.values()):
            start = column - 0.42 + place * width
            spread = start + width * (0.1 + 0.8 * np.linspace(0, 1, len(values)))
            axes.plot(spread, values, ".", markersize=1.2, color=_DOTS[place % 2], rasterized=True)
            (line,) = axes.plot([start, start + width], [np.median(values)] * 2, color=INK, linewidth=1.2)
            mark(line, number)
            number += 1
    _name_places(axes, [label.replace(", ", "\n") for label in places])
    axes.tick_params(axis="x", labelsize=7)
    render.time_axis(axes)
