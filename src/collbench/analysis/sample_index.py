"""Which samples files the records of a run name, so that plots need not read the records again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from collbench.schema.case import Case
from collbench.schema.record import Record


class NamedFile(NamedTuple):
    """A samples file: the launch of its record, its name there, and how many samples the record says it holds."""

    launch: int
    name: str
    n: int


@dataclass(slots=True)
class _Files:
    """Those of a case: 16 bytes for each file that has collbench's own name; other names are kept."""

    key: str
    launches: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    other_names: dict[int, str] = field(default_factory=dict)


class SampleIndex:
    """The samples files of the measured cases of a run."""

    def __init__(self) -> None:
        self._of: dict[Case, _Files] = {}

    def add(self, record: Record) -> None:
        if record.samples is None or record.samples.file is None:
            return
        files = self._of.get(record.case)
        if files is None:
            files = self._of[record.case] = _Files(record.case.key)
        if record.samples.file != _usual(files.key, record.launch):
            files.other_names[len(files.launches)] = record.samples.file
        files.launches.append(record.launch)
        files.counts.append(record.samples.n)

    def of(self, case: Case) -> Iterator[NamedFile]:
        """The files of a case, in the order of the records."""
        files = self._of.get(case)
        if files is not None:
            for number, (launch, n) in enumerate(zip(files.launches, files.counts, strict=True)):
                yield NamedFile(launch, files.other_names.get(number) or _usual(files.key, launch), n)


def _usual(key: str, launch: int) -> str:
    """The name that `RunWriter` gives a samples file."""
    return f"samples/{key}-{launch}.npy"
