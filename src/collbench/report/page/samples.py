"""The samples of a run's cells, read again from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collbench.analysis.observations import Observed
from collbench.errors import RunReadError
from collbench.report.page.figures.strips import Launches
from collbench.schema.case import Case
from collbench.schema.sample_files import SampleFiles
from collbench.schema.store import RecordStream


@dataclass(frozen=True)
class PlottedSamples:
    """Valid samples in seconds of each named case, by launch; `unread` files could not be read."""

    samples: dict[str, Launches]
    unread: int


def samples_of(observed: Observed, cells: Mapping[str, Case]) -> PlottedSamples:
    """The samples of each named case; a case without any has no entry."""
    names = {case: name for name, case in cells.items()}
    found: dict[str, Launches] = {name: {} for name in cells}
    unread = 0
    for first, folder in observed.folders:
        with SampleFiles(folder) as files:
            for record in RecordStream(folder):
                if record.case not in names or record.status != "ok":
                    continue
                try:
                    matrix = files.read(record)
                except RunReadError:
                    unread += 1
                    continue
                if matrix is not None:
                    largest = matrix.max(axis=0)
                    found[names[record.case]][first + record.launch] = largest[largest > 0] * 1e-9
    return PlottedSamples(
        {name: dict(sorted(launches.items())) for name, launches in found.items() if launches}, unread
    )
