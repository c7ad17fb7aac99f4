"""A run on disk as one value, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collbench.schema.case import Case
from collbench.schema.manifest import Manifest, read_manifest
from collbench.schema.record import Record
from collbench.schema.samples import SampleFiles
from collbench.schema.store import RecordStream


@dataclass(frozen=True)
class Run:
    """A run as read. `truncated` says that the last line was cut off and left out."""

    directory: Path
    manifest: Manifest
    records: tuple[Record, ...]
    truncated: bool = False

    def samples(self, record: Record) -> NDArray[np.int64] | None:
        with SampleFiles(self.directory) as files:
            return files.read(record)

    def find(self, case: Case, launch: int = 0) -> Record | None:
        return next((r for r in self.records if r.case == case and r.launch == launch), None)


def read_run(directory: Path) -> Run:
    manifest, stream = read_manifest(directory), RecordStream(directory)
    return Run(directory, manifest, tuple(stream), stream.truncated)
