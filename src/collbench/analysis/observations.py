"""Runs as the analysis sees them: for each case one value of each launch, and what a reader must know of it.

Records are read one after the other and only what is used is kept, so a million of them fit in a laptop's memory.

A launch whose every sample is a multiple of 10 ns has a median that is one too. Ten such medians can be equal although
the operation does not always take equally long, so no interval may be narrower than the step.
"""

from __future__ import annotations

import gc
import math
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeVar

from collbench.analysis.run_facts import SampleIndex, refuse_together, unfinished
from collbench.errors import RunReadError
from collbench.schema.case import Case, Where
from collbench.schema.manifest import Manifest
from collbench.schema.record import Duet, Record, ResultCheck, Work
from collbench.schema.sample_files import SampleFiles, disagreement
from collbench.schema.store import RecordStream, read_manifest
from collbench.schema.turns import TRIMMED


def set_clock_step(cells: Iterable[Cell], manifests: Sequence[Manifest]) -> None:
    """Set the clock step of every cell: the coarsest of the run's hosts, 0.0 where no manifest tells it."""
    steps = [host.clock_step for manifest in manifests for host in manifest.hosts]
    step = max((step for step in steps if step is not None), default=0.0)
    for cell in cells:
        cell.clock_step = step


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


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause it: of a hundred thousand cells it would take a sixth of the time that it takes to read them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


T = TypeVar("T")


def joined(known: Set[T], new: Collection[T]) -> Set[T]:
    """Both in one. What is not known yet goes into a set of one's own: `known`, if it is one already."""
    if isinstance(known, set):
        known.update(new)
        return known
    if not known:
        return _shared(frozenset(new))
    return known if known >= {*new} else {*known, *new}


@lru_cache
def _shared(facts: frozenset[T]) -> frozenset[T]:
    """The same object for all who have these facts."""
    return facts


#: By name: driver, gate, cadence, clock, burst, in place.
How = tuple[tuple[str, str], ...]


def how(record: Record) -> How:
    """The facts of a record that make two numbers incomparable, by name. Synchronised clocks are as a common one."""
    clock = "common" if record.clock == "synced" else record.clock
    return _named(record.driver, record.gate, record.cadence, clock, record.burst, record.in_place)


@lru_cache  # few ways, a million records
def _named(
    driver: str | None, gate: str | None, cadence: str | None, clock: str | None, burst: int, in_place: bool | None
) -> How:
    facts = {"driver": driver, "gate": gate, "cadence": cadence, "clock": clock, "burst": burst}
    if in_place is not None:
        facts["place"] = "in" if in_place else "out"
    return tuple((name, str(value)) for name, value in facts.items() if value is not None)


@lru_cache
def shortest_burst(ways: frozenset[How]) -> float:
    """The fewest operations of a sample, at least 1."""
    bursts = [float(value) for way in ways for name, value in way if name == "burst"]
    return max(min(bursts, default=1.0), 1.0)


#: A time below a picosecond counts as 0: no clock resolves it.
LEAST = 1e-12

_NO_WORK = Work(amount=0)


class InTurns(NamedTuple):
    """A launch in turns: the position of its start, and logarithms of factors by which its slices differ.

    `before`: those after one of its own against those after another's; `age`: their second halves against the first.
    None: there are none to compare.
    """

    started: int
    before: float | None
    age: float | None


def in_turns(duet: Duet) -> InTurns:
    """From the valid slices of a launch: one follows its own where a round begins as the one before ended."""
    valid = [one for one in duet.slices if one.valid and one.seconds > 0]
    after: dict[bool, list[float]] = {True: [], False: []}
    for earlier, one in zip(duet.slices, duet.slices[1:], strict=False):
        if one.valid and one.seconds > 0:
            after[one.place == 0 and earlier.place == duet.worlds - 1].append(math.log(one.seconds))
    before = fmean(after[True]) - fmean(after[False]) if all(after.values()) else None
    ages = [math.log(one.halves[1] / one.halves[0]) for one in valid if one.halves and min(one.halves) > 0]
    return InTurns(duet.started, before, fmean(ages) if ages else None)


