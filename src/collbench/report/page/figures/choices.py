"""The picture of an answer: what every option takes over the best one, with intervals and the margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collbench.analysis.advise import AtSize, Standing
from collbench.analysis.options import Option, Question
from collbench.report.advice import Advised, at, slowdown
from collbench.report.numbers import digits
from collbench.report.page.drawing import BETTER, FAINT, INK, OPEN, PAPER, SERIES, WORSE, Figure, draw, mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Panels side by side, and rows: of more options the ones that cost least are drawn.
MOST_PANELS, MOST_ROWS = 3, 30

WIDTH, ROW, FRAME = 12.0, 0.25, 1.3

_CAPTION = (
    "The time of every option over that of the fastest, on a logarithmic axis. Square: it may be the best; its line "
    "ends at the most that it may lose to the best, with 95 % confidence, as written. Triangle: another is faster. "
    "Shaded: the option to take, which may lose least. Grey band: ±{margin:g} %."
)


@dataclass(frozen=True)
class Row:
    """An option, or with `heading` the library of those below it."""

    label: str
    option: Option | None = None


@dataclass(frozen=True)
class Panel:
    """An operation at one size, and the option to take there; None without bounds."""

    title: str
    question: Question
    at: AtSize
    taken: Option | None


def choices(advices: Sequence[Advised], margin: float, name: str) -> tuple[Figure, ...]:
    """Of several operations at their largest sizes, of a single one at its sizes; none where nothing was compared."""
    chosen = [advised for advised in advices if len(advised.advice.question.options) > 1 and advised.advice.sizes]
    panels = _panels(chosen)
    if not panels:
        return ()
    rows = _rows(panels)
    where = f" {panels[0].title}" if len(panels) == 1 else ""
    title = f"What every option takes{where}"
    values = "; ".join(f"{panel.title}: {_in_words(panel, rows)}" for panel in panels)
    size = (WIDTH, FRAME + ROW * len(rows))
    caption = _CAPTION.format(margin=margin * 100)
    return (draw(name, title, caption, lambda axes: _paint(axes, panels, rows, margin), size, values),)


def _panels(advices: Sequence[Advised]) -> list[Panel]:
    if len(advices) == 1:
        panels = _of_sizes(advices[0])
        step = max(1, -(-(len(panels) - 1) // (MOST_PANELS - 1)))
        return [*panels[:-1:step], panels[-1]][-MOST_PANELS:]
    return [replace(_of_sizes(one)[-1], title=f"{one.title}{at(one.advice.question, one.advice.sizes[-1].size)}")
            for one in advices[:MOST_PANELS]]  # fmt: skip


def _of_sizes(advised: Advised) -> list[Panel]:
    question = advised.advice.question
    return [
        Panel(f"{advised.title}{at(question, one.size)}", question, one, of.option if one.known else None)
        for of in advised.advice.ranges
        for one in of.sizes
    ]


def _rows(panels: Sequence[Panel]) -> list[Row]:
    """By library, from the least isolated place to the most; the name of a library is a row of its own."""
    names = {option: panel.question.name(option) for panel in panels for option in panel.question.options}
    known = sorted(names, key=lambda option: min(_cost(panel, option) for panel in panels))[:MOST_ROWS]
    ordered = sorted(known, key=lambda option: (option["library"], option.isolation_order, option))
    headed = all(names[option].startswith(f"{option['library']}, ") for option in ordered)
    rows: list[Row] = []
    library = ""
    for option in ordered:
        if headed and option["library"] != library:
            library = option["library"]
            rows.append(Row(library))
        rows.append(Row(names[option].removeprefix(f"{library}, ") if headed else names[option], option))
    return rows


def _cost(panel: Panel, option: Option) -> float:
    found = panel.at.options.get(option)
    return float("inf") if found is None else found.ratio


def _look(panel: Panel, option: Option) -> tuple[str, str, str]:
    """What is said of an option, its marker and its colour."""
    found = panel.at.options.get(option)
    if found is None:
        return ("failed" if option in panel.at.failing else "not compared"), "", INK
    if found.out:
        return f"{digits(found.ratio)}x", ">", WORSE
    if isinstance(found.at_most, str):
        return f"{digits(found.ratio)}x, no bound", "o", OPEN
    return f"at most {slowdown(found.at_most)}", "s", SERIES[0]


def _in_words(panel: Panel, rows: Sequence[Row]) -> str:
    options = [row.option for row in rows if row.option is not None]
    return ", ".join(f"{panel.question.name(option)} {_look(panel, option)[0]}" for option in options)


def _paint(axes: Axes, panels: Sequence[Panel], rows: Sequence[Row], margin: float) -> None:
    figure = axes.figure
    axes.remove()
    parts = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for number, (part, panel) in enumerate(zip(parts, panels, strict=True)):
        part.patch.set_alpha(0)
        part.axvspan(1 / (1 + margin), 1 + margin, color=FAINT, alpha=0.45, linewidth=0)
        part.axvline(1, color=INK, linewidth=0.8)
        for index, row in enumerate(rows):
            _row(part, index, row, panel, number)
        if len(panels) > 1:
            part.set_title(panel.title, loc="left")
        part.grid(visible=False, axis="y")
        part.spines["left"].set_visible(False)
        part.tick_params(axis="y", length=0)
        part.set_xlabel("time over that of the fastest")
    parts[0].set_yticks(range(len(rows)), [row.label for row in rows])
    for label, row in zip(parts[0].get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.option is None else "normal")
    parts[0].set_ylim(len(rows) - 0.4, -0.6)
    _scale(parts[0], panels, margin)


def _row(axes: Axes, index: int, row: Row, panel: Panel, number: int) -> None:
    if row.option is None:
        return
    if row.option == panel.taken:
        axes.axhspan(index - 0.45, index + 0.45, color=BETTER, alpha=0.18, linewidth=0)
    text, marker, colour = _look(panel, row.option)
    axes.annotate(text, (1.02, index), xycoords=("axes fraction", "data"), ha="left", va="center", fontsize=8,
                  color=INK if colour == OPEN else colour, annotation_clip=False)  # fmt: skip
    found = panel.at.options.get(row.option)
    if found is None:
        return
    value, high = found.ratio, _end(found)
    inside = PAPER if marker == "o" else colour
    (line,) = axes.plot([value, high], [index] * 2, marker=marker, markevery=[0], color=colour, linewidth=1.6,
                        solid_capstyle="butt", markerfacecolor=inside, markersize=6, markeredgewidth=1.4)  # fmt: skip
    mark(line, 1000 * number + index)


def _end(found: Standing) -> float:
    """What it loses at most, of what may be the best."""
    return found.ratio if found.out or isinstance(found.at_most, str) else max(found.at_most, found.ratio)


def _scale(axes: Axes, panels: Sequence[Panel], margin: float) -> None:
    """Logarithmic, from below the least end of an interval to above the largest."""
    ends = [1 / (1 + 2 * margin), 1 + 2 * margin]
    for panel in panels:
        for found in panel.at.options.values():
            ends += [found.ratio, _end(found)]
    low, high = min(ends) / 1.05, max(ends) * 1.08
    axes.set_xscale("log")
    seen = [[tick for tick in ticks if low <= tick <= high] for ticks in _TICKS]
    ticks = next((ticks for ticks in seen if len(ticks) > 2), seen[-1])
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)


#: From far apart to close together: the first of which an axis has three or more.
_TICKS = (
    (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000, 10000),
    (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4),
    (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5),
)
