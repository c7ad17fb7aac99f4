"""The isolation ladder as a waterfall: what each step adds to the time on the host, or gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collbench.analysis.estimate import centre
from collbench.analysis.options import Option, Question
from collbench.report.page.drawing import BETTER, INK, SERIES, WORSE, Figure, draw, mark
from collbench.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Step = tuple[str, float]


def waterfalls(question: Question, size: int, name: str, title: str) -> list[Figure]:
    """A plot for each library that was measured at three places or more, from the least isolated to the most."""
    figures = []
    libraries = sorted({(option["library"], option["driver"]) for option in question.options})
    for number, library in enumerate(libraries):
        steps = _steps(question, size, library)
        if len(steps) > 2:
            values = "; ".join(f"{place} {format_duration(time)}" for place, time in steps)
            figures.append(
                draw(f"{name}-ladder-{number}", f"{title} at {format_size(size)}: the ladder, {library[0]}",
                     "Each bar goes from the time of the place before to its own; below it, times the first.",
                     lambda axes, steps=steps: _paint(axes, steps), (7.2, 3.3), values)  # type: ignore[misc]
            )  # fmt: skip
    return figures


def _steps(question: Question, size: int, library: tuple[str, str]) -> list[Step]:
    """Places and medians (s) of one library, its other factors as they come first."""
    chosen: dict[tuple[str, str], Option] = {}
    for option in sorted(question.cells.get(size, {}), key=lambda one: (one.isolation_order, one)):
        if (option["library"], option["driver"]) == library and question.cells[size][option].medians:
            chosen.setdefault((option["policy"], option["isolation"]), option)
    return [
        (" ".join(place).strip(), centre(question.cells[size][option].medians).value)
        for place, option in chosen.items()
    ]


def _paint(axes: Axes, steps: list[Step]) -> None:
    from matplotlib.ticker import FuncFormatter

    before = 0.0
    for index, (_, time) in enumerate(steps):
        low, high = min(before, time), max(before, time)
        colour = SERIES[0] if index == 0 else WORSE if time > before else BETTER
        (bar,) = axes.bar(index, high - low, 0.7, bottom=low, color=colour, linewidth=0)
        mark(bar, index)
        axes.plot(
            [index - 0.35, index + (1.35 if index + 1 < len(steps) else 0.35)], [time, time], color=INK, linewidth=0.7
        )
        said = format_duration(time) if index == 0 else f"{format_duration(time)}\n{time / steps[0][1]:.2g}x"
        axes.annotate(said, (index, high), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=7)
        before = time
    axes.set_xticks(range(len(steps)), [place.replace(" ", "\n") for place, _ in steps])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, max(time for _, time in steps) * 1.18)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value)))
    axes.set_ylabel("time")
