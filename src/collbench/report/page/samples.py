"""The samples of a run's cells, read from its files when a plot needs them; its records are not read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.analysis.options import Question
from collbench.analysis.runs import Observed
from collbench.errors import RunReadError
from collbench.report.page.drawing import Figure
from collbench.report.page.figures.curves import Launches, strip
from collbench.report.tables import Table
from collbench.schema.case import Case
from collbench.schema.sample_files import SampleFiles

#: Samples that one plot takes (8 bytes each): of more than that it draws every second, every third, and so on.
MOST_DRAWN = 1 << 20


@dataclass(frozen=True)
class PlottedSamples:
    """Valid samples in seconds of each named case, by launch: every `step`-th. `unread` files could not be read."""

    samples: dict[str, Launches]
    unread: int
    step: int


class StoredSamples:
    """The samples files of what was observed. Use as a context manager: an archive stays open for the next plot."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._files: SampleFiles | None = None

    def of(self, cells: Mapping[str, Case], most: int = MOST_DRAWN) -> PlottedSamples:
        """The samples of each named case; a case without any has no entry. Needs the memory of `most` and of a file."""
        observed = self._observed
        total = sum(file.n for index in observed.samples for case in cells.values() for file in index.of(case))
        step = max(-(-total // most), 1)
        samples: dict[str, Launches] = {name: {} for name in cells}
        unread = 0
        for (first, folder), index in zip(observed.folders, observed.samples, strict=True):
            files = self._files_of(folder)
            for name, case in cells.items():
                for launch, file, n in index.of(case):
                    try:
                        largest = files.read_file(file, case.where.ranks, n).max(axis=0)
                    except RunReadError:
                        unread += 1
                        continue
                    samples[name][first + launch] = largest[largest > 0][::step] * 1e-9
        named = {name: dict(sorted(launches.items())) for name, launches in samples.items() if launches}
        return PlottedSamples(named, unread, step)

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
    """One for each size, or for `MOST_STRIPS` of them."""
    sizes = question.sizes
    step = -(-len(sizes) // MOST_STRIPS)
    figures = []
    for number, size in enumerate(sizes[::step]):
        ordered = sorted(question.cells[size], key=lambda option: (option["library"], option.isolation_order, option))
        cells = {question.name(option): question.cells[size][option].case for option in ordered}
        kept = stored.of(cells)
        if kept.samples:
            drawn = strip(kept.samples, size, f"{name}-{number}", title)
            thinned = f" One in {kept.step} of the samples is drawn." if kept.step > 1 else ""
            lacking = f" {kept.unread} samples files cannot be read and are left out." if kept.unread else ""
            figures.append(replace(drawn, caption=drawn.caption + thinned + lacking))
    return figures


@dataclass(frozen=True)
class Section:
    """One operation on all its numbers of ranks, or one kind of table. `fold`: the line above what is folded."""

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    folded: tuple[Figure, ...] = ()
    folded_tables: tuple[Table, ...] = ()
    fold: str = ""
