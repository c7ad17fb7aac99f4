"""Every sample, launch by launch: what medians and intervals hide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from collbench.report.page.drawing import INK, Figure, draw, mark, time_axis
from collbench.units import counted, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

#: Samples in seconds, by launch.
Launches = dict[int, "NDArray[np.float64]"]

#: The dots become one bitmap, which a style sheet cannot colour: these two are visible on light and on dark.
_DOTS = ("#3b82c4", "#c2783a")


def strip(places: Mapping[str, Launches], size: int, name: str, title: str) -> Figure:
    """A column for each place, with the launches from left to right; late samples are left out."""
    total = sum(len(values) for launches in places.values() for values in launches.values())
    caption = (
        f"{total} samples of {counted(sum(map(len, places.values())), 'launch', 'launches')}; neighbouring launches "
        "have different colours, a bar marks the median of each launch."
    )
    width = min(max(4.8, 0.75 * len(places) + 1.2), 12.0)
    at = f" at {format_size(size)}" if size else ""
    return draw(f"{name}-samples", f"{title}{at}: every sample", caption,
                lambda axes: _paint(axes, places), (width, 3.6))  # fmt: skip


def _paint(axes: Axes, places: Mapping[str, Launches]) -> None:
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
    axes.set_xticks(range(len(places)), [label.replace(", ", "\n").replace(" ", "\n") for label in places])
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=False, axis="x")
    time_axis(axes)
