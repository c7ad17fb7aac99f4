"""The samples of a run's cells, read again from its files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collbench.analysis.observations import Observed
from collbench.errors import RunReadError
from collbench.report.page.figures.strips import Launches
from collbench.schema.case import Case
from collbench.schema.store import RecordStream, read_samples


def samples_of(observed: Observed, cells: Mapping[str, Case]) -> dict[str, Launches]:
    """Valid samples in seconds of each named case, by launch. What has no file, or a damaged one, is left out."""
    names = {case: name for name, case in cells.items()}
    found: dict[str, Launches] = {name: {} for name in cells}
    for first, folder in observed.folders:
        for record in RecordStream(folder):
            if record.case not in names or record.status != "ok":
                continue
            try:
                matrix = read_samples(folder, record)
            except RunReadError:
                continue
            largest = np.empty(0) if matrix is None or not matrix.size else matrix.max(axis=0)
            valid = largest[largest > 0] * 1e-9
            if len(valid):
                found[names[record.case]][first + record.launch] = valid
    return {name: dict(sorted(launches.items())) for name, launches in found.items() if launches}
