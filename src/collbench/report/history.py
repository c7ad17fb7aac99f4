"""A history in words, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from collbench.analysis.estimate import Estimate
from collbench.analysis.history.change_points import FEWEST, LEAST
from collbench.analysis.history.history import CellChange, Event, History, LatestRun, Series, Told, told
from collbench.report.headings import heading
from collbench.report.tables import Table, without_empty
from collbench.schema.case import Case
from collbench.units import counted, format_duration, format_size


@dataclass(frozen=True)
class Name:
    """`allreduce sum float32`, `mpich single strict`, `64K`, `EPYC 7003, 4 cores`; empty where all cells share it."""

    what: str
    place: str
    size: str
    machine: str

    @property
    def without_size(self) -> str:
        return ", ".join(filter(None, (self.what, self.place, self.machine)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.what, self.place, self.size, self.machine))) or "the cell"


class Names:
    """The names of all series of a history. `shared` is what all of them have in common."""

    def __init__(self, all_series: Sequence[Series]) -> None:
        parts = [heading(one.case).split(", ") for one in all_series]
        common = [part for part in parts[0] if all(part in own for own in parts)] if parts else []
        first = parts[0][0] if parts else ""
        dropped = [part for part in common if part != first]  # the operation is always named
        places = {_place(one.case) for one in all_series}
        machines = {one.machine for one in all_series}
        self.shared = ", ".join(dropped)
        self._names = {
            id(one): Name(
                ", ".join(part for part in own if part not in dropped), _place(one.case) if len(places) > 1 else "",
                format_size(one.case["size"]) if "size" in one.case.what else "",
                one.machine if len(machines) > 1 else "",
            )
            for one, own in zip(all_series, parts, strict=True)
        }  # fmt: skip
        self._sizes: dict[str, set[int]] = {}
        for one in all_series:
            self._sizes.setdefault(self[one].without_size, set()).add(one.case["size"] or 0)

    def __getitem__(self, series: Series) -> Name:
        return self._names[id(series)]

    def together(self, several: Iterable[Series]) -> str:
        """`allreduce 64K..1M (host, multi strict) and bcast 8`: neighbouring sizes as a range, equal places once."""
        by_place: dict[tuple[str, str], list[Series]] = {}
        for one in several:
            name = self[one]
            by_place.setdefault((name.what, ", ".join(filter(None, (name.place, name.machine)))), []).append(one)
        places: dict[str, list[str]] = {}
        for (what, place), members in by_place.items():
            places.setdefault(f"{what} {self._ranges(members)}".strip(), []).append(place)
        return _and([f"{what} ({', '.join(where)})" if any(where) else what for what, where in places.items()])

    def _ranges(self, members: list[Series]) -> str:
        if not self[members[0]].size:
            return ""
        order = sorted(self._sizes[self[members[0]].without_size])
        wanted = sorted({order.index(one.case["size"]) for one in members})
        if len(wanted) == len(order) > 2:
            return "all sizes"
        ranges: list[list[int]] = []
        for index in wanted:
            if ranges and ranges[-1][-1] == index - 1:
                ranges[-1].append(index)
            else:
                ranges.append([index])
        return ", ".join(_range([format_size(order[index]) for index in one]) for one in ranges)


def _range(sizes: list[str]) -> str:
    return ", ".join(sizes) if len(sizes) < 3 else f"{sizes[0]}..{sizes[-1]}"


#: More are counted.
_MOST = 3


def _and(words: list[str]) -> str:
    more = len(words) - _MOST
    if more > 0:
        return f"{', '.join(words[:_MOST])} and {more} more"
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _place(case: Case) -> str:
    return f"{case.where.image or ''} {case.where.text}".strip()


#: More notes of one kind are counted.
MOST = 4

#: A correlation of neighbouring runs that is worth a line.
TOLD = 0.1

#: From here on a ratio is told as such, and not in per cent.
_TIMES = 2.0


def sentence(history: History, names: Names) -> str:
    """`1 change in 2 of 40 cells over 31 runs, 2026-10-24 to 2026-11-23: allreduce 64K slower, +12.0 % ...`."""
    runs = history.runs.runs
    cells = [told for told in history.cells if told.tested]
    span = f"{counted(len(runs), 'run')}, {runs[0].day} to {runs[-1].day}"
    if not cells:
        return f"No cell has {FEWEST} runs yet, without which no change can be told: {span}"
    if history.first >= len(runs):
        return f"No run since then: {span}"
    since = f" since {runs[history.first].day}" if history.first else ""
    if not history.events:
        where = f"{since} in {counted(len(cells), 'cell')} over {span}"
        if history.correlation >= TOLD:
            return f"No change is established{where}; only large ones could be, because neighbouring runs are alike"
        return f"No change beyond {history.margin * 100:g} %{where}"
    changed = sum(bool(told.changes) for told in cells)
    number = counted(len(history.events), "change")
    latest = "" if len(history.events) == 1 else "the latest: "
    where = f"{changed} of {counted(len(cells), 'cell')}{since} over {span}"
    return f"{number} in {where}; {latest}{line(history.events[0], history, names)}"


def line(event: Event, history: History, names: Names) -> str:
    """`allreduce 64K..1M slower, +11.2 %, since 2026-11-03 (run b; library 5.0.8 -> 5.0.9 in the same run)`."""
    run = history.runs.runs[event.run]
    word = "slower" if event.slower else "faster"
    what = names.together(change.series for change in event.changes)
    inside = [f"run {run.name}"] if run.name != run.day else []
    inside += [f"{told(event.facts)} in the same run"] if event.facts else []
    inside += [f"{told(facts)} in run {history.runs.runs[number].name}, which it may have begun with"
               for number, facts in event.nearby.items()]  # fmt: skip
    return f"{what} {word}, {_size(event)}, since {run.day}" + (f" ({'; '.join(inside)})" if inside else "")


def _size(event: Event) -> str:
    sizes = sorted({signed(change.change.ratio.value) for change in event.changes}, key=float)
    return f"{sizes[0]} %" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} %"


def latest(history: History, names: Names) -> list[str]:
    """`latest run 2026-11-23: 2 of 40 cells lie outside what their level has shown (farthest: bcast 8, ...); ...`."""
    return [_latest(one, history, names) for one in history.latest]


def _latest(one: LatestRun, history: History, names: Names) -> str:
    series, ratio = one.cells[0]
    several = len(one.cells) > 1
    where = f"latest run {history.runs.runs[one.run].name}: {len(one.cells)} of {counted(one.of, 'cell')}"
    farthest = f"{'farthest: ' * several}{names.together([series])}, {over_level(ratio)}"
    return (f"{where} {'lie' if several else 'lies'} outside what {'their' if several else 'its'} level has shown "
            f"({farthest}); no change is established until {LEAST} runs show it")  # fmt: skip


def over_level(ratio: float) -> str:
    """`10.1 times its level`, `30.0 % above its level`, `20.0 % below its level`."""
    if ratio >= _TIMES:
        return f"{ratio:.1f} times its level"
    return f"{abs(ratio - 1) * 100:.1f} % {'above' if ratio > 1 else 'below'} its level"


def signed(ratio: float) -> str:
    """`+12.0` for 1.12."""
    return f"{(ratio - 1) * 100:+.1f}"


def notes(history: History, names: Names) -> list[str]:
    """What a reader must know, each line once."""
    runs = history.runs
    untested = [one for one in history.cells if one.series.points and not one.tested]
    found = [f"{counted(len(untested), 'cell')} with fewer than {FEWEST} runs: changes cannot be told yet"
             ] if untested and len(untested) < len(history.cells) else []  # fmt: skip
    machines = list(dict.fromkeys(run.machine for run in runs.runs))
    if len(machines) > 1:
        found.append(f"{len(machines)} machines, each with series of its own: {'; '.join(machines)}")
    found += not_measured(history, names)
    if history.correlation >= TOLD:
        found.append(
            f"neighbouring runs resemble each other (correlation {history.correlation:.1f}): slow waves look like "
            "changes, so only larger ones are told"
        )
    if history.surroundings.restless:
        found.append(f"differs in many runs, and is told of none: {', '.join(history.surroundings.restless)}")
    return found + _first([f"left out: {why}" for why in runs.left_out]) + _first(list(runs.doubts))


def not_measured(history: History, names: Names) -> list[str]:
    """Cells that the latest runs failed, or have no record of; and how often others failed."""
    runs = history.runs.runs
    all_series = [one.series for one in history.cells]
    last: dict[str, list[Series]] = {}
    for series in all_series:
        if series.missing is not None:
            last.setdefault(f"no record since run {runs[series.missing].name}", []).append(series)
        elif series.lacking:
            last.setdefault(f"not measured in run {runs[series.last].name}, {series.lacking}", []).append(series)
    lines = _first([f"{why}: {names.together(cells)}" for why, cells in last.items()])
    skipped = sum(not series.points and not series.lacking for series in all_series)
    before = sum(gap.run != series.last for series in all_series if series.points for gap in series.gaps)
    lines += [f"{counted(skipped, 'cell')} skipped in every run: --all"] if skipped else []
    lines += (
        [f"earlier runs lack {counted(before, 'time')}, because a cell failed or was skipped: --all"] if before else []
    )
    return lines


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - MOST
    return lines[:MOST] + ([f"{more} more of these"] if more > 0 else [])


def document(history: History, names: Names) -> dict[str, Any]:
    """Times in seconds; runs by their number in time; null where there is none."""
    runs = history.runs.runs
    return {
        "answer": sentence(history, names), "margin": history.margin, "correlation": history.correlation,
        "runs": [{"name": run.name, "started": run.started.isoformat(), "machine": run.machine} for run in runs],
        "events": [
            {"run": event.run, "verdict": "slower" if event.slower else "faster", "text": line(event, history, names),
             "facts": event.facts, "nearby": {str(number): facts for number, facts in event.nearby.items()},
             "cells": [str(names[change.series]) for change in event.changes]}
            for event in history.events
        ],
        "latest": [
            {"run": one.run, "of": one.of, "text": text,
             "cells": [{"name": str(names[series]), "ratio": ratio} for series, ratio in one.cells]}
            for one, text in zip(history.latest, latest(history, names), strict=True)
        ],
        "cells": [_cell_document(one, names) for one in history.cells],
        "environment": [{"run": one.run, "machine": one.machine, "image": one.side[0], "facts": one.facts}
                        for one in history.surroundings.renewals],
        "notes": notes(history, names), "left_out": history.runs.left_out, "doubts": history.runs.doubts,
    }  # fmt: skip


def _cell_document(one: Told, names: Names) -> dict[str, Any]:
    from msgspec import to_builtins

    series = one.series
    return {
        "name": str(names[series]), "case": to_builtins(series.case), "machine": series.machine, "tested": one.tested,
        "points": [{"run": point.run, "seconds": point.time.value, "interval": point.time.interval,
                    "launches": point.time.n} for point in series.points],
        "not_measured": [{"run": gap.run, "why": gap.why} for gap in series.gaps],
        "partly": [{"run": gap.run, "why": gap.why} for gap in series.partly],
        "missing": series.missing, "changes": [_change(change) for change in one.changes],
    }  # fmt: skip


def _change(change: CellChange) -> dict[str, Any]:
    ratio = change.change.ratio
    return {"run": change.run, "between": change.between, "ratio": ratio.value, "interval": ratio.interval,
            "p_adjusted": change.change.p}  # fmt: skip


#: More rows of changes are counted.
MOST_ROWS = 20

CHANGES = ("since", "verdict", "what", "place", "size (B)", "machine", "difference (%)", "difference 95 %", "before",
           "after", "runs", "may have begun", "run", "in the same run")  # fmt: skip
CELLS = ("what", "place", "size (B)", "machine", "now", "now 95 %", "runs", "changes", "not measured")
ENVIRONMENT = ("since", "run", "side", "what changed", "machine")


def tables(history: History, names: Names, every: bool = False) -> list[Table]:
    """The answer with its notes, and the changes; every cell, with `every`."""
    more = [line(event, history, names) for event in history.events[1:]]
    answer = Table(sentence(history, names), (), (), (*more, *latest(history, names), *notes(history, names)))
    if every:
        return [answer, *changed(history, names), *complete(history, names)]
    return [answer, *changed(history, names, MOST_ROWS)]


def changed(history: History, names: Names, most: int | None = None) -> list[Table]:
    """A row for each change, the latest first, or for the first so many; no table without a change."""
    rows = [row for event in history.events for row in _rows(event, history, names)]
    more = len(rows[most:]) if most is not None else 0
    left_out = (f"{counted(more, 'more row')}: --all",) if more else ()
    return [without_empty(Table(_title("what changed", names), CHANGES, tuple(rows[:most]), left_out))] if rows else []


def complete(history: History, names: Names) -> list[Table]:
    """Every cell, and every change of the environment."""
    rows = tuple(_cell(one, history, names) for one in history.cells)
    return [without_empty(Table(_title("every cell", names), CELLS, rows)), *environment(history)]


def environment(history: History) -> list[Table]:
    """What changed in the environment, run by run."""
    runs = history.runs.runs
    machines = len({run.machine for run in runs}) > 1
    rows = dict.fromkeys(
        (runs[one.run].day, runs[one.run].name, one.side[0] or "", told(one.facts), one.machine if machines else "")
        for one in history.surroundings.renewals
    )
    return [without_empty(Table("what changed in the environment", ENVIRONMENT, tuple(rows)))] if rows else []


def _title(what: str, names: Names) -> str:
    return f"{what}: {names.shared}" if names.shared else what


def _rows(event: Event, history: History, names: Names) -> Iterable[tuple[str, ...]]:
    by_series = {id(one.series): one for one in history.cells}
    for change in event.changes:
        yield _row(change, event, by_series[id(change.series)], history, names)


def _row(change: CellChange, event: Event, one: Told, history: History, names: Names) -> tuple[str, ...]:
    runs, name = history.runs.runs, names[change.series]
    before, after = next(pair for pair in pairwise(one.levels) if pair[1].start == change.change.at)
    first, last = (runs[number] for number in change.between)
    span = "" if first is last else f"{first.day} .. {last.day}"
    ratio, verdict = change.change.ratio, "slower" if change.slower else "faster"
    return (runs[change.run].day, verdict, name.what, name.place, name.size, name.machine, signed(ratio.value),
            _percent(ratio), format_duration(one.time(before).value), format_duration(one.time(after).value),
            f"{before.stop - before.start} and {after.stop - after.start}", span, runs[change.run].name,
            told(event.facts))  # fmt: skip


def _cell(one: Told, history: History, names: Names) -> tuple[str, ...]:
    name, series = names[one.series], one.series
    now = one.time(one.levels[-1]) if series.points else None
    days = ", ".join(
        f"{signed(change.change.ratio.value)} % since {history.runs.runs[change.run].day}" for change in one.changes
    )
    span = "" if now is None or now.interval is None else " .. ".join(map(format_duration, now.interval))
    time = "" if now is None else format_duration(now.value)
    return (name.what, name.place, name.size, name.machine, time, span, str(len(series.points)),
            days or ("none" if one.tested else "too few runs"), _gaps(one, history))  # fmt: skip


def _gaps(one: Told, history: History) -> str:
    gaps, runs = (*one.series.gaps, *one.series.partly), history.runs.runs
    if not gaps:
        return ""
    latest = max(gaps, key=lambda gap: gap.run)
    return f"{counted(len(gaps), 'run')}, the latest {runs[latest.run].name}: {latest.why}"


def _percent(ratio: Estimate) -> str:
    return "" if ratio.interval is None else " .. ".join(map(signed, ratio.interval))
