"""The picture of an answer: what every option takes over the best one, with bounds and the margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collbench.analysis.advise import AtSize
from collbench.analysis.options import Option, Question
from collbench.report.advice import Advised, at, slowdown
from collbench.report.cells import digits
from collbench.report.page.drawing import OPEN, SERIES, WORSE, Figure
from collbench.report.page.figures.forest import Entry, Forest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Panels side by side, and rows: of more options the ones that cost least are drawn. Inches.
MOST_PANELS, MOST_ROWS, WIDTH = 3, 30, 12.0

_CAPTION = (
    "Square: may be the best; its line ends at the most that it may lose, with 95 % confidence. Triangle: another is "
    "faster. Shaded: the option to take. Grey band: ±{margin:g} %."
)


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
    drawn = [(panel.title, [None if option is None else _entry(panel, option) for _, option in rows])
             for panel in panels]  # fmt: skip
    ends = [1 / (1 + 2 * margin), 1 + 2 * margin]
    ends += [end for _, entries in drawn for entry in entries if entry is not None for end in entry.ends or ()]
    forest = Forest([label for label, _ in rows], drawn, 1.0, (1 / (1 + margin), 1 + margin),
                    "time over that of the fastest", lambda axes: _scale(axes, min(ends), max(ends)))  # fmt: skip
    title = f"What every option takes{f' {panels[0].title}' if len(panels) == 1 else ''}"
    values = "; ".join(f"{panel.title}: {_in_words(panel, rows)}" for panel in panels)
    return (forest.figure(name, title, _CAPTION.format(margin=margin * 100), WIDTH, values),)


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


def _rows(panels: Sequence[Panel]) -> list[tuple[str, Option | None]]:
    """By library, from the least isolated place to the most; the name of a library is a row of its own."""
    names = {option: panel.question.name(option) for panel in panels for option in panel.question.options}
    known = sorted(names, key=lambda option: min(_cost(panel, option) for panel in panels))[:MOST_ROWS]
    ordered = sorted(known, key=lambda option: (option["library"], option.isolation_order, option))
    if not all(names[option].startswith(f"{option['library']}, ") for option in ordered):
        return [(names[option], option) for option in ordered]
    rows: list[tuple[str, Option | None]] = []
    for library in dict.fromkeys(option["library"] for option in ordered):
        own = (option for option in ordered if option["library"] == library)
        rows += [(library, None), *((names[option].removeprefix(f"{library}, "), option) for option in own)]
    return rows


def _cost(panel: Panel, option: Option) -> float:
    found = panel.at.options.get(option)
    return float("inf") if found is None else found.ratio


def _entry(panel: Panel, option: Option) -> Entry:
    found, taken = panel.at.options.get(option), option == panel.taken
    if found is None:
        return Entry("failed" if option in panel.at.failing else "not compared", taken=taken)
    value = found.ratio
    if found.out:
        return Entry(f"{digits(value)}x", ">", WORSE, value, (value, value), taken)
    if isinstance(found.at_most, str):
        return Entry(f"{digits(value)}x, no bound", "o", OPEN, value, (value, value), taken)
    return Entry(f"at most {slowdown(found.at_most)}", "s", SERIES[0], value, (value, max(found.at_most, value)), taken)


def _in_words(panel: Panel, rows: Sequence[tuple[str, Option | None]]) -> str:
    return ", ".join(f"{panel.question.name(option)} {_entry(panel, option).words}" for _, option in rows if option)


def _scale(axes: Axes, low: float, high: float) -> None:
    """Logarithmic, from below the least end of a line to above the largest."""
    low, high = low / 1.05, high * 1.08
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