@dataclass(slots=True)
class Cell:
    """What was measured of one case, over all launches.

    `launches`, `medians`, `means` (seconds) and `ways` have an entry for each launch that measured it, in the order of
    launches; a launch has a number, which is also its block. `how` holds each way once. `clock_step` is the spacing
    of the times (s) that the clock could show, 0 where it is not known; `work` is what takes that long. `contended`
    are the launches during which tasks waited for a CPU. `cpu` has for each launch of a program the CPU seconds and
    the seconds of its executions, both divided by the number of samples. `repeatable` has the values of figures that
    must come out equal; `by_figure` what the check measured, in each launch. `messages` are the all-reduces of a
    training step (bytes), one sequence if all launches had the same. `lost` are launches that failed because their
    cluster took them away, with the reason, and were not measured since. `turns` are the launches that were performed
    beside others, `alone` counts those that could not be, by the reason. `until_decided`: its launches ended when its
    comparisons were decided. `experiment` is the run whose launches form blocks, and which can be given more than the
    `planned` ones; empty of others. The counters count records.
    """

    case: Case
    launches: array[int] = field(default_factory=lambda: array("q"))
    medians: array[float] = field(default_factory=lambda: array("d"))
    means: array[float] = field(default_factory=lambda: array("d"))
    ways: list[How] = field(default_factory=list)
    how: Set[How] = frozenset()
    clock_step: float = 0.0
    until_decided: bool = False
    experiment: str = ""
    planned: int = 0
    highest: int = -1
    work: Work = _NO_WORK
    failed: int = 0
    skipped: int = 0
    wrong: int = 0
    unchecked: int = 0
    oversubscribed: int = 0
    shared_gpu: int = 0
    samples: int = 0
    late: int = 0
    repeated: int = 0
    contended: Set[int] = frozenset()
    cpu: dict[int, tuple[float, float]] = field(default_factory=dict)
    repeatable: dict[str, set[float]] = field(default_factory=dict)
    transports: Set[str] = frozenset()
    notes: Set[str] = frozenset()
    reasons: Set[str] = frozenset()
    slowed: Set[str] = frozenset()
    messages: Set[tuple[int, ...]] = frozenset()
    turns: dict[int, InTurns] = field(default_factory=dict)
    alone: dict[str, int] = field(default_factory=dict)
    by_figure: dict[str, list[float]] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    def add(self, record: Record, launch: int) -> None:
        """Add a record of this case. A launch that was recorded twice counts once: the first time."""
        seconds = record.seconds
        if record.check is not None and record.check.wrong:
            self.wrong += 1
        if record.status != "ok" or seconds is None or record.work is None:
            self.not_measured(record, launch)
            return
        place = len(self.launches)
        if launch > self.highest:
            self.highest = launch
        elif launch in self.launches:
            self.repeated += 1
            return
        else:  # it was lost, and measured after later ones
            place = bisect(self.launches, launch)
        if self.lost:
            self._found(launch)
        median = seconds.p50 if record.duet is None else record.duet.seconds
        self.launches.insert(place, launch)
        self.medians.insert(place, median if median >= LEAST else 0.0)
        self.means.insert(place, seconds.mean)
        self.work = record.work
        if record.duet is not None:
            self.turns[launch] = in_turns(record.duet)
        elif record.alone is not None:
            self.alone[record.alone] = self.alone.get(record.alone, 0) + 1
        way = how(record)
        if way not in self.ways[-1:]:
            self.how = joined(self.how, (way,))
        self.ways.insert(place, way)
        if record.messages:
            self.messages = joined(self.messages, (record.messages,))
        self._caution(record, launch)

    def not_measured(self, record: Record, launch: int) -> None:
        """Add a launch without a time, for what this record says, which may be of another case."""
        self.failed += record.status == "failed" and launch not in self.lost
        self.lost.pop(launch, None)
        if record.lost:
            self.lost[launch] = record.reason or ""
        self.skipped += record.status == "skipped"
        self.reasons = joined(self.reasons, (record.reason or record.status,))

    def _found(self, launch: int) -> None:
        """A launch that was lost before has been measured now: it has not failed."""
        reason = self.lost.pop(launch, None)
        if reason is not None:
            self.failed -= 1
            if reason not in self.lost.values():
                self.reasons -= {reason}

    def _caution(self, record: Record, launch: int) -> None:
        """Count what a reader of the number must know. Plain ifs: a million records are added in seconds."""
        if record.check is None:
            self.unchecked += 1
        else:
            self._checked(record.check)
        if record.contended:
            self.contended = joined(self.contended, (launch,))
        if record.oversubscribed:
            self.oversubscribed += 1
        if record.shared_gpu:
            self.shared_gpu += 1
        if record.samples is not None:
            self.samples += record.samples.n
            self.late += record.samples.invalid
        if record.notes:
            self.notes = joined(self.notes, record.notes)
        if record.transport and record.transport not in self.transports:
            self.transports = joined(self.transports, (record.transport,))
        if record.cpu is not None and record.samples is not None:
            taken = max(record.samples.n + record.samples.warmup, 1)
            self.cpu[launch] = ((record.cpu.user + record.cpu.system) / taken, record.cpu.wall / taken)
        for state in record.gpus:
            self.slowed = joined(self.slowed, (*(state.before.throttled or ()), *(state.after.throttled or ())))

    def _checked(self, check: ResultCheck) -> None:
        self.unchecked += check.wrong is None
        for name, value in check.repeatable.items():
            self.repeatable.setdefault(name, set()).add(value)
        for name, value in check.figures.items():
            self.by_figure.setdefault(name, []).append(value)

    def absorb(self, other: Cell, moved: int) -> None:
        """Add what another run measured of this case, its launch numbers moved up by so many."""
        self.launches.extend(launch + moved for launch in other.launches)
        self.contended = joined(self.contended, [launch + moved for launch in other.contended])
        self.turns.update((launch + moved, seen) for launch, seen in other.turns.items())
        for reason, number in other.alone.items():
            self.alone[reason] = self.alone.get(reason, 0) + number
        self.cpu.update((launch + moved, used) for launch, used in other.cpu.items())
        self.medians.extend(other.medians)
        self.means.extend(other.means)
        self.highest = max(self.highest, other.highest + moved)
        self.work = other.work
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for figure, values in other.repeatable.items():
            self.repeatable.setdefault(figure, set()).update(values)
        for figure, found in other.by_figure.items():
            self.by_figure.setdefault(figure, []).extend(found)
        self.ways.extend(other.ways)
        self.clock_step = max(self.clock_step, other.clock_step)
        for name in ("how", "transports", "notes", "reasons", "slowed", "messages"):
            setattr(self, name, joined(getattr(self, name), getattr(other, name)))

    @property
    def figures(self) -> dict[str, float]:
        """What the check measured last."""
        return {name: values[-1] for name, values in self.by_figure.items()}

    @property
    def disturbed(self) -> Set[int]:
        """Launches of a program during which others used its cores: comparisons leave them out."""
        return frozenset() if not self.contended or self.case["backend"] else self.contended

    def without(self, launches: Container[int]) -> Cell:
        """The cell as if these launches had not been measured."""
        kept = [index for index, launch in enumerate(self.launches) if launch not in launches]
        ways = [self.ways[index] for index in kept]
        return replace(
            self, launches=array("q", (self.launches[index] for index in kept)), ways=ways, how=set(ways),
            medians=array("d", (self.medians[index] for index in kept)),
            means=array("d", (self.means[index] for index in kept)),
            cpu={launch: used for launch, used in self.cpu.items() if launch not in launches},
        )  # fmt: skip

    @property
    def half_step(self) -> float:
        """How far the clock's step can move a time (s); a burst divides it by its operations.

        A median by half a step. The trimmed mean of a slice by the share that is left out at either end: operations
        begin anywhere between two steps, so that the whole mean is true.
        """
        share = TRIMMED if self.turns and len(self.turns) == len(self.launches) else 0.5
        return share * self.clock_step / shortest_burst(frozenset(self.how))

    @property
    def by_launch(self) -> dict[int, float]:
        return dict(zip(self.launches, self.medians, strict=True))


