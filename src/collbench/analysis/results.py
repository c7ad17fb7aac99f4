"""Results as one table: a row for each record, its numbers in columns, and a cell for the rows of each case.

What a record says besides its numbers is kept once for all rows that say the same, so a million records fit in a
laptop's memory.
"""

from __future__ import annotations

import gc
import math
from array import array
from collections import Counter
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from collbench.schema.case import Case, Where
from collbench.schema.manifest import Image, Manifest
from collbench.schema.record import Duet, Record, ResultCheck, Status, Work, read, stem_of
from collbench.schema.world import TRIMMED

if TYPE_CHECKING:
    from numpy.typing import NDArray

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """By key the values of pairs of a key and a value, in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


#: By name: driver, align, cadence, clock, burst, in place.
Way = tuple[tuple[str, str], ...]


def how(record: Record) -> Way:
    """The facts of a record that make two numbers incomparable, by name. Synchronised clocks are as a common one."""
    clock = "common" if record.clock == "synced" else record.clock
    place = None if record.in_place is None else "in" if record.in_place else "out"
    facts = {"driver": record.driver, "align": record.align, "cadence": record.cadence, "clock": clock,
             "burst": record.burst, "place": place}  # fmt: skip
    return tuple((name, str(value)) for name, value in facts.items() if value is not None)


@lru_cache
def _shortest_burst(ways: frozenset[Way]) -> float:
    """The fewest operations of a sample, at least 1."""
    return max(min((float(value) for way in ways for name, value in way if name == "burst"), default=1.0), 1.0)


LEAST = 1e-12  # a time below a picosecond counts as 0: no clock resolves it
_NO_WORK = Work(amount=0)


class InTurns(NamedTuple):
    """A launch in turns: the position of its start, and logarithms of factors by which its slices differ, or None.

    `before`: those after one of its own against those after another's; `age`: their second halves against the first.
    """

    started: int
    before: float | None
    age: float | None


def in_turns(duet: Duet) -> InTurns:
    """From the valid slices of a launch: one follows its own where a round begins as the one before ended."""
    valid = [part for part in duet.slices if part.valid and part.seconds > 0]
    after: dict[bool, list[float]] = {True: [], False: []}
    for earlier, later in pairwise(duet.slices):
        if later.valid and later.seconds > 0:
            after[later.place == 0 and earlier.place == duet.worlds - 1].append(math.log(later.seconds))
    before = fmean(after[True]) - fmean(after[False]) if all(after.values()) else None
    ages = [math.log(part.halves[1] / part.halves[0]) for part in valid if part.halves and min(part.halves) > 0]
    return InTurns(duet.started, before, fmean(ages) if ages else None)


class Facts(NamedTuple):
    """What a record says besides its numbers.

    `reason`: why it was not measured; `lost`: its cluster took the launch away. `slowed`: why GPUs were throttled.
    `messages` are the all-reduces of a training step (bytes). `alone`: why no other world was beside it.
    """

    status: Status
    work: Work = _NO_WORK
    way: Way = ()
    reason: str = ""
    lost: bool = False
    wrong: bool = False
    unchecked: bool = False
    contended: bool = False
    oversubscribed: bool = False
    shared_gpu: bool = False
    transport: str | None = None
    alone: str | None = None
    notes: tuple[str, ...] = ()
    slowed: tuple[str, ...] = ()
    messages: tuple[int, ...] = ()


def _facts_of(record: Record, slowed: tuple[str, ...], wrong: bool) -> Facts:
    if record.status != "ok":
        return Facts(record.status, reason=record.reason or record.status, lost=record.lost, wrong=wrong)
    assert record.work is not None
    return Facts(
        "ok", record.work, how(record), wrong=wrong, unchecked=record.check is None or record.check.wrong is None,
        contended=bool(record.contended), oversubscribed=bool(record.oversubscribed), shared_gpu=record.shared_gpu,
        transport=record.transport, alone=record.alone, notes=record.notes, slowed=slowed, messages=record.messages,
    )  # fmt: skip


class Extra(NamedTuple):
    """What few rows have: CPU seconds and seconds, for each sample; turns; what the check measured; an odd `file`."""

    cpu: tuple[float, float] | None = None
    turn: InTurns | None = None
    figures: Mapping[str, float] = {}
    repeatable: Mapping[str, Collection[float]] = {}
    file: str = ""


def _extra_of(record: Record, file: str) -> Extra | None:
    check, cpu, samples = record.check or ResultCheck(wrong=None), record.cpu, record.samples
    if cpu is None and record.duet is None and not (file or check.figures or check.repeatable):
        return None
    executed = 1 if samples is None else max(samples.n + samples.warmup, 1)
    used = None if cpu is None or samples is None else ((cpu.user + cpu.system) / executed, cpu.wall / executed)
    repeatable = {name: (value,) for name, value in check.repeatable.items()}
    turn = None if record.duet is None else in_turns(record.duet)
    return Extra(used, turn, check.figures, repeatable, file)


def usual_file(key: str, launch: int) -> str:
    """The name that `RunWriter` gives a samples file of a case with this key."""
    return f"samples/{key}-{launch}.npy"


#: Numbers of a row and their types: codes of its case and facts, launch, median and mean (s; 0.0: not measured),
#: samples, how many of them were late, and whether they were kept.
_COLUMNS = {"case": "l", "fact": "l", "launch": "q", "median": "d", "mean": "d", "samples": "q", "late": "q",
            "kept": "b"}  # fmt: skip


class Origin(NamedTuple):
    """What holds for all rows of a run: the spacing of the times (s) that its clock could show, 0 where not known.

    `until_decided`: launches ended when comparisons were decided. `experiment`: the run whose launches form blocks, and
    which can be given more than the `planned` ones; empty of others. `software` has images, and environments of the
    host, whose ranks are given library files: by name, side, and whether it is the host's.
    """

    clock_step: float = 0.0
    until_decided: bool = False
    experiment: str = ""
    planned: int = 0
    software: Mapping[tuple[str | None, str | None, bool], Image] = {}


@dataclass(frozen=True)
class Results:
    """Rows [n] as `columns` (`_COLUMNS`); `case` and `fact` are places in `cases` and `facts`."""

    cases: Sequence[Case]
    facts: Sequence[Facts]
    columns: Mapping[str, NDArray[Any]]
    extras: Mapping[int, Extra] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)

    def cells(self) -> dict[Case, Cell]:
        """By case its rows in the order of launches. A launch that was measured twice counts once: the first time.

        One that was lost, and is in a later row, was not.
        """
        case, launch, fact = (self.columns[name] for name in ("case", "launch", "fact"))
        order = np.lexsort((launch, case))
        again = self._again(order)
        measured = np.array([facts.status == "ok" for facts in self.facts], bool)[fact[order]]
        lost = np.array([facts.lost for facts in self.facts], bool)[fact[order]] & np.append(again[1:], False)
        rows, rest = order[measured], order[~measured & ~lost]
        again = self._again(rows)
        repeated = np.bincount(case[rows[again]], minlength=len(self.cases)).tolist()
        each = zip(self.cases, self._split(rows[~again]), repeated, self._split(rest), strict=True)
        return {case: Cell(case, self, launches, number, missing) for case, launches, number, missing in each}

    def _again(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these rows, in the order of cases and launches, are of the launch of the row before."""
        same = [np.diff(self.columns[name][rows], prepend=-1) == 0 for name in ("case", "launch")]
        again: NDArray[np.bool_] = same[0] & same[1]
        return again

    def _split(self, rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """These rows, which are in the order of cases, for each case."""
        ends = np.searchsorted(self.columns["case"][rows], np.arange(len(self.cases) + 1)).tolist()
        return [rows[start:end] for start, end in pairwise(ends)]


class Cell:
    """What was measured of one case: `rows` of `results` with a time, in the order of launches; `rest` have none.

    Lists have an entry for each launch that was measured: its number, which is also its block, its median and mean (s),
    the way it was measured. `repeated` are rows of launches that another row has.
    """

    def __init__(
        self, case: Case, results: Results, rows: NDArray[np.intp], repeated: int, rest: NDArray[np.intp]
    ) -> None:  # fmt: skip
        self.case, self.results, self.rows, self.repeated, self.rest = case, results, rows, repeated, rest
        _, self.until_decided, self.experiment, self.planned, _ = results.origin

    @cached_property
    def launches(self) -> list[int]:
        return self._column("launch")

    @cached_property
    def medians(self) -> list[float]:
        return self._column("median")

    @property
    def means(self) -> list[float]:
        return self._column("mean")

    def _column(self, name: str) -> list[Any]:
        values: list[Any] = self.results.columns[name][self.rows].tolist()
        return values

    @cached_property
    def facts(self) -> list[Facts]:
        """Of each launch that was measured."""
        return [self.results.facts[code] for code in self._column("fact")]

    @property
    def missing(self) -> list[Facts]:
        """Of each record without a time."""
        return [self.results.facts[code] for code in self.results.columns["fact"][self.rest].tolist()]

    @property
    def ways(self) -> list[Way]:
        return [facts.way for facts in self.facts]

    @property
    def how(self) -> set[Way]:
        return set(self.ways)

    @property
    def work(self) -> Work:
        """What takes as long as its times."""
        return self.facts[-1].work if self.facts else _NO_WORK

    @property
    def failed(self) -> int:
        return sum(facts.status == "failed" for facts in self.missing) if len(self.rest) else 0

    @property
    def skipped(self) -> int:
        return sum(facts.status == "skipped" for facts in self.missing) if len(self.rest) else 0

    @property
    def reasons(self) -> set[str]:
        """Why launches were not measured."""
        return {facts.reason for facts in self.missing}

    @property
    def lost(self) -> int:
        """How many launches failed because their cluster took them away, and were not measured since."""
        return sum(facts.lost for facts in self.missing)

    @property
    def wrong(self) -> int:
        return sum(facts.wrong for facts in self.missing)

    @property
    def unchecked(self) -> int:
        return sum(facts.unchecked for facts in self.facts)

    @property
    def oversubscribed(self) -> int:
        return sum(facts.oversubscribed for facts in self.facts)

    @property
    def shared_gpu(self) -> int:
        return sum(facts.shared_gpu for facts in self.facts)

    @property
    def samples(self) -> int:
        return sum(self._column("samples"))

    @property
    def late(self) -> int:
        return sum(self._column("late"))

    @property
    def files(self) -> dict[int, tuple[str, int]]:
        """By launch whose samples were kept: the name of their file, empty for the usual one, and their number."""
        rows = zip(self._column("kept"), self.rows.tolist(), self.launches, self._column("samples"), strict=True)
        extras, usual = self.results.extras, Extra()
        return {launch: (extras.get(row, usual).file, n) for kept, row, launch, n in rows if kept}

    @property
    def contended(self) -> set[int]:
        """Launches during which tasks waited for a CPU."""
        return {launch for launch, facts in zip(self.launches, self.facts, strict=True) if facts.contended}

    @property
    def disturbed(self) -> set[int]:
        """Launches of a program during which others used its cores: comparisons leave them out."""
        return set() if self.case["backend"] else self.contended

    @property
    def transports(self) -> set[str]:
        return {facts.transport for facts in self.facts if facts.transport}

    @property
    def notes(self) -> set[str]:
        return {note for facts in self.facts for note in facts.notes}

    @property
    def not_loaded(self) -> tuple[str, str, str, str] | None:
        """A library file that its ranks were given and did not load, and the one in its place; None: there is none.

        Path and SHA-256 of either, empty where they are not known.
        """
        where = self.case.where
        software = self.results.origin.software.get((where.image, where.side, where.on_host))
        if software is None or not self.case["backend"]:  # programs are processes of their own, which say nothing
            return None
        given = {stem_of(path): (path, sha256) for path, sha256 in software.files.items()}
        used = next((library for library in software.libraries if library.path), None)
        for loaded in filter(None, map(read, sorted(self.notes))):
            if loaded.name in given and loaded.sha256 not in software.files.values():
                instead = used if used is not None and not loaded.path else loaded
                return (*given[loaded.name], instead.path or "", instead.sha256 or "")
        return None

    @property
    def slowed(self) -> set[str]:
        return {reason for facts in self.facts for reason in facts.slowed}

    @property
    def messages(self) -> set[tuple[int, ...]]:
        """The all-reduces of a training step (bytes): one sequence if all launches had the same."""
        return {facts.messages for facts in self.facts if facts.messages}

    @property
    def alone(self) -> Counter[str]:
        """By the reason how many launches had no other world beside them."""
        return Counter(facts.alone for facts in self.facts if facts.alone)

    @property
    def extras(self) -> dict[int, Extra]:
        """By launch."""
        known = self.results.extras
        rows = zip(self.launches, self.rows.tolist(), strict=True) if known else ()
        return {launch: known[row] for launch, row in rows if row in known}

    @property
    def cpu(self) -> dict[int, tuple[float, float]]:
        """By launch of a program the CPU seconds and the seconds of its executions, for each sample."""
        return {launch: extra.cpu for launch, extra in self.extras.items() if extra.cpu is not None}

    @property
    def turns(self) -> dict[int, InTurns]:
        """The launches that were performed beside others."""
        return {launch: extra.turn for launch, extra in self.extras.items() if extra.turn is not None}

    @property
    def by_figure(self) -> dict[str, list[float]]:
        """What the check measured, in each launch."""
        return grouped(figure for extra in self.extras.values() for figure in extra.figures.items())

    @property
    def figures(self) -> dict[str, float]:
        """What the check measured last."""
        return {name: values[-1] for name, values in self.by_figure.items()}

    @property
    def repeatable(self) -> dict[str, set[float]]:
        """Values of figures that must come out equal."""
        values = grouped(values for extra in self.extras.values() for values in extra.repeatable.items())
        return {name: set(chain.from_iterable(of_name)) for name, of_name in values.items()}

    def of_origin(self, **changes: Any) -> Cell:
        """The cell as one of a run of which something else holds (`Origin`)."""
        results = replace(self.results, origin=self.results.origin._replace(**changes))
        return Cell(self.case, results, self.rows, self.repeated, self.rest)

    @property
    def by_launch(self) -> dict[int, float]:
        return dict(zip(self.launches, self.medians, strict=True))

    @property
    def half_step(self) -> float:
        """How far the clock's step can move a time (s): a median by half a step, divided by the operations of a burst.

        The trimmed mean of a slice by the share that is left out at either end: the whole mean is true.
        """
        step = self.results.origin.clock_step
        share = TRIMMED if self.facts and len(self.turns) == len(self.facts) else 0.5
        return share * step / _shortest_burst(frozenset(self.ways)) if step else 0.0

    def without(self, launches: Container[int]) -> Cell:
        """The cell as if these launches had not been measured."""
        remaining = [launch not in launches for launch in self.launches]
        return Cell(self.case, self.results, self.rows[np.array(remaining, bool)], self.repeated, self.rest)


def methods(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """By name, the values of how these cells were measured: `align` is `barrier`, or `roundtime` too."""
    values = grouped(fact for way in {way for cell in cells for way in cell.how} for fact in way)
    return {name: set(of_name) for name, of_name in values.items()}


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause it: with a hundred thousand cells it takes a sixth of the time of reading."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Builder:
    """Rows to be."""

    def __init__(self, cases: Iterable[Case] = ()) -> None:
        self.cases: dict[Case, int] = {case: code for code, case in enumerate(dict.fromkeys(cases))}
        self._facts: dict[object, int] = {}
        self._known: list[Facts] = []
        self._columns: dict[str, array[Any]] = {name: array(kind) for name, kind in _COLUMNS.items()}
        self._extras: dict[int, Extra] = {}
        self._failures: dict[tuple[Where, int], Facts] = {}
        self._keys: dict[Case, str] = {}
        self._append = [column.append for column in self._columns.values()]

    def row(
        self, case: Case, launch: int, facts: Facts, extra: Extra | None, median: float, mean: float,
        samples: int = 0, late: int = 0, kept: bool = False,
    ) -> None:  # fmt: skip
        """A row that no record gave."""
        if extra is not None:
            self._extras[len(self._columns["case"])] = extra
        code = self.cases.setdefault(case, len(self.cases))
        values = (code, self._code(facts, facts), launch, median, mean, samples, late, kept)
        for append, value in zip(self._append, values, strict=True):
            append(value)

    def add(self, record: Record, launch: int) -> None:
        """A record, whose launch has this number here. Plain statements: a million are added in seconds."""
        check, seconds, samples = record.check, record.seconds, record.samples
        slowed: tuple[str, ...] = ()
        if record.gpus:
            readings = (reading for state in record.gpus for reading in (state.before, state.after))
            slowed = tuple(sorted({reason for reading in readings for reason in reading.throttled or ()}))
        wrong = -1 if check is None or check.wrong is None else check.wrong > 0
        key = (record.status, record.work, record.transport, wrong, record.contended, record.oversubscribed,
               record.driver, record.align, record.cadence, record.clock, record.burst, record.in_place, record.notes,
               record.reason, record.shared_gpu, record.alone, record.messages, slowed)  # fmt: skip
        code = self._facts.get(key)
        if code is None:
            code = self._code(key, _facts_of(record, slowed, wrong > 0))
        case, fact, launches, medians, means, numbers, late, kept = self._append
        file = None if samples is None else samples.file
        if record.cpu is not None or record.duet is not None or file is not None or check is not None:
            odd = ""  # a samples file that has not the usual name
            if file is not None:
                case_key = self._keys.get(record.case) or self._keys.setdefault(record.case, record.case.key)
                odd = "" if file == usual_file(case_key, record.launch) else file
            if (extra := _extra_of(record, odd)) is not None:
                self._extras[len(self._columns["case"])] = extra
        kept(file is not None)
        case(self.cases.setdefault(record.case, len(self.cases)))
        fact(code)
        launches(launch)
        numbers(0 if samples is None else samples.n)
        late(0 if samples is None else samples.invalid)
        if seconds is None:
            medians(0.0)
            means(0.0)
            return
        median = seconds.p50 if record.duet is None else record.duet.seconds
        medians(median if median >= LEAST else 0.0)
        means(seconds.mean)

    def _code(self, key: object, facts: Facts) -> int:
        code = self._facts.get(key)
        if code is None:
            code = self._facts[key] = len(self._known)
            self._known.append(facts)
        return code

    def copy(self, case: Case, cell: Cell, moved: int) -> None:
        """The rows of a cell as those of this case."""
        rows, results = np.concatenate([cell.rows, cell.rest]), cell.results
        names = ("launch", "fact", "median", "mean", "samples", "late", "kept")
        columns = (results.columns[name][rows].tolist() for name in names)
        for row, launch, fact, *numbers in zip(rows.tolist(), *columns, strict=True):
            self.row(case, launch + moved, results.facts[fact], results.extras.get(row), *numbers)

    def read(self, records: Iterable[Record], first: int = 0, some: int | None = None) -> int:
        """Add records, launches moved up by `first`, which from `some` on have some cases. Returns the last launch."""
        last = first
        with without_collector():
            for record in records:
                launch = first + record.launch
                self.add(record, launch)
                last = max(last, launch)
                if record.status == "failed" and (some is None or record.launch < some):
                    facts = self._known[self._columns["fact"][-1]]
                    self._failures[record.case.where, launch] = facts._replace(wrong=False)
        return last

    def _spread_failures(self) -> None:
        """A launch that failed before its end was recorded once, and has failed in all cells that have no row of it."""
        launches = {launch for _, launch in self._failures}
        rows = zip(self._columns["case"], self._columns["launch"], strict=True) if launches else ()
        recorded = {(code, launch) for code, launch in rows if launch in launches}
        for (where, launch), facts in self._failures.items():
            for case, code in self.cases.items():
                if case.where == where and (code, launch) not in recorded:
                    self.row(case, launch, facts, None, 0.0, 0.0)
        self._failures.clear()

    def results(self, origin: Origin | None = None) -> Results:
        self._spread_failures()
        columns = {name: np.frombuffer(column, column.typecode) for name, column in self._columns.items()}
        return Results([*self.cases], self._known, columns, self._extras, origin or Origin())


def some_from(manifest: Manifest) -> int | None:
    """The launch from which on those of one cell measured different cases, what was not decided; None: there is none.

    Of a run that was begun with a fixed number of launches, and then continued until decided, its plan has that number.
    """
    if manifest.experiment is None or manifest.experiment.until != "decided":
        return None
    plan = manifest.plan or {}
    fixed = plan.get("launches") if plan.get("until") == "launches" else 0
    return fixed if isinstance(fixed, int) else 0


def origin_of(manifests: Sequence[Manifest], run: str = "") -> Origin:
    """Of rows of runs with these manifests: the coarsest clock; `run` is the name of the only one."""
    steps = [host.clock_step for manifest in manifests for host in manifest.hosts]
    step = max((step for step in steps if step is not None), default=0.0)
    decided = any(some_from(manifest) is not None for manifest in manifests)
    experiment = manifests[0].experiment if len(manifests) == 1 and run else None
    software: dict[tuple[str | None, str | None, bool], Image] = {
        (image.name, image.side, on_host): image for manifest in manifests if (of := manifest.experiment)
        for on_host, images in ((False, of.images), (True, of.environments)) for image in images if image.files
    }  # fmt: skip
    return Origin(step, decided, run if experiment else "", experiment.launches if experiment else 0, software)


def cells_of(
    records: Iterable[Record], manifest: Manifest | None = None, cases: Iterable[Case] = ()
) -> dict[Case, Cell]:
    """The cells of a run's records; those of `cases` also without a record."""
    builder = Builder(cases)
    builder.read(records, some=None if manifest is None else some_from(manifest))
    return builder.results(origin_of([] if manifest is None else [manifest])).cells()


def joined(parts: Sequence[tuple[Mapping[Case, Cell], int]]) -> dict[Case, Cell]:
    """Cells of several runs as those of one: by their case in it, and how far launch numbers are moved up."""
    builder = Builder()
    for cells, moved in parts:
        for case, cell in cells.items():
            builder.copy(case, cell, moved)
    origins = [cell.results.origin for cells, _ in parts for cell in cells.values()]
    return builder.results(Origin(max((origin.clock_step for origin in origins), default=0.0))).cells()
