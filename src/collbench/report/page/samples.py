"""The samples of a run's cells, read from its files when a plot needs them; its records are not read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.analysis.observations import Observed
from collbench.errors import RunReadError
from collbench.report.page.figures.strips import Launches
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
