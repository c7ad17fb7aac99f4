"""The difference between two sides with its interval, a row for each benchmark and its parameters (forest plot)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.analysis.compare import Comparison
from collbench.report.page.drawing import BETTER, FAINT, INK, OPEN, PAPER, SERIES, WORSE, Figure, draw, mark
from collbench.report.suites import signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Row:
    """A benchmark with its parameters; without comparison the heading of a suite, or what was not compared."""

    label: str
    comparison: Comparison | None = None
    text: str = ""
    heading: bool = False


#: Of each verdict its word, marker and colour.
_LOOKS = {
    "slower": ("slower", ">", WORSE), "faster": ("faster", "<", BETTER), "same": ("within the margin", "s", SERIES[0]),
    "negligible": ("within the margin", "s", SERIES[0]), "inconclusive": ("undecided", "o", OPEN),
}  # fmt: skip

#: Beyond so many margins the axis is logarithmic, where a difference lies beyond twice as many.
LINEAR = 5

WIDTH, ROW, FRAME = 10.0, 0.235, 1.1


def forest(rows: Sequence[Row], margin: float, title: str, name: str) -> Figure:
    """`margin` is a share; the differences are in time, in per cent."""
    log = _is_logarithmic(rows, margin)
    caption = (
        f"Difference in time, positive: slower. Whiskers: 95 % interval; grey band: the margin, ±{margin * 100:g} %. "
        "Triangle to the right: slower; to the left: faster; square: the whole interval is within the margin; circle: "
        f"undecided.{f' Beyond ±{LINEAR * margin * 100:g} % the axis is logarithmic.' if log else ''}"
    )
    values = "; ".join(f"{row.label}: {told(row)}" for row in rows if not row.heading)
    size = (WIDTH, FRAME + ROW * len(rows))
    return draw(name, title, caption, lambda axes: _paint(axes, rows, margin, log), size, values)


def told(row: Row) -> str:
    """`+6.1 % (+5.2 .. +6.8), slower`."""
    comparison = row.comparison
    if comparison is None or comparison.ratio is None:
        return row.text or "not compared"
    ends = comparison.ratio.interval
    span = f" ({' .. '.join(map(signed, ends))})" if ends else ""
    return f"{signed(comparison.ratio.value)} %{span}, {_LOOKS[comparison.verdict][0]}"


def _differences(row: Row) -> list[float]:
    """In per cent: the difference, and the ends of its interval."""
    if row.comparison is None or row.comparison.ratio is None:
        return []
    ratio = row.comparison.ratio
    return [(value - 1) * 100 for value in (ratio.value, *(ratio.interval or ()))]


def _farthest(rows: Sequence[Row]) -> float:
    return max((abs(value) for row in rows for value in _differences(row)), default=0.0)


def _is_logarithmic(rows: Sequence[Row], margin: float) -> bool:
    return _farthest(rows) > 2 * LINEAR * margin * 100


def _paint(axes: Axes, rows: Sequence[Row], margin: float, log: bool) -> None:
    axes.axvspan(-margin * 100, margin * 100, color=FAINT, alpha=0.45, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.8)
    for number, row in enumerate(rows):
        _row(axes, number, row)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.heading else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    _scale(axes, rows, margin * 100, log)
    axes.set_xlabel("difference in time (%)")


def _row(axes: Axes, number: int, row: Row) -> None:
    if row.heading:
        return
    values = _differences(row)
    verdict = "" if row.comparison is None else row.comparison.verdict
    _, marker, colour = _LOOKS.get(verdict, ("", "", INK))
    axes.annotate(told(row), (1.015, number), xycoords=("axes fraction", "data"), ha="left", va="center", fontsize=8,
                  color=INK if colour == OPEN else colour, annotation_clip=False)  # fmt: skip
    if not values:
        return
    if len(values) == 3:
        axes.plot(values[1:], [number] * 2, color=colour, linewidth=1.6, solid_capstyle="butt")
    inside = PAPER if marker == "o" else colour
    (point,) = axes.plot(values[:1], [number], marker, color=colour, markerfacecolor=inside, markersize=6,
                         markeredgewidth=1.4)  # fmt: skip
    mark(point, number)


def _scale(axes: Axes, rows: Sequence[Row], margin: float, log: bool) -> None:
    """`margin` in per cent. Symmetrical, unless one side would be empty beyond the margin."""
    values = [value for row in rows for value in _differences(row)]
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
