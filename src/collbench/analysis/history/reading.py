"""The runs of a folder in the order in which they were made, each with what a history needs of it and no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collbench.analysis import environment
from collbench.analysis.environment import Side, side_of
from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.observations import Cell, Observed, observe
from collbench.analysis.options import given_cells, parse_given
from collbench.analysis.same_launches import Source, refuse_same_sources, sources
from collbench.analysis.ways import How
from collbench.errors import RequestError, RunReadError
from collbench.schema.case import Case, own_axes
from collbench.schema.record import Work
from collbench.units import counted

#: Facts that say which machine it is. Where one of them differs, times are not those of one series.
MACHINE = ("simulated", "hosts", "cpu", "cores", "gpu")

#: Launches of one run are made within this time.
LONGEST = timedelta(days=1)


@dataclass(frozen=True)
class Entry:
    """What a run has of a cell: the median of its launches (s) by way of measuring; `why` it lacks all or some."""

    by_way: dict[How, Estimate]
    work: Work
    why: str = ""
    skipped: bool = False


@dataclass(frozen=True)
class TimedRun:
    """A run with its start. `machine` describes what it ran on; `facts` are those of each side, by name."""

    name: str
    started: datetime
    machine: str
    entries: dict[Case, Entry]
    facts: dict[Side, dict[str, str]]

    @property
    def day(self) -> str:
        """`2026-11-03`, in UTC."""
        return self.started.strftime("%Y-%m-%d")


@dataclass(frozen=True)
class RunsInTime:
    """The runs from the first to the last; `left_out` names folders that are none, `doubts` what is not reliable."""

    name: str
    runs: tuple[TimedRun, ...]
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]


def read_runs(path: Path, given: Sequence[str] = ()) -> RunsInTime:
    """All runs in the folder; those without a cell of `given` (`policy=multi`) are as if they were not there.

    Raises:
        RunReadError: there is no such folder.
        RequestError: it is a run, or holds none, or two with the same launches, or nothing is `given`.
    """
    if not path.is_dir():
        raise RunReadError(f"{path}: not a folder.")
    if (path / "manifest.json").exists():
        raise RequestError(f"{path}: this is one run. Name the folder that holds it and the runs before it.")
    runs, left_out, doubts, refused, read = [], list[str](), list[str](), list[str](), list[Source]()
    for folder in _folders(path, left_out):
        try:
            observed = observe(folder)
            run = _timed(folder.name, observed)
            read += sources(observed)
        except (RunReadError, RequestError) as error:
            left_out.append(str(error).removesuffix("."))
            continue
        except OSError as error:
            left_out.append(f"{error.filename}: {error.strerror}")
            continue
        try:
            wanted = parse_given(given, own_axes(observed.cells))
            runs.append(_only(run, given_cells(observed, wanted)) if wanted else run)
        except RequestError as error:
            refused.append(str(error))
        doubts += [f"{where}: the last record was cut off" for where in observed.truncated] + list(observed.doubts)
    if not runs:
        why = f" Left out: {'; '.join(left_out[:3])}." if left_out else ""
        raise RequestError(refused[0] if refused else f"{path}: no run in it.{why}")
    refuse_same_sources(read)
    runs.sort(key=lambda run: (run.started, run.name))
    return RunsInTime(str(path), tuple(runs), tuple(left_out), (*doubts, *_at_once(runs)))


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
    if apart := environment.unlike(observed):
        said = "; ".join(f"{fact} {values}" for fact, values in apart.items())
        raise RequestError(f"{observed.name}: the runs in it are not launches of the same ({said})")
    times = [_time(observed.name, manifest.created) for manifest in observed.manifests]
    if refused := _no_launches(observed, max(times) - min(times)):
        raise RequestError(f"{observed.name}: its {len(times)} runs {refused}, and are no launches of one run")
    if not observed.cells:
        raise RequestError(f"{observed.name}: no records in it")
    facts: dict[Side, dict[str, str]] = {}
    for case in observed.cells:
        if side_of(case) not in facts:
            facts[side_of(case)] = environment.facts(observed, [case])
    entries = {case: _entry(cell) for case, cell in observed.cells.items()}
    return TimedRun(name, min(times), _machine(next(iter(facts.values()))), entries, facts)


def _no_launches(observed: Observed, within: timedelta) -> str:
    """Why the runs of a folder are runs of their own, such as those of a month; empty for one run, and for launches."""
    if len(observed.manifests) < 2:
        return ""
    if any(manifest.experiment is not None for manifest in observed.manifests):
        return "have many launches each"
    return f"were made within {within.days} days" if within >= LONGEST else ""


def _time(name: str, created: str) -> datetime:
    try:
        time = datetime.fromisoformat(created)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{name}: its manifest does not say when it was made ({created[:40]!r})") from error


def _machine(facts: dict[str, str]) -> str:
    """`EPYC 7003, 4 cores`; with the number of hosts where there are several, and the GPUs."""
    hosts = f"{facts['hosts']} hosts" if facts["hosts"] != "1" else ""
    simulated = "simulated" if facts["simulated"] == "yes" else ""
    parts = (facts["cpu"], facts["cores"] and f"{facts['cores']} cores", facts["gpu"], hosts, simulated)
    return ", ".join(part for part in parts if part)


def _only(run: TimedRun, kept: Observed) -> TimedRun:
    entries = {case: entry for case, entry in run.entries.items() if case in kept.cells}
    return TimedRun(run.name, run.started, run.machine, entries, run.facts)


def _entry(cell: Cell) -> Entry:
    """Of launches whose median is not 0, and during which nobody else used the cores of a program."""
    cell = cell.without(cell.disturbed) if cell.disturbed else cell
    medians: dict[How, list[float]] = {}
    for way, median in zip(cell.ways, cell.medians, strict=True):
        if median > 0:
            medians.setdefault(way, []).append(median)
    by_way = {} if cell.wrong else {way: centre(of_way, half_step=cell.half_step) for way, of_way in medians.items()}
    skipped = cell.skipped > 0 and not (cell.failed or cell.wrong or medians)
    return Entry(by_way, cell.work, _lacking(cell, bool(medians)), skipped)


def _lacking(cell: Cell, measured: bool) -> str:
    reasons = "; ".join(sorted(cell.reasons))
    if cell.wrong:
        return f"results were wrong in {counted(cell.wrong, 'launch', 'launches')}"
    if cell.failed:
        return f"failed{f' in {cell.failed} launches' if measured else ''}: {reasons}"
    if measured:
        return ""
    return f"skipped: {reasons}" if cell.skipped else "the clock does not resolve it, or others used its cores"


def _at_once(runs: Sequence[TimedRun]) -> list[str]:
    """Runs that say they began at the same moment: copies, or made by a clock that was set back."""
    by_start: dict[datetime, list[str]] = {}
    for run in runs:
        by_start.setdefault(run.started, []).append(run.name)
    return [f"{' and '.join(names)} began at the same moment: are they copies?" for names in by_start.values()
            if len(names) > 1]  # fmt: skip
