"""Pictures of an answer, as forest plots: what every option takes over the best, and how every benchmark differs.

A row for each thing compared, with a point, a line and words; panels side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from collbench.analysis.advise import AtSize
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.report.advice import Advised, at, slowdown
from collbench.report.headings import in_place_order
from collbench.report.numbers import digits
from collbench.report.page.render import BETTER, FAINT, INK, OPEN, PAPER, SERIES, WORSE, Figure, Painter, draw, mark
from collbench.report.verdict import cell_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches that a row, and what is above and below the rows, are high.
ROW, FRAME = 0.24, 1.2


@dataclass(frozen=True)
class PanelRow:
    """A row in one panel: `words` at the edge, a marker at `value`, a line over `ends`; a row to take is shaded."""

    words: str
    marker: str = ""
    colour: str = INK
    value: float | None = None
    ends: tuple[float, float] | None = None
    taken: bool = False


def _paint_forest(
    axes: Axes, labels: Sequence[str], panels: Sequence[tuple[str, Sequence[PanelRow | None]]], equal: float,
    band: tuple[float, float], axis: str, scale: Painter,
) -> None:  # fmt: skip
    """On `panels` in place of these axes: by title an entry for each label, None where the label is a heading.

    `equal`: where both sides are equal, `band`: the margin around that, `axis`: what the values are, `scale`: makes the
    horizontal axis, which panels share.
    """
    figure = axes.figure
    axes.remove()
    parts = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for number, (part, (title, entries)) in enumerate(zip(parts, panels, strict=True)):
        part.patch.set_alpha(0)
        part.axvspan(*band, color=FAINT, alpha=0.45, linewidth=0)
        part.axvline(equal, color=INK, linewidth=0.8)
        for index, entry in enumerate(entries):
            if entry is not None:
                _entry(part, index, entry, 1000 * number + index)
        if len(panels) > 1:
            part.set_title(title, loc="left")
        part.grid(visible=False, axis="y")
        part.spines["left"].set_visible(False)
        part.tick_params(axis="y", length=0)
        part.set_xlabel(axis)
    first = parts[0]
    first.set_yticks(range(len(labels)), labels)
    for label, entry in zip(first.get_yticklabels(), panels[0][1], strict=True):
        label.set_fontweight("bold" if entry is None else "normal")
    first.set_ylim(len(labels) - 0.4, -0.6)
    scale(first)


def _entry(axes: Axes, index: int, entry: PanelRow, number: int) -> None:
    if entry.taken:
        axes.axhspan(index - 0.45, index + 0.45, color=BETTER, alpha=0.18, linewidth=0)
    axes.annotate(entry.words, (1.015, index), xycoords=("axes fraction", "data"), ha="left", va="center", fontsize=8,
                  color=INK if entry.colour == OPEN else entry.colour, annotation_clip=False)  # fmt: skip
    if entry.value is None:
        return
    low, high = entry.ends or (entry.value, entry.value)
    inside = PAPER if entry.marker == "o" else entry.colour
    (line,) = axes.plot([low, entry.value, high], [index] * 3, marker=entry.marker, markevery=[1], color=entry.colour,
                        linewidth=1.6, solid_capstyle="butt", markerfacecolor=inside, markersize=6,
                        markeredgewidth=1.4)  # fmt: skip
    mark(line, number)


#: Panels side by side, and rows: of more options the ones that cost least are drawn. Inches.
MOST_PANELS, MOST_ROWS, WIDTH = 3, 30, 12.0

_CAPTION = (
    "Square: may be the best; its line ends at the most that it may lose, with 95 % confidence. Triangle: another is "
    "faster. Shaded: the option to take. Grey band: ±{margin:g} %."
)


class Panel(NamedTuple):
    """An operation at one size, and the option to take there; None without bounds."""

    title: str
    question: Question
    at: AtSize
    taken: Option | None

    def row(self, option: Option) -> PanelRow:
        result, is_taken = self.at.options.get(option), option == self.taken
        if result is None:
            return PanelRow("failed" if option in self.at.failing else "not compared", taken=is_taken)
        value, bound = result.ratio, result.at_most
        if result.out:
            return PanelRow(f"{digits(value)}x", ">", WORSE, value, (value, value), is_taken)
        if isinstance(bound, str):
            return PanelRow(f"{digits(value)}x, no bound", "o", OPEN, value, (value, value), is_taken)
        return PanelRow(f"at most {slowdown(bound)}", "s", SERIES[0], value, (value, max(bound, value)), is_taken)


def choices(advices: Sequence[Advised], margin: float, name: str) -> tuple[Figure, ...]:
    """Of several operations at their largest sizes, of a single one at its sizes; none where nothing was compared."""
    chosen = [advised for advised in advices if len(advised.advice.question.options) > 1 and advised.advice.sizes]
    panels = _panels(chosen)
    if not panels:
        return ()
    rows = _rows(panels)
    drawn = [(panel.title, [panel.row(option) if option else None for _, option in rows]) for panel in panels]
    ends = [1 / (1 + 2 * margin), 1 + 2 * margin]
    ends += [end for _, entries in drawn for entry in entries if entry is not None for end in entry.ends or ()]
    paint = partial(_paint_forest, labels=[label for label, _ in rows], panels=drawn, equal=1.0,
                    band=(1 / (1 + margin), 1 + margin), axis="time over that of the fastest",
                    scale=partial(_scale_of_ratios, low=min(ends), high=max(ends)))  # fmt: skip
    title = f"What every option takes{f' {panels[0].title}' if len(panels) == 1 else ''}"
    options = [option for _, option in rows if option]
    values = "; ".join(
        f"{panel.title}: {', '.join(f'{panel.question.name(option)} {panel.row(option).words}' for option in options)}"
        for panel in panels
    )
    caption, size = _CAPTION.format(margin=margin * 100), (WIDTH, FRAME + ROW * len(rows))
    return (draw(name, title, caption, paint, size, values),)


def _panels(advices: Sequence[Advised]) -> list[Panel]:
    of_sizes = [
        [Panel(f"{advised.title}{at(advised.advice.question, size.size)}", advised.advice.question, size,
               of.option if size.known else None)
         for of in advised.advice.ranges for size in of.sizes]
        for advised in advices[:MOST_PANELS]
    ]  # fmt: skip
    if len(of_sizes) != 1:
        return [panels[-1] for panels in of_sizes]
    [panels] = of_sizes
    step = max(1, -(-(len(panels) - 1) // (MOST_PANELS - 1)))
    return [*panels[:-1:step], panels[-1]][-MOST_PANELS:]


def _rows(panels: Sequence[Panel]) -> list[tuple[str, Option | None]]:
    """By library, from the least isolated place to the most; the name of a library is a row of its own."""
    names = {option: panel.question.name(option) for panel in panels for option in panel.question.options}

    def cost(option: Option) -> float:
        return min(of.ratio if (of := panel.at.options.get(option)) else math.inf for panel in panels)

    ordered = in_place_order(sorted(names, key=cost)[:MOST_ROWS])
    if not all(names[option].startswith(f"{option['library']}, ") for option in ordered):
        return [(names[option], option) for option in ordered]
    rows: list[tuple[str, Option | None]] = []
    for library in dict.fromkeys(option["library"] for option in ordered):
        same = (option for option in ordered if option["library"] == library)
        rows += [(library, None), *((names[option].removeprefix(f"{library}, "), option) for option in same)]
    return rows


def _scale_of_ratios(axes: Axes, low: float, high: float) -> None:
    """Logarithmic, from below the least end of a line to above the largest."""
    low, high = low / 1.05, high * 1.08
    axes.set_xscale("log")
    visible = [[tick for tick in ticks if low <= tick <= high] for ticks in _TICKS]
    ticks = next((ticks for ticks in visible if len(ticks) > 2), visible[-1])
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)


#: From far apart to close together: the first of which an axis has three or more.
_TICKS = (
    (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000, 10000),
    (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4),
    (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5),
)


@dataclass(frozen=True)
class BenchmarkRow:
    """A benchmark with its parameters; without comparison the heading of a suite, or what was not compared."""

    label: str
    comparison: Comparison | None = None
    heading: bool = False

    @property
    def words(self) -> str:
        """`slower +6 % (+5 to +7 %)`."""
        return "not compared" if self.comparison is None else cell_text(self.comparison)

    @property
    def entry(self) -> PanelRow | None:
        """Differences in per cent; None for a heading."""
        if self.heading:
            return None
        if self.comparison is None:
            return PanelRow(self.words)
        ratio, (marker, colour) = self.comparison.ratio, _LOOKS.get(self.comparison.verdict, ("", INK))
        if ratio is None:
            return PanelRow(self.words, marker, colour)
        value, *ends = ((end - 1) * 100 for end in (ratio.value, *(ratio.interval or ())))
        return PanelRow(self.words, marker, colour, value, (ends[0], ends[1]) if ends else None)


#: Of each verdict its marker and colour.
_LOOKS = {"slower": (">", WORSE), "faster": ("<", BETTER), "same": ("s", SERIES[0]), "unclear": ("o", OPEN)}

#: Beyond so many margins the axis is logarithmic, where a difference lies beyond twice as many. Inches.
LINEAR, NARROWER = 5, 10.0


def benchmarks(rows: Sequence[BenchmarkRow], margin: float, title: str, name: str) -> Figure:
    """How every benchmark differs in time; `margin` is a share."""
    entries, percent = [row.entry for row in rows], margin * 100
    values = [value for entry in entries if entry is not None and entry.value is not None
              for value in (entry.value, *(entry.ends or ()))]  # fmt: skip
    log = 0 < 2 * LINEAR * percent < max(map(abs, values), default=0.0)
    caption = (
        f"Positive: slower. Whiskers: 95 % interval; grey band: the margin, ±{percent:g} %. Triangle to the right: "
        "slower; to the left: faster; square: the same, within the margin; circle: unclear."
        f"{f' Beyond ±{LINEAR * percent:g} % the axis is logarithmic.' if log else ''}"
    )
    paint = partial(_paint_forest, labels=[row.label for row in rows], panels=[("", entries)], equal=0.0,
                    band=(-percent, percent), axis="difference in time (%)",
                    scale=partial(_scale_of_differences, values=values, margin=percent, log=log))  # fmt: skip
    texts = "; ".join(f"{row.label}: {row.words}" for row in rows if not row.heading)
    return draw(name, title, caption, paint, (NARROWER, FRAME + ROW * len(rows)), texts)


def _scale_of_differences(axes: Axes, values: Sequence[float], margin: float, log: bool) -> None:
    """All in per cent. Symmetrical, unless one side would be empty beyond the margin."""
    reach = 1.3 if log else 1.15
    low = -max(2 * margin, -min(values, default=0.0)) * reach
    high = max(2 * margin, max(values, default=0.0)) * reach
    if log:
        linear = LINEAR * margin
        axes.set_xscale("symlog", linthresh=linear, linscale=0.8)
        steps = [margin, linear, *(step for step in (10, 30, 100, 300, 1000, 10000) if step > 2 * linear)]
        ticks = [-step for step in reversed(steps) if step <= -low] + [0.0] + [step for step in steps if step <= high]
        axes.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")
    axes.set_xlim(low, high)
