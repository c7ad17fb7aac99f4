"""A history: the runs of a folder in time, the series of their cells, what changed, and what else changed then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from collbench.analysis import change_points
from collbench.analysis.change_points import Correlation, Level, Trace
from collbench.analysis.estimate import Estimate, centre, ratio_of_sides
from collbench.analysis.factors import SideKey, facts_of, side_of, unlike
from collbench.analysis.options import fixed_cells, parse_fixed
from collbench.analysis.results import Cell, Way, grouped
from collbench.analysis.runs import Flaw, Observed, RunSource, observe, refuse_same, sources
from collbench.errors import RequestError, RunReadError
from collbench.schema.case import Case
from collbench.schema.record import Work

LONGEST = timedelta(days=1)  # launches of one run are made within this time
_SAME_WORK = 1.05  # work that differs by more than this factor is not the same work, as for `compare`
_RESTLESS = (1 / 3, 3)  # a fact that differs in more than this share of the runs, and this often, explains no change
_NEAR = 3  # changes whose best places are farther apart than so many runs are never told as one
_LATEST = 3  # a run is one of the latest where fewer than so many followed on its machine: plans may take turns

#: Facts that explain no change: runs of another machine are another series, and a job has another number each time.
_NO_CAUSE = frozenset({"simulated", "hosts", "cpu", "cores", "gpu", "allocation"})

#: What explains a change most often, and what least often.
_FIRST = ("library", "library-file", "gpu-driver", "kernel", "image-id", "collbench")
_LAST = ("host", "boot")


@dataclass(frozen=True)
class Lack:
    """Why a run has no time of a cell, or not of all launches: what records say, or what was measured instead.

    `launches`: how many had wrong results, or failed where others did not.
    """

    kind: Literal["failed", "skipped", "wrong results", "not resolved", "another way", "other work"]
    detail: str = ""
    launches: int = 0


@dataclass(frozen=True)
class RunCell:
    """What a run has of a cell: the median of its launches (s) by way of measuring, and what it `lacks`."""

    by_way: dict[Way, Estimate]
    work: Work
    lacks: Lack | None = None


@dataclass(frozen=True)
class TimedRun:
    """A run with its start. `machine` describes what it ran on; `facts` are those of each side, by name."""

    name: str
    started: datetime
    machine: str
    entries: dict[Case, RunCell]
    facts: dict[SideKey, dict[str, str]]

    @property
    def day(self) -> str:
        """`2026-11-03`, in UTC."""
        return self.started.strftime("%Y-%m-%d")


def _read(path: Path, fixed: Sequence[str]) -> tuple[tuple[TimedRun, ...], tuple[str, ...], tuple[Flaw, ...]]:
    """The runs in a folder, from the first to the last; what is left out of it; and what is not reliable."""
    if not path.is_dir():
        raise RunReadError(f"{path}: not a folder.")
    if (path / "manifest.json").exists():
        raise RequestError(f"{path}: this is one run. Name the folder that holds it and the runs before it.")
    runs, left_out, flaws, refused, read = [], list[str](), list[Flaw](), list[str](), list[RunSource]()
    for folder in _folders(path, left_out):
        try:
            observed = observe(folder)
            run = _timed(folder.name, observed)
            read += sources(observed)
        except (RunReadError, RequestError, OSError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            left_out.append(why.removesuffix("."))
            continue
        try:
            chosen = fixed_cells(observed, parse_fixed(fixed, observed.cells)) if fixed else observed
            entries = {case: entry for case, entry in run.entries.items() if case in chosen.cells}
            runs.append(replace(run, entries=entries))
        except RequestError as error:
            refused.append(str(error))
        flaws += observed.flaws
    if not runs:
        why = f" Left out: {'; '.join(left_out[:3])}." if left_out else ""
        raise RequestError(refused[0] if refused else f"{path}: no run in it.{why}")
    refuse_same(read)
    return tuple(sorted(runs, key=lambda run: (run.started, run.name))), tuple(left_out), tuple(flaws)


def _folders(path: Path, left_out: list[str]) -> Iterator[Path]:
    """What the folder holds, by name, without what is hidden; a folder under two names (`latest`) once."""
    inside = [child for child in sorted(path.iterdir()) if child.is_dir() and not child.name.startswith(".")]
    known = {child.resolve() for child in inside if not child.is_symlink()}
    for child in inside:
        if child.is_symlink() and child.resolve() in known:
            left_out.append(f"{child}: a link to another of these runs")
        else:
            known.add(child.resolve())
            yield child


def _timed(name: str, observed: Observed) -> TimedRun:
    """Raises RequestError where it holds no records, other things than launches of one run, or no time."""
    if differences := unlike(observed):
        text = "; ".join(f"{fact} {values}" for fact, values in differences.items())
        raise RequestError(f"{observed.name}: the runs in it are not launches of the same ({text})")
    times = [_time(observed.name, manifest.created) for manifest in observed.manifests]
    launched = any(manifest.experiment is not None for manifest in observed.manifests)
    if len(times) > 1 and (launched or max(times) - min(times) >= LONGEST):
        why = "have many launches each" if launched else "were made on several days"
        raise RequestError(f"{observed.name}: its {len(times)} runs {why}, and are no launches of one run")
    if not observed.cells:
        raise RequestError(f"{observed.name}: no records in it")
    sides = {side_of(case): case for case in observed.cells}
    facts = {side: facts_of(observed, [case]) for side, case in sides.items()}
    entries = {case: _entry(cell) for case, cell in observed.cells.items()}
    of = next(iter(facts.values()))
    hosts = f"{of['hosts']} hosts" if of["hosts"] != "1" else ""
    simulated = "simulated" if of["simulated"] == "yes" else ""
    machine = (of["cpu"], of["cores"] and f"{of['cores']} cores", of["gpu"], hosts, simulated)
    return TimedRun(name, min(times), ", ".join(filter(None, machine)), entries, facts)


def _time(name: str, created: str) -> datetime:
    try:
        time = datetime.fromisoformat(created)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{name}: its manifest does not say when it was made ({created[:40]!r})") from error


def _entry(cell: Cell) -> RunCell:
    """Of launches whose median is not 0, and during which nobody else used the cores of a program."""
    cell = cell.without(cell.disturbed) if cell.disturbed else cell
    medians = grouped((way, median) for way, median in zip(cell.ways, cell.medians, strict=True) if median > 0)
    reasons, lacks = "; ".join(sorted(cell.reasons)), None
    if cell.wrong:
        return RunCell({}, cell.work, Lack("wrong results", launches=cell.wrong))
    if cell.failed:
        lacks = Lack("failed", reasons, cell.failed if medians else 0)
    elif not medians:
        lacks = Lack("skipped", reasons) if cell.skipped else Lack("not resolved")
    by_way = {way: centre(of_way, half_step=cell.half_step) for way, of_way in medians.items()}
    return RunCell(by_way, cell.work, lacks)


@dataclass(frozen=True)
class RunTime:
    """The time (s) of a cell in the run of that number, counted in time over all runs."""

    run: int
    time: Estimate


@dataclass(frozen=True)
class Gap:
    """A run that has records of the cell and no time that belongs to the series; or not all launches: `measured`."""

    run: int
    lacks: Lack
    measured: bool = False


@dataclass(frozen=True, eq=False)
class CellSeries:
    """A cell on one machine, measured in one `way`; `missing`: the first later run of its kind without a record."""

    case: Case
    machine: str
    work: Work
    points: tuple[RunTime, ...]
    gaps: tuple[Gap, ...]
    way: Way = ()
    missing: int | None = None

    @property
    def trace(self) -> Trace:
        times = np.array([point.time.value for point in self.points])
        return Trace(np.log(times), np.array([point.run for point in self.points], np.int64))

    @property
    def tested(self) -> bool:
        """Whether there were enough runs to see a change."""
        return len(self.points) >= change_points.FEWEST

    def time(self, level: Level) -> Estimate:
        """The median over the runs of a level (s), with its interval."""
        return centre([point.time.value for point in self.points[level.start : level.stop]])

    @property
    def last(self) -> int:
        """The last run that has a record of the cell."""
        return max([point.run for point in self.points] + [gap.run for gap in self.gaps])

    @property
    def lacks(self) -> Lack | None:
        """Why the last run with a record of it lacks launches; None where it does not, or every run skipped it."""
        if not self.points and all(gap.lacks.kind == "skipped" for gap in self.gaps):
            return None
        return next((gap.lacks for gap in self.gaps if gap.run == self.last), None)


def all_series(runs: Sequence[TimedRun]) -> list[CellSeries]:
    """One for each cell and machine, in the order in which they first occur."""
    cells = grouped(((run.machine, case), (number, entry))
                    for number, run in enumerate(runs) for case, entry in run.entries.items())  # fmt: skip
    return [_series(case, machine, entries, runs) for (machine, case), entries in cells.items()]


def _series(case: Case, machine: str, entries: list[tuple[int, RunCell]], runs: Sequence[TimedRun]) -> CellSeries:
    counts = Counter(way for _, entry in entries for way in entry.by_way)
    latest = {way: number for number, entry in entries for way in entry.by_way}
    way = max(counts, key=lambda way: (counts[way], latest[way]), default=())  # most runs measured it so
    work = next((entry.work for _, entry in reversed(entries) if entry.by_way), Work(amount=0))
    points, gaps = list[RunTime](), list[Gap]()
    for number, entry in entries:
        apart = _not_comparable(entry, way, work)
        time = None if apart else entry.by_way.get(way)
        points += [RunTime(number, time)] if time else []
        gaps += [Gap(number, lacks, time is not None)] if (lacks := apart or entry.lacks) else []
    last = entries[-1][0]
    beside, missing = runs[last].entries.keys(), None  # plans may take turns: a later run with half of these or more
    if points:
        like = (number for number, run in enumerate(runs) if run.machine == machine
                and 2 * len(beside & run.entries.keys()) >= len(beside))  # fmt: skip
        missing = next((number for number in like if number > last), None)
    return CellSeries(case, machine, work, tuple(points), tuple(gaps), way, missing)


def _not_comparable(entry: RunCell, way: Way, work: Work) -> Lack | None:
    """Why the times of a run do not belong to the series; None where they do, or there are none."""
    if not entry.by_way:
        return None
    if way not in entry.by_way:
        entry_way, usual = dict(next(iter(entry.by_way))), dict(way)
        names = sorted(name for name in entry_way.keys() | usual.keys() if entry_way.get(name) != usual.get(name))
        return Lack("another way", "; ".join(f"{name} {entry_way.get(name, 'none')}" for name in names))
    least, most = sorted((entry.work.amount, work.amount))
    if entry.work.unit != work.unit or least * _SAME_WORK < most:
        return Lack("other work", f"{entry.work.amount} {entry.work.unit}")
    return None


@dataclass(frozen=True)
class Renewal:
    """The run of that number is the first on this side in which these facts are others: name, and `old -> new`."""

    run: int
    machine: str
    side: SideKey
    facts: dict[str, str]


def renewals(runs: Sequence[TimedRun]) -> tuple[Renewal, ...]:
    """In time: each run against the one before it on the same side of the same machine, without restless facts."""
    before: dict[tuple[str, SideKey], dict[str, str]] = {}
    changed: list[Renewal] = []
    steps = 0
    for number, run in enumerate(runs):
        for side, facts in run.facts.items():
            earlier = before.get((run.machine, side))
            before[run.machine, side] = facts
            if earlier is not None:
                steps += 1
                known = dict.fromkeys((*_FIRST, *(name for name in (*earlier, *facts) if name not in _LAST), *_LAST))
                values = {name: (earlier.get(name, ""), facts.get(name, "")) for name in known if name not in _NO_CAUSE}
                texts = {name: _arrow(*both) for name, both in values.items() if len({*both}) > 1}
                if "boot" in texts:
                    texts["boot"] = "another one, the machine was restarted"
                if "library" in texts:  # whose file is another then
                    texts.pop("library-file", None)
                changed.append(Renewal(number, run.machine, side, texts))
    counts = Counter(name for renewal in changed for name in renewal.facts)
    most = max(_RESTLESS[1], _RESTLESS[0] * steps)
    kept = (replace(renewal, facts={name: text for name, text in renewal.facts.items() if counts[name] <= most})
            for renewal in changed)  # fmt: skip
    return tuple(renewal for renewal in kept if renewal.facts)


def _arrow(old: str, new: str) -> str:
    """What differs of a fact that lists several; of one only from the first word that differs."""
    before, after = old.split(", "), new.split(", ")
    gone, come = ([part for part in parts if part not in other] for parts, other in ((before, after), (after, before)))
    if len(gone) == len(come) == 1:  # `5.0.9` of `Open MPI 5.0.9` where the old one was 5.0.8
        words = come[0].split(" ")
        same = next((at for at, (a, b) in enumerate(zip(gone[0].split(" "), words, strict=False)) if a != b), 0)
        come = [" ".join(words[same:])]
    return " -> ".join(", ".join(parts) or "none" for parts in (gone, come))


@dataclass(frozen=True)
class Change:
    """Two levels of a series that follow each other; `run` is the first one of the level `after`.

    `ratio` is that level over the one before; `between` the first and the last run it may have begun with.
    """

    series: CellSeries
    before: Level
    after: Level
    run: int
    between: tuple[int, int]
    ratio: Estimate

    @property
    def slower(self) -> bool:
        return self.ratio.value > 1


@dataclass(frozen=True)
class Event:
    """Changes that began with one run, in the order of their series; `before` is the last run before all of them.

    `facts` of the environment that changed in a run which they may have begun with, by its number.
    """

    run: int
    before: int
    slower: bool
    changes: tuple[Change, ...]
    facts: dict[int, dict[str, str]]


def events(changes: Sequence[Change], renewed: Sequence[Renewal]) -> list[Event]:
    """All changes, each in one event; the latest first."""
    ungrouped, events_of = list(changes), []
    while ungrouped:
        fits = Counter(place for change in ungrouped for place in _places(change))
        counts = Counter((change.run, change.slower, change.series.machine) for change in ungrouped)
        most = max(counts, key=lambda place: (fits[place], counts[place], -place[0]))
        events_of.append(_event(*most, [change for change in ungrouped if most in _places(change)], renewed))
        ungrouped = [change for change in ungrouped if most not in _places(change)]
    return sorted(events_of, key=lambda event: (-event.run, not event.slower))


def _places(change: Change) -> list[tuple[int, bool, str]]:
    """Where it may have begun: runs near the best one."""
    first, last = max(change.between[0], change.run - _NEAR), min(change.between[1], change.run + _NEAR)
    return [(run, change.slower, change.series.machine) for run in range(first, last + 1)]


def _event(run: int, slower: bool, machine: str, members: list[Change], renewed: Sequence[Renewal]) -> Event:
    sides = {side_of(change.series.case) for change in members}
    before = min(change.series.points[change.after.start - 1].run for change in members)  # the last with a time
    first = min(before + 1, *(change.between[0] for change in members))
    last = max(run, *(change.between[1] for change in members))
    facts: dict[int, dict[str, str]] = {}
    for renewal in renewed:
        if renewal.machine == machine and renewal.side in sides and first <= renewal.run <= last:
            # runs without a time of these cells may lie between
            facts.setdefault(run if before < renewal.run <= run else renewal.run, {}).update(renewal.facts)
    return Event(run, before, slower, tuple(members), facts)


@dataclass(frozen=True)
class Trend:
    """A series with its levels, in time, and the changes between them."""

    series: CellSeries
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]

    @property
    def now(self) -> tuple[float, float]:
        """The time now over the shortest and over the longest of the levels that the changes lie between; 1 without."""
        if not self.changes:
            return 1.0, 1.0
        first = self.levels.index(self.changes[0].before)
        *before, last = (self.series.time(level).value for level in self.levels[first:])
        return last / min(before), last / max(before)


@dataclass(frozen=True)
class LatestRun:
    """The last run of `of` cells, and those outside their levels, with the time over the level, the farthest first."""

    run: int
    of: int
    cells: tuple[tuple[CellSeries, float], ...]


@dataclass(frozen=True)
class History:
    """The runs of a folder from the first to the last, and what changed, from the run `first` on.

    `left_out` are no runs, `flaws` what is not reliable, `latest` the latest runs with cells outside their levels.
    """

    name: str
    runs: tuple[TimedRun, ...]
    left_out: tuple[str, ...]
    flaws: tuple[Flaw, ...]
    cells: tuple[Trend, ...]
    events: tuple[Event, ...]
    renewals: tuple[Renewal, ...]
    correlation: Correlation
    margin: float
    latest: tuple[LatestRun, ...] = ()
    first: int = 0


def history(path: Path, fixed: Sequence[str], margin: float) -> History:
    """The history of the runs in a folder with a cell of `fixed` (`policy=multi`), or RequestError for lack of one."""
    runs, left_out, flaws = _read(path, fixed)
    series = all_series(runs)
    traces = [cell_series.trace for cell_series in series]
    segmented, correlation = change_points.find(traces, change_points.spread_of(margin))
    trends = []
    for cell_series, trace, levels in zip(series, traces, segmented, strict=True):
        lasting = change_points.matter(trace.values, levels, margin)
        changes = tuple(_change(cell_series, *steps, margin) for steps in pairwise(lasting))
        trends.append(Trend(cell_series, lasting, changes))
    renewed = renewals(runs)
    recent = tuple(events([change for trend in trends for change in trend.changes], renewed))
    latest = tuple(_latest(runs, trends, margin))
    return History(str(path), runs, left_out, flaws, tuple(trends), recent, renewed, correlation, margin, latest)


def _change(series: CellSeries, before: Level, after: Level, margin: float) -> Change:
    trace, half = series.trace, max(point.time.resolution for point in series.points)  # steps of the clock
    old, new = (np.exp(trace.values[level.start : level.stop]) for level in (before, after))
    first, last = (int(trace.runs[at]) for at in change_points.may_begin(trace.values, before, after, margin))
    ratio = ratio_of_sides(new, old, half_steps=(half, half))
    return Change(series, before, after, int(trace.runs[after.start]), (first, last), ratio)


def _latest(runs: Sequence[TimedRun], trends: Sequence[Trend], margin: float) -> Iterator[LatestRun]:
    """Runs with cells outside, the latest first; of cells whose last record has a time, and is of a latest run."""
    on_machine = grouped((run.machine, number) for number, run in enumerate(runs))
    current = [
        trend for trend in trends if trend.series.tested and trend.series.missing is None
        and trend.series.points[-1].run == trend.series.last >= on_machine[trend.series.machine][-_LATEST:][0]
    ]  # fmt: skip
    ratios = change_points.outside(
        [trend.series.trace for trend in current], [trend.levels for trend in current], margin
    )
    last = [trend.series.last for trend in current]
    for number in sorted({last[cell] for cell in ratios}, reverse=True):
        cells = tuple((current[cell].series, ratio) for cell, ratio in ratios.items() if last[cell] == number)
        yield LatestRun(number, last.count(number), cells)


def since_run(whole: History, run: int) -> History:
    """With only the changes that began with the run of that number or later; all times and levels remain."""
    cells = tuple(replace(cell, changes=tuple(change for change in cell.changes if change.run >= run))
                  for cell in whole.cells)  # fmt: skip
    later = tuple(event for event in whole.events if event.run >= run)
    latest = tuple(latest_run for latest_run in whole.latest if latest_run.run >= run)
    return replace(whole, cells=cells, first=run, events=later, latest=latest)
