"""The isolation ladder: the time of every place relative to the first, as in `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import centre
from collbench.analysis.options import Option, Question
from collbench.report.cells import SIGNS, digits, times
from collbench.report.page.drawing import BETTER, INK, OPEN, SERIES, WORSE, Figure, draw, mark
from collbench.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"slower": WORSE, "faster": BETTER}

_CAPTION = (
    "Bars start at the time of the first place and end at their ratio to it, that of the verdicts below; whiskers: "
    "95 % interval. Red: slower, green: faster, grey: undecided (?) or the same within the margin (=)."
)


@dataclass(frozen=True)
class Ladder:
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
                 lambda axes, ladder=ladder: _paint(axes, ladder), (width, 3.3),  # type: ignore[misc]
                 "; ".join([f"{ladder.first} {format_duration(ladder.seconds)}", *others]))
        )  # fmt: skip
    return figures


def _ladders(question: Question, size: int, compared: Sequence[Comparison]) -> dict[Option, Ladder]:
    """By their first option; for each library and driver the first ladder, whatever the other factors."""
    options = {id(cell): option for option, cell in question.cells.get(size, {}).items()}
    by_base: dict[Option, list[tuple[Option, Comparison]]] = {}
    for comparison in compared:
        base, other = options.get(id(comparison.pair.base)), options.get(id(comparison.pair.other))
        if base is not None and other is not None and comparison.base is not None:
            by_base.setdefault(base, []).append((other, comparison))
    ladders: dict[tuple[str, str], tuple[Option, Ladder]] = {}
    for base in sorted(by_base, key=lambda option: (option.isolation_order, option)):
        others = sorted(by_base[base], key=lambda pair: (pair[0].isolation_order, pair[0]))
        if len(others) > 1:
            seconds = centre(question.cells[size][base].medians).value
            places = tuple((_place(option), comparison) for option, comparison in others)
            ladders.setdefault((base["library"], base["driver"]), (base, Ladder(_place(base), seconds, places)))
    return {base: ladder for _, (base, ladder) in sorted(ladders.items())}


def _place(option: Option) -> str:
    return f"{option['policy']} {option['isolation']}".strip()


def _words(comparison: Comparison) -> str:
    return comparison.verdict if comparison.ratio is None else f"{times(comparison.ratio)}, {comparison.verdict}"


def _paint(axes: Axes, ladder: Ladder) -> None:
    from matplotlib.ticker import FuncFormatter

    first = ladder.seconds
    (bar,) = axes.bar(0, first, 0.7, color=SERIES[0], linewidth=0)
    mark(bar, 0)
    axes.axhline(first, color=INK, linewidth=0.7, linestyle="--")
    tops = [first] + [
        _other(axes, number, first, comparison) for number, (_, comparison) in enumerate(ladder.others, 1)
    ]
    texts = [format_duration(first), *(_label(comparison) for _, comparison in ladder.others)]
    for index, (top, text) in enumerate(zip(tops, texts, strict=True)):
        axes.annotate(text, (index, top), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8)
    places = [ladder.first, *(place for place, _ in ladder.others)]
    axes.set_xticks(range(len(places)), [place.replace(" ", "\n") for place in places])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, max(tops) * 1.12)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value)))
    axes.set_ylabel("time")


def _label(comparison: Comparison) -> str:
    return "-" if comparison.ratio is None else f"{digits(comparison.ratio.value)}x{SIGNS.get(comparison.verdict, '')}"


def _other(axes: Axes, number: int, first: float, comparison: Comparison) -> float:
    """Draws one bar with its whisker; returns its upper end in seconds."""
    if comparison.ratio is None:
        return first
    time = first * comparison.ratio.value
    colour = _COLOURS.get(comparison.verdict, OPEN)
    (bar,) = axes.bar(number, abs(time - first), 0.7, bottom=min(first, time), color=colour, linewidth=0)
    mark(bar, number)
    axes.plot([number - 0.35, number + 0.35], [time, time], color=INK, linewidth=0.7)
    if comparison.ratio.interval is None:
        return max(first, time)
    low, high = (first * end for end in comparison.ratio.interval)
    axes.errorbar([number], [time], yerr=[[max(time - low, 0.0)], [max(high - time, 0.0)]], fmt="none", ecolor=INK,
                  elinewidth=0.8, capsize=3)  # fmt: skip
    return max(first, high)
