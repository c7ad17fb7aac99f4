"""Forest plots: a row for each thing compared, with a point, a line and words; panels side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.report.page.drawing import BETTER, FAINT, INK, OPEN, PAPER, Figure, draw, mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches that a row, and what is above and below the rows, are high.
ROW, FRAME = 0.24, 1.2


@dataclass(frozen=True)
class Entry:
    """A row in one panel: `words` at the edge, a marker at `value`, a line over `ends`; a row to take is shaded."""

    words: str
    marker: str = ""
    colour: str = INK
    value: float | None = None
    ends: tuple[float, float] | None = None
    taken: bool = False


@dataclass(frozen=True)
class Forest:
    """`panels`: by title an entry for each label, None where the label is a heading.

    `equal`: where both sides are equal, `band`: the margin around that, `axis`: what the values are, `scale`: makes the
    horizontal axis, which panels share.
    """

    labels: Sequence[str]
    panels: Sequence[tuple[str, Sequence[Entry | None]]]
    equal: float
    band: tuple[float, float]
    axis: str
    scale: Callable[[Axes], None]

    def figure(self, name: str, title: str, caption: str, width: float, values: str) -> Figure:
        """`width` in inches; `values` in words."""
        return draw(name, title, caption, self.paint, (width, FRAME + ROW * len(self.labels)), values)

    def paint(self, axes: Axes) -> None:
        """On panels in place of these axes."""
        figure = axes.figure
        axes.remove()
        parts = figure.subplots(1, len(self.panels), sharex=True, sharey=True, squeeze=False)[0]
        for number, (part, (title, entries)) in enumerate(zip(parts, self.panels, strict=True)):
            part.patch.set_alpha(0)
            part.axvspan(*self.band, color=FAINT, alpha=0.45, linewidth=0)
            part.axvline(self.equal, color=INK, linewidth=0.8)
            for index, entry in enumerate(entries):
                if entry is not None:
                    _entry(part, index, entry, 1000 * number + index)
            if len(self.panels) > 1:
                part.set_title(title, loc="left")
            part.grid(visible=False, axis="y")
            part.spines["left"].set_visible(False)
            part.tick_params(axis="y", length=0)
            part.set_xlabel(self.axis)
        first = parts[0]
        first.set_yticks(range(len(self.labels)), self.labels)
        for label, entry in zip(first.get_yticklabels(), self.panels[0][1], strict=True):
            label.set_fontweight("bold" if entry is None else "normal")
        first.set_ylim(len(self.labels) - 0.4, -0.6)
        self.scale(first)


def _entry(axes: Axes, index: int, entry: Entry, number: int) -> None:
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
