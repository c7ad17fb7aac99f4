"""Runs as they are read: their cells, what they lack, whether two names hold the same launches; and baselines.

Records are read one after the other and only what is used is kept. A baseline is what a run measured, small enough to
keep beside the code, and exact enough to compare with later.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from collbench.analysis.results import Builder, Cell, Extra, Facts, Origin, grouped, origin_of, some_from, usual_file
from collbench.errors import RequestError, RunReadError, RunWriteError, in_one_line
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.files import Count, FigureValue, ShortText, decode_as, is_being_written, read_whole
from collbench.schema.manifest import Manifest, read_manifest
from collbench.schema.record import Record, Time, Work
from collbench.schema.samples import SampleFiles, disagreement
from collbench.schema.store import RecordStream


class NamedFile(NamedTuple):
    """A samples file: its run, the launch of its record, its name in the run, and how many samples the record names."""

    folder: Path
    launch: int
    name: str
    n: int


class Flaw(NamedTuple):
    """What of a run cannot be relied on, at a folder.

    `values` of samples files: how many are so, of how many that were opened, of how many there are, and the first.
    """

    kind: Literal["unreadable", "disagreeing", "no records", "no manifest", "cut off"]
    where: Path
    values: tuple[Any, ...] = ()


class Shortage(NamedTuple):
    """A run lacks launches in so many cells, of those planned; `growing`: it is still being measured."""

    run: Path
    cells: int
    planned: int
    growing: bool


#: For so many records every samples file is opened; beyond that every second, beyond twice as many every fourth, and
#: so on: for a million records some eleven thousand.
EVERY = 2048


class SampleCheck:
    """Passes the records of a run on, counts them (`passed`), and checks samples files on the way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.passed = self._with_file = self._opened = 0
        self._flawed: dict[Literal["unreadable", "disagreeing"], list[str]] = {}

    def passing(self, records: Iterable[Record]) -> Iterator[Record]:
        with SampleFiles(self._folder) as files:
            for record in records:
                self.passed += 1
                if record.status == "ok" and record.samples is not None and record.samples.file is not None:
                    if self._with_file % (1 << (self._with_file // EVERY).bit_length()) == 0:
                        self._look(record, files)
                    self._with_file += 1
                yield record

    def _look(self, record: Record, files: SampleFiles) -> None:
        self._opened += 1
        try:
            samples = files.read(record)
        except RunReadError as error:
            self._flawed.setdefault("unreadable", []).append(str(error))
            return
        if difference := "" if samples is None else disagreement(record, samples):
            where = f"{record.case.short}, launch {record.launch}"
            self._flawed.setdefault("disagreeing", []).append(f"{where}: {difference}")

    def flaws(self) -> list[Flaw]:
        """Those so far; empty where every file that was opened agrees with its record."""
        return [Flaw(kind, self._folder, (len(reasons), self._opened, self._with_file, reasons[0]))
                for kind, reasons in self._flawed.items()]  # fmt: skip


@dataclass(frozen=True)
class Observed:
    """Everything that was read under one name: a run, or a folder of runs of which each is one launch of the same.

    `folders` are the runs, each with the number of its first launch here, `shortages` the launches that are missing.
    `interleaved`: launches of one number were measured close together, in random order.
    """

    name: str
    manifests: tuple[Manifest, ...]
    cells: dict[Case, Cell]
    folders: tuple[tuple[int, Path], ...]
    flaws: tuple[Flaw, ...] = ()
    interleaved: bool = False
    shortages: tuple[Shortage, ...] = ()

    def sample_files(self, case: Case) -> Iterator[NamedFile]:
        """Those of a case, in the order of its launches."""
        cell = self.cells.get(case)
        for launch, (name, n) in cell.files.items() if cell is not None else ():
            first, folder = self.folders[bisect(self.folders, launch, key=lambda entry: entry[0]) - 1]
            yield NamedFile(folder, launch, name or usual_file(case.key, launch - first), n)


def run_folders(path: Path) -> tuple[list[Path], list[Path]]:
    """The run at `path`, or the runs in this folder by name, and its other folders. RunReadError: it cannot be read."""
    try:
        if (path / "manifest.json").exists() or not path.is_dir():
            return [path], []
        inside = sorted(child for child in path.iterdir() if child.is_dir())
        runs = [child for child in inside if (child / "manifest.json").is_file()]
    except OSError as error:
        raise RunReadError(f"{path}: {error.strerror}.") from error
    return runs, [child for child in inside if child not in runs]


def observe(path: Path) -> Observed:
    """The run at `path`, or the runs in this folder by name, each one launch. Raises RunReadError: it is neither."""
    folders, others = run_folders(path)
    if not folders:
        raise RunReadError(f"{path}: neither a run nor a folder of runs (no manifest.json in it or in its folders).")
    observed = gather(path, folders)
    if len(folders) > 1:
        refuse_together((str(folder), manifest) for folder, manifest in zip(folders, observed.manifests, strict=True))
    return replace(observed, flaws=(*observed.flaws, *(Flaw("no manifest", other) for other in others)))


def runs_in(path: Path) -> list[Path]:
    """The runs in a folder of runs of several plans, by name; the path itself where it is no such folder."""
    folders, _ = run_folders(path)
    if len(folders) < 2:
        return [path]
    plans = {msgspec.json.encode(read_manifest(folder).plan, order="sorted") for folder in folders}
    return folders if len(plans) > 1 else [path]


def gather(name: Path, folders: list[Path]) -> Observed:
    """Several runs as one: launch numbers go on from one run to the next."""
    manifests, where, flaws = list[Manifest](), list[tuple[int, Path]](), list[Flaw]()
    builder, first = Builder(), 0
    for folder in folders:
        manifests.append(read_manifest(folder))
        stream, check = RecordStream(folder), SampleCheck(folder)
        where.append((first, folder))
        first = builder.read(check.passing(stream), first, some_from(manifests[-1])) + 1
        flaws += check.flaws()
        if len(folders) > 1 and not check.passed:
            flaws.append(Flaw("no records", folder))
        if stream.truncated:
            flaws.append(Flaw("cut off", folder))
    cells = builder.results(origin_of(manifests, str(name))).cells()
    blocks = len(manifests) == 1 and manifests[0].experiment is not None
    lacking = shortage(folders[0], manifests[0], cells.values()) if blocks else None
    shortages = (lacking,) if lacking is not None and lacking.cells else ()
    return Observed(str(name), tuple(manifests), cells, tuple(where), tuple(flaws), blocks, shortages)


def shortage(run: Path, manifest: Manifest, cells: Iterable[Cell]) -> Shortage:
    """The cells of a run with fewer launches than planned; those that failed or were skipped are not missing.

    Of a run until decided the launches before count, if any: its records do not say whether it ended.
    """
    planned = some_from(manifest)
    if planned is None:
        planned = manifest.experiment.launches if manifest.experiment is not None else 0
    short = sum(len(cell.medians) + cell.failed - cell.lost + cell.skipped < planned for cell in cells)
    return Shortage(run, short, planned, short > 0 and is_being_written(run))


def refuse_together(runs: Iterable[tuple[str, Manifest]]) -> None:
    """Refuse one of several runs, with their names, that ended when its own comparisons were decided (RequestError)."""
    for name, manifest in runs:
        if manifest.experiment is not None and manifest.experiment.until == "decided":
            raise RequestError(
                f"{name} was launched until decided: its own differences ended it, for which a test of several runs "
                "together does not allow. Analyse each run by itself, or compare two of them: collbench compare A B."
            )


class RunSource(NamedTuple):
    """A run on disk: where it was found, as part of what, and when and by which command it was begun."""

    folder: Path
    part_of: str
    created: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.folder) + (f" (in {self.part_of})" if str(self.folder) != self.part_of else "")


def sources(*runs: Observed) -> Iterator[RunSource]:
    """The runs on disk that were read; of a baseline none."""
    for observed in runs:
        for (_, folder), manifest in zip(observed.folders, observed.manifests, strict=False):
            yield RunSource(folder, observed.name, manifest.created, manifest.command)


def refuse_same(of_runs: Iterable[RunSource]) -> None:
    """Raises RequestError where two are the same: begun at one moment by one command, with the same first record."""
    same_start = grouped(((source.created, source.command), source) for source in of_runs)
    by_record: dict[tuple[str, tuple[str, ...], bytes], RunSource] = {}
    for source in (source for alike in same_start.values() if len(alike) > 1 for source in alike):
        first = next((records.encode(record) for record in RecordStream(source.folder) if record.status == "ok"), None)
        other = source if first is None else by_record.setdefault((source.created, source.command, first), source)
        if other is not source:
            raise RequestError(
                f"{other} and {source} hold the same launches: one start, one command, one first measurement. Launches "
                "that count twice look like evidence. Name each run once; for more evidence measure again."
            )


def refuse_own_baseline(baseline: Observed, run: Observed) -> None:
    """Raises RequestError where the baseline was saved of this run: same start, command, and times of a cell."""
    starts = {(manifest.created, manifest.command) for manifest in baseline.manifests}
    if not any((manifest.created, manifest.command) in starts for manifest in run.manifests):
        return
    for case, cell in baseline.cells.items():
        cell_of_run = run.cells.get(case)
        if cell_of_run is not None and cell.medians and cell_of_run.medians[: len(cell.medians)] == cell.medians:
            raise RequestError(
                f"{baseline.name} was saved of {run.name}, so both hold the same launches, and nothing would be "
                "compared. Name a run that was measured later."
            )


VERSION = 1
LARGEST_BASELINE = 256 << 20  # bytes: some three million launches
_BURST = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)  # a number of operations in a sample


class BaselineCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell: its work, median and mean of each launch in seconds, and the ways of measuring, with that of each launch.

    `contended` are launches, and `cpu` has CPU seconds and seconds for a sample of a program, by launch. `repeatable`
    has the values of figures that must come out equal.
    """

    case: Case
    work: Work
    launches: tuple[Count, ...]
    medians: tuple[Time, ...]
    means: tuple[Time, ...]
    how: tuple[tuple[tuple[str, str], ...], ...]
    ways: tuple[Count, ...]
    transports: tuple[str, ...] = ()
    contended: tuple[Count, ...] = ()
    cpu: dict[Count, tuple[Time, Time]] = {}
    repeatable: dict[ShortText, tuple[FigureValue, ...]] = {}


class _Version(msgspec.Struct):
    """What every baseline says."""

    baseline: int


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cells of a run and the manifests they came with."""

    baseline: int
    name: str
    manifests: tuple[Manifest, ...]
    cells: tuple[BaselineCell, ...]


def save_baseline(observed: Observed, path: Path) -> int:
    """Write what was measured as a new baseline, or raise RunWriteError; returns the number of cells."""
    cells = []
    for cell in observed.cells.values():
        if cell.medians:
            how, repeatable = sorted(cell.how), {name: tuple(sorted(of)) for name, of in cell.repeatable.items()}
            cells.append(BaselineCell(
                case=cell.case, work=cell.work, launches=tuple(cell.launches), medians=tuple(cell.medians),
                means=tuple(cell.means), how=tuple(how), ways=tuple(map(how.index, cell.ways)),
                transports=tuple(sorted(cell.transports)), contended=tuple(sorted(cell.contended)), cpu=cell.cpu,
                repeatable=repeatable,
            ))  # fmt: skip
    kept = Baseline(baseline=VERSION, name=in_one_line(observed.name), manifests=observed.manifests, cells=tuple(cells))
    content = msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"
    if len(content) > LARGEST_BASELINE:
        raise RunWriteError(
            f"{path}: the baseline of this run would exceed {LARGEST_BASELINE >> 20} MiB. Keep a part of the run."
        )
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise RunWriteError(f"{path}: exists already. Name a file that does not, or remove it first.") from error
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror}.") from error
    return len(cells)