_COUNTERS = ("failed", "skipped", "wrong", "unchecked", "oversubscribed", "shared_gpu", "samples", "late", "repeated")


def methods(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """By name, the values of how these cells were measured: `gate` is `barrier`, or `roundtime` too."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for way in cell.how:
            for name, value in way:
                values.setdefault(name, set()).add(value)
    return values


@dataclass(frozen=True)
class Observed:
    """Everything that was read under one name: a run, or a folder of runs of which each is one launch of the same.

    `manifests` has one entry for each run. `folders` are the runs, each with the number of its first launch here;
    `samples` has the samples files of each. `doubts` are samples files that cannot be read or do not agree with their
    records, `unfinished` says of a run that launches are missing. `interleaved`: launches of one number were measured
    close together, in random order.
    """

    name: str
    manifests: tuple[Manifest, ...]
    cells: dict[Case, Cell]
    folders: tuple[tuple[int, Path], ...]
    truncated: tuple[Path, ...] = ()
    doubts: tuple[str, ...] = ()
    interleaved: bool = False
    samples: tuple[SampleIndex, ...] = ()
    unfinished: tuple[str, ...] = ()


def observe(path: Path) -> Observed:
    """The run at `path`; or if it is a folder of runs, these in the order of their names, each one launch.

    Raises:
        RunReadError: neither a run nor a folder of runs, or one of them is damaged.
    """
    if (path / "manifest.json").exists() or not path.is_dir():
        return gather(path, [path])
    inside = sorted(child for child in path.iterdir() if child.is_dir())
    folders = [child for child in inside if (child / "manifest.json").is_file()]
    if not folders:
        raise RunReadError(f"{path}: neither a run nor a folder of runs (no manifest.json in it or in its folders).")
    observed = gather(path, folders)
    if len(folders) > 1:
        refuse_together((str(folder), manifest) for folder, manifest in zip(folders, observed.manifests, strict=True))
    strange = tuple(f"{child}: no manifest.json; it is left out" for child in inside if child not in folders)
    return replace(observed, doubts=observed.doubts + strange)


def gather(name: Path, folders: list[Path]) -> Observed:
    """Several runs as one: launch numbers go on from one run to the next."""
    manifests, cells, where, truncated, doubts = [], dict[Case, Cell](), [], [], list[str]()
    samples: list[SampleIndex] = []
    first = 0
    for folder in folders:
        manifests.append(read_manifest(folder))
        stream, check = RecordStream(folder), SampleCheck(folder)
        where.append((first, folder))
        first = collect(check.passing(stream), cells, first, some_from(manifests[-1])) + 1
        samples.append(check.index)
        doubts += check.lines()
        if len(folders) > 1 and not check.passed:
            doubts.append(f"{folder}: no records in it")
        if stream.truncated:
            truncated.append(folder)
    apply_manifests(cells.values(), manifests)
    experiment = manifests[0].experiment if len(manifests) == 1 else None
    if experiment is not None:
        for cell in cells.values():
            cell.experiment, cell.planned = str(name), experiment.launches
    blocks = experiment is not None
    lacking = unfinished(folders[0], cells.values(), _planned(manifests[0])) if blocks else ()
    return Observed(str(name), tuple(manifests), cells, tuple(where), tuple(truncated), tuple(doubts), blocks,
                    tuple(samples), lacking)  # fmt: skip


def apply_manifests(cells: Collection[Cell], manifests: Sequence[Manifest]) -> None:
    """Note in every cell what its runs' manifests say: the clock's step, and whether launches ended when decided."""
    set_clock_step(cells, manifests)
    if any(some_from(manifest) is not None for manifest in manifests):
        for cell in cells:
            cell.until_decided = True


def some_from(manifest: Manifest) -> int | None:
    """The launch from which on those of one cell measured different cases, what was not decided; None: there is none.

    Of a run that was begun with a fixed number of launches, and then continued until decided, its plan has that number.
    """
    if manifest.experiment is None or manifest.experiment.until != "decided":
        return None
    plan = manifest.plan or {}
    fixed = plan.get("launches") if plan.get("until") == "launches" else 0
    return fixed if isinstance(fixed, int) else 0


def _planned(manifest: Manifest) -> int:
    """How many launches each cell was to have, whatever was decided; 0: not known."""
    fixed = some_from(manifest)
    if fixed is not None or manifest.experiment is None:
        return fixed or 0
    return manifest.experiment.launches


@without_collector()
def collect(records: Iterable[Record], cells: dict[Case, Cell], first: int = 0, some: int | None = None) -> int:
    """Add records to their cells, launch numbers moved up by `first`; returns the highest launch number.

    A launch that fails before its end is recorded once, and has failed in all its cells of which there is no record.
    From the launch `some` on, where launches measured some of their cases, it is recorded for each of these.
    """
    last = first
    failures: dict[tuple[Where, int], Record] = {}
    without_time: set[tuple[Case, int]] = set()
    for record in records:
        cell = cells.get(record.case)
        if cell is None:
            cell = cells[record.case] = Cell(record.case)
        launch = first + record.launch
        cell.add(record, launch)
        last = max(last, launch)
        if record.status != "ok":
            without_time.add((record.case, launch))
            if record.status == "failed" and (some is None or record.launch < some):
                failures[record.case.where, launch] = record
    places: dict[Where, list[Cell]] = {where: [] for where, _ in failures}
    for case, cell in cells.items():
        if case.where in places:
            places[case.where].append(cell)
    for (where, launch), record in failures.items():
        for cell in places[where]:
            if launch not in cell.launches and (cell.case, launch) not in without_time:
                cell.not_measured(record, launch)
    return last


@dataclass(frozen=True)
class Pair:
    """Two cells that are compared. `free` are the facts of the measuring in which they may differ (`pairs.METHODS`).

    `remarks` say in what else the sides differ, `asked` what the fact that is the question is on each.
    """

    base: Cell
    other: Cell
    base_name: str
    other_name: str
    free: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
