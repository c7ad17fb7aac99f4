"""Records checked against their samples files while a run is read: a summary that was changed, a file that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from collbench.analysis.sample_index import SampleIndex
from collbench.errors import RunReadError
from collbench.schema.record import Record
from collbench.schema.sample_files import SampleFiles
from collbench.schema.samples import disagreement

#: For so many records every samples file is opened; beyond that every second, beyond twice as many every fourth, and
#: so on: for a million records some eleven thousand.
EVERY = 2048


class SampleCheck:
    """Passes the records of a run on, and checks samples files on the way.

    `passed` counts the records, `index` holds the samples files of those that were measured.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.passed = self._with_file = self._opened = 0
        self.index = SampleIndex()
        self._problems = Counter[str]()
        self._first: dict[str, str] = {}

    def passing(self, records: Iterable[Record]) -> Iterator[Record]:
        with SampleFiles(self._folder) as files:
            for record in records:
                self.passed += 1
                if record.status == "ok" and record.samples is not None and record.samples.file is not None:
                    if self._with_file % _step(self._with_file) == 0:
                        self._look(record, files)
                    self._with_file += 1
                    self.index.add(record)
                yield record

    def _look(self, record: Record, files: SampleFiles) -> None:
        self._opened += 1
        try:
            samples = files.read(record)
        except RunReadError as error:
            self._count("cannot be read", str(error))
            return
        difference = "" if samples is None else disagreement(record, samples)
        if difference:
            where = f"{record.case.short}, launch {record.launch}"
            self._count("do not agree with their records", f"{where}: {difference}")

    def _count(self, what: str, example: str) -> None:
        self._problems[what] += 1
        self._first.setdefault(what, example)

    def lines(self) -> tuple[str, ...]:
        """The problems so far; empty where every file that was opened agrees with its record."""
        some = self._opened < self._with_file
        of = f"of {self._opened} samples files{f' that were opened, of {self._with_file},' if some else ''}"
        return tuple(
            f"{self._folder}: {number} {of} {what} ({self._first[what]})" for what, number in self._problems.items()
        )


def _step(number: int) -> int:
    """1 for the first records, then the powers of two that keep the number of files growing with the logarithm."""
    return 1 << (number // EVERY).bit_length()
