"""Places side by side as figures: the isolation ladder, and policy by library as in Choi et al. 2021.

One plot for each policy, in it the libraries by number of ranks; then all policies side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.options import Option, Question
from collbench.report.numbers import digits, format_us, times
from collbench.report.page.drawing import (
    BETTER,
    HATCHES,
    INK,
    OPEN,
    PAPER,
    SERIES,
    WORSE,
    Figure,
    draw,
    legend,
    mark,
    one_unit,
    whiskers,
)
from collbench.schema.axes import policy_order, step_order
from collbench.units import counted, format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Behind a ratio: it is undecided, or the same within the margin.
_SIGNS = {"unclear": " ?", "same": " ="}

_COLOURS = {"slower": WORSE, "faster": BETTER}

_CAPTION = (
    "Bars start at the time of the first place and end at their ratio to it, that of the verdicts below; whiskers: "
    "95 % interval. Red: slower, green: faster, grey: unclear (?) or the same within the margin (=)."
)


@dataclass(frozen=True)
class StepCosts:
    """The first place, its time in seconds, and the other places, from the least isolated to the most."""

    first: str
    seconds: float
    others: tuple[tuple[str, Comparison], ...]


def ladders(question: Question, size: int, compared: Sequence[Comparison], name: str, title: str) -> list[Figure]:
    """A plot for each library of which two places or more are compared with a first one in `compared` (by policy)."""
    figures = []
    for number, (option, ladder) in enumerate(_ladders(question, size, compared).items()):
        others = [f"{place} {_words(comparison)}" for place, comparison in ladder.others]
        heading = f"{title} at {format_size(size)}: the ladder, {option['library']}"
        width = min(max(4.8, 0.62 * len(others) + 1.8), 12.0)
        figures.append(
            draw(f"{name}-ladder-{number}", heading, _CAPTION,
                 lambda axes, ladder=ladder: _paint_ladder(axes, ladder), (width, 3.3),  # type: ignore[misc]
                 "; ".join([f"{ladder.first} {format_duration(ladder.seconds)}", *others]))
        )  # fmt: skip
    return figures


def _ladders(question: Question, size: int, compared: Sequence[Comparison]) -> dict[Option, StepCosts]:
    """By their first option; for each library and driver the first ladder, whatever the other factors."""
    options = {id(cell): option for option, cell in question.cells.get(size, {}).items()}
    by_base: dict[Option, list[tuple[Option, Comparison]]] = {}
    for comparison in compared:
        base, other = options.get(id(comparison.pair.base)), options.get(id(comparison.pair.other))
        if base is not None and other is not None and comparison.base is not None:
            by_base.setdefault(base, []).append((other, comparison))
    ladders: dict[tuple[str, str], tuple[Option, StepCosts]] = {}
    for base in sorted(by_base, key=lambda option: (option.isolation_order, option)):
        others = sorted(by_base[base], key=lambda pair: (pair[0].isolation_order, pair[0]))
        if len(others) > 1:
            seconds = centre(question.cells[size][base].medians).value
            places = tuple((_step_name(option), comparison) for option, comparison in others)
            ladders.setdefault((base["library"], base["driver"]), (base, StepCosts(_step_name(base), seconds, places)))
    return {base: ladder for _, (base, ladder) in sorted(ladders.items())}


def _step_name(option: Option) -> str:
    return f"{option['policy']} {option['isolation']}".strip()


def _words(comparison: Comparison) -> str:
    return comparison.verdict if comparison.ratio is None else f"{times(comparison.ratio)}, {comparison.verdict}"


def _paint_ladder(axes: Axes, ladder: StepCosts) -> None:
    first, tops = ladder.seconds, [ladder.seconds]
    axes.axhline(first, color=INK, linewidth=0.7, linestyle="--")
    mark(axes.bar(0, first, 0.7, color=SERIES[0], linewidth=0)[0], 0)
    for number, (_, comparison) in enumerate(ladder.others, 1):
        ratio = comparison.ratio
        if ratio is None:
            tops.append(first)
            continue
        time, ends = first * ratio.value, tuple(first * end for end in ratio.interval or ())
        (bar,) = axes.bar(number, abs(time - first), 0.7, bottom=min(first, time), linewidth=0,
                          color=_COLOURS.get(comparison.verdict, OPEN))  # fmt: skip
        mark(bar, number)
        axes.plot([number - 0.35, number + 0.35], [time, time], color=INK, linewidth=0.7)
        whiskers(axes, [(number, (ends[0], ends[1]))] if ends else [])
        tops.append(max(first, time, *ends[1:]))
    texts = [format_duration(first), *(_label(comparison) for _, comparison in ladder.others)]
    for index, (top, text) in enumerate(zip(tops, texts, strict=True)):
        axes.annotate(text, (index, top), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8)
    places = [ladder.first, *(place for place, _ in ladder.others)]
    axes.set_xticks(range(len(places)), [place.replace(" ", "\n") for place in places])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, max(tops) * 1.12)
    one_unit(axes)


def _label(comparison: Comparison) -> str:
    return "-" if comparison.ratio is None else f"{digits(comparison.ratio.value)}x{_SIGNS.get(comparison.verdict, '')}"


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


PlaceName = tuple[str, str, str]


def _place(option: Option) -> PlaceName:
    return (option["policy"], option["isolation"], option["affinity"])


def _order(place: PlaceName) -> tuple[object, ...]:
    return (place[2], policy_order(place[0]), step_order(place[1] or None))


def _of_place(questions: list[Question], size: int, place: PlaceName, group: str | None = None) -> list[Bar]:
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
    return draw(name, title, caption, lambda axes: _paint_bars(axes, bars, axis), (min(width, 9.6), 3.3), values)


def _paint_bars(axes: Axes, bars: list[Bar], axis: str) -> None:
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
        whiskers(axes, [(place, bar.time.interval) for place, bar in zip(at, own, strict=True)])
    axes.set_xticks(range(len(groups)), [group.replace(" ", "\n") for group in groups])
    axes.set_xlabel(axis)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    one_unit(axes)
    legend(axes)
