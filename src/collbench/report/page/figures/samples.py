"""Every sample, launch by launch: read from the files of a run when a plot needs them, not from its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.options import Question
from collbench.analysis.runs import Observed
from collbench.errors import RunReadError
from collbench.report.page.drawing import INK, Figure, draw, mark, time_axis
from collbench.schema.case import Case
from collbench.schema.samples import SampleFiles
from collbench.units import counted, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

#: Samples in seconds, by launch.
SamplesByLaunch = dict[int, "NDArray[np.float64]"]

#: Samples that one plot takes (8 bytes each): of more than that it draws every second, every third, and so on.
MOST_DRAWN = 1 << 20


@dataclass(frozen=True)
class PlottedSamples:
    """Valid samples in seconds of each named case, by launch: every `step`-th. `unread` files could not be read."""

    samples: dict[str, SamplesByLaunch]
    unread: int
    step: int


class StoredSamples:
    """The samples files of what was observed. Use as a context manager: an archive stays open for the next plot."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._files: SampleFiles | None = None

    def of(self, cells: Mapping[str, Case], most: int = MOST_DRAWN) -> PlottedSamples:
        """The samples of each named case; a case without any has no entry. Needs the memory of `most` and of a file."""
        stored = [(name, case, file) for name, case in cells.items() for file in self._observed.sample_files(case)]
        step = max(-(-sum(file.n for *_, file in stored) // most), 1)
        samples: dict[str, SamplesByLaunch] = {}
        unread = 0
        for name, case, file in sorted(stored, key=lambda one: one[-1].launch):  # one run after the other
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
        return self._files

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None

    def __enter__(self) -> StoredSamples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: The most sizes whose samples are drawn: more make a page too large for browsers.
MOST_STRIPS = 6


def strips(stored: StoredSamples, question: Question, name: str, title: str) -> list[Figure]:
    """One for each size, or for `MOST_STRIPS` of them: a column for each place, its launches from left to right."""
    figures = []
    for number, size in enumerate(question.sizes[:: -(-len(question.sizes) // MOST_STRIPS)]):
        ordered = sorted(question.cells[size], key=lambda option: (option["library"], option.isolation_order, option))
        kept = stored.of({question.name(option): question.cells[size][option].case for option in ordered})
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
                            partial(_paint, places=kept.samples), (width, 3.6)))  # fmt: skip
    return figures


#: The dots become one bitmap, which a style sheet cannot colour: these two are visible on light and on dark.
_DOTS = ("#3b82c4", "#c2783a")


def _paint(axes: Axes, places: Mapping[str, SamplesByLaunch]) -> None:
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