def load_baseline(path: Path) -> Observed:
    """A baseline as if it were a run; raises RunReadError where it is none of this version."""
    try:
        if path.exists() and not path.is_file():
            raise RunReadError(f"{path}: not a baseline, which is a file that --save-baseline wrote.")
        data = read_whole(path, LARGEST_BASELINE)
        if (version := decode_as(data, _Version).baseline) != VERSION:
            raise RunReadError(f"{path}: a baseline of version {version}; this collbench reads {VERSION}.")
        kept = decode_as(data, Baseline)
    except OSError as error:
        raise RunReadError(f"{path}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunReadError(f"{path}: not a baseline that --save-baseline wrote: {error}") from error
    builder = Builder()
    for stored in kept.cells:
        if stored.case in builder.cases:
            raise RunReadError(f"{path}: {stored.case.workload} of {stored.case['size']} bytes comes twice.")
        _add(builder, stored, path)
    origin = Origin(clock_step=origin_of(kept.manifests).clock_step)
    return Observed(str(path), kept.manifests, builder.results(origin).cells(), ())


def _add(builder: Builder, stored: BaselineCell, path: Path) -> None:
    launches = len(set(stored.launches))
    if not launches == len(stored.launches) == len(stored.medians) == len(stored.means) == len(stored.ways):
        raise RunReadError(
            f"{path}: a cell with {launches} different launches, {len(stored.medians)} medians, {len(stored.means)} "
            f"means and {len(stored.ways)} ways of measuring."
        )
    if max(stored.ways, default=-1) >= len(stored.how):
        raise RunReadError(
            f"{path}: a launch was measured in way {max(stored.ways)}, and the cell lists {len(stored.how)} ways."
        )
    if not all(_BURST.fullmatch(value) for way in stored.how for name, value in way if name == "burst"):
        raise RunReadError(f"{path}: a burst that is not a number of operations.")
    transports = stored.transports or (None,)
    values = zip(stored.launches, stored.medians, stored.means, stored.ways, cycle(transports), strict=False)
    repeatable: Mapping[str, tuple[float, ...]] = stored.repeatable
    for launch, median, mean, way, transport in values:
        facts = Facts("ok", stored.work, stored.how[way], contended=launch in stored.contended, transport=transport)
        extra = Extra(stored.cpu.get(launch), repeatable=repeatable)
        builder.row(stored.case, launch, facts, extra, median, mean)
        repeatable = {}
