"""A history in words, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePath
from shlex import quote
from typing import Any, NamedTuple

from collbench.analysis.history.change_points import FEWEST, LEAST, WAVES
from collbench.analysis.history.history import Change, Event, History, Lack, Series, Trend
from collbench.report.headings import heading
from collbench.report.numbers import change, span
from collbench.report.tables import Table, without_empty
from collbench.schema.case import Case
from collbench.units import counted, format_duration, format_size


class Name(NamedTuple):
    """`allreduce sum float32`, `mpich single strict`, `64K`, `EPYC 7003, 4 cores`; empty where all cells share it."""

    what: str
    place: str
    size: str
    machine: str

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


class Names:
    """The names of all series of a history. `shared` is what all of them have in common."""

    def __init__(self, all_series: Sequence[Series]) -> None:
        parts = [heading(one.case).split(", ") for one in all_series]
        dropped = [
            part for part in next(iter(parts), [])[1:] if all(part in own for own in parts)
        ]  # the operation is always named
        places, machines = {_place(one.case) for one in all_series}, {one.machine for one in all_series}
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
            self._sizes.setdefault(self._without_size(one), set()).add(one.case["size"] or 0)

    def __getitem__(self, series: Series) -> Name:
        return self._names[id(series)]

    def _without_size(self, series: Series) -> str:
        name = self[series]
        return f"{name.what}|{', '.join(filter(None, (name.place, name.machine)))}"

    def groups(self, several: Iterable[Series]) -> dict[str, list[Series]]:
        """By operation, place and machine: `allreduce 64K..1M (host)`, with neighbouring sizes as a range."""
        found: dict[str, list[Series]] = {}
        for one in several:
            found.setdefault(self._without_size(one), []).append(one)
        named = {}
        for key, members in found.items():
            what, _, where = key.partition("|")
            named[f"{what} {self._ranges(key, members)}".strip() + (f" ({where})" if where else "")] = members
        return named

    def _ranges(self, key: str, members: Sequence[Series]) -> str:
        if not self[members[0]].size:
            return ""
        order = sorted(self._sizes[key])
        wanted = [order.index(one.case["size"]) for one in members]
        if len(wanted) == len(order) > 2:
            return "all sizes"
        ranges: list[list[str]] = []
        for index in sorted(wanted):
            if index - 1 not in wanted:
                ranges.append([])
            ranges[-1].append(format_size(order[index]))
        return ", ".join(", ".join(one) if len(one) < 3 else f"{one[0]}..{one[-1]}" for one in ranges)


def _place(case: Case) -> str:
    return f"{case.where.image or ''} {case.where.text}".strip()


GRID = ("since", "change", "where", "with")

#: The most words and characters of the sentence, rows of the grid, characters of its last columns, lines of caveats.
WORDS, LONG, MOST_ROWS, TEXTS, MOST_LINES = 25, 100, 16, 66, 3


def sentence(history: History, names: Names) -> str:
    """`slower by 12 % since 2026-11-03 for allreduce 64K..1M, with library Open MPI 5.0.8 -> 5.0.9`."""
    runs = history.runs.runs
    tested = sum(one.tested for one in history.cells)
    if not tested:
        most = max((len(one.series.points) for one in history.cells), default=0)
        return f"too few runs to tell a change: {most} of {FEWEST}"
    if history.first >= len(runs):
        return "no run since then"
    if history.events:
        event, several = history.events[0], len(history.events) > 1
        start = f"{len(history.events)} changes, the latest: " if several else ""
        cells = f" in {len(event.changes)} of {counted(tested, 'cell')}"
        where = f" for {' and '.join(names.groups(change.series for change in event.changes))}"
        facts = f", with {briefly(event.facts[event.run])}" if event.run in event.facts else ""
        size = _ratios(one.ratio.value for one in event.changes).replace("+", "").replace("-", "")
        size = size if "%" in size else f"a factor of {size.removesuffix('x')}"
        said = [f"{start}{'slower' if event.slower else 'faster'} by {size} since {runs[event.run].day}{end}"
                for end in (where + facts, cells + facts, where, cells)]  # fmt: skip
        return next(filter(_short, said), said[-1])
    if history.latest:
        one = history.latest[0]
        series, ratio = one.cells[0]
        said = [f"no change yet, but the latest run lies outside in {len(one.cells)} of {counted(one.of, 'cell')}"]
        farthest = f"{said[0]}{', farthest' * (len(one.cells) > 1)}: {next(iter(names.groups([series])))}"
        said.append(f"{farthest}, {change(ratio)}")
        return said[_short(said[1])]
    none = f"no change beyond {history.margin * 100:g} %"
    return {
        "none": f"{none} in {counted(tested, 'cell')} over {counted(len(runs) - history.first, 'run')}",
        "alike": f"{none} seen; only large ones can be, because neighbouring runs resemble each other",
        "unknown": f"{none} seen; {counted(len(runs), 'run')} are too few to tell small ones from waves",
    }[history.correlation.dependence]


def _short(text: str) -> bool:
    return len(text.split()) <= WORDS and len(text) <= LONG


def _ratios(ratios: Iterable[float]) -> str:
    """`+12 to +13 %`, or the one ratio; the least first."""
    low, *_, high = [*sorted(ratios, key=lambda ratio: abs(ratio - 1))] * 2
    return change(low) if change(low) == change(high) else span(low, high)


def briefly(facts: dict[str, str]) -> str:
    """`library Open MPI 5.0.8 -> 5.0.9 and 2 more`."""
    name, text = next(iter(facts.items()))
    return f"{name} {text}" + (f" and {len(facts) - 1} more" if len(facts) > 1 else "")


def in_full(facts: dict[str, str]) -> str:
    """`library Open MPI 5.0.8 -> 5.0.9; kernel 6.1 -> 6.6`."""
    return "; ".join(f"{name} {text}" for name, text in facts.items())


def grid(history: History, names: Names) -> Table:
    """A row for each change of an operation and place, and of the latest run where it is outside; the latest first."""
    runs, rows = history.runs.runs, []
    for one in history.latest:
        ratios = {id(series): ratio for series, ratio in one.cells}
        for name, members in names.groups(series for series, _ in one.cells).items():
            size = _ratios(ratios[id(series)] for series in members)
            rows.append((runs[one.run].day, size, name, "latest run only"))
    for event in history.events:
        ratios = {id(one.series): one.ratio.value for one in event.changes}
        facts = event.facts.get(event.run) or next(iter(event.facts.values()), {})
        near = f" on {runs[min(event.facts)].day}" if facts and event.run not in event.facts else ""
        for name, members in names.groups(one.series for one in event.changes).items():
            size = _ratios(ratios[id(series)] for series in members)
            rows.append((runs[event.run].day, size, name, f"{briefly(facts)}{near}" if facts else ""))
    left = len(rows) - MOST_ROWS
    room = min(max((len(row[3]) for row in rows), default=0), TEXTS // 2)
    short = tuple((*row[:2], _shortened(row[2], TEXTS - room), _shortened(row[3], room)) for row in rows[:MOST_ROWS])
    return without_empty(Table("", GRID, short, (f"{left} more rows: --all",) * (left > 0)))


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def tables(history: History, names: Names, every: bool = False) -> list[Table]:
    """The answer in a sentence, a grid, what must be known of it, what to do next; with `every` all tables instead."""
    lines = [common(history, names), *caveats(history, names)]
    shown = Table("", (), ()) if every else grid(history, names)
    if not every:
        left = len(lines[1 + MOST_LINES :])
        more = [f"{left} more, and every cell: --all"] if left else []
        lines = [*(_shortened(line, LONG - 2) for line in (*lines[: 1 + MOST_LINES], *shown.notes)), *more]
    answer = Table(sentence(history, names), shown.columns, shown.rows, (*lines, *_next(history)))
    return [answer, *(table for table in complete(history, names) if every and table.rows)]


def common(history: History, names: Names) -> str:
    """`41 runs until 2026-11-23; 40 cells: backend mpi`."""
    runs = history.runs.runs
    shared = f": {names.shared}" if names.shared else ""
    return f"{counted(len(runs), 'run')} until {runs[-1].day}; {counted(len(history.cells), 'cell')}{shared}"


def _next(history: History) -> list[str]:
    runs = history.runs.runs
    if history.events:
        both = (quote(str(PurePath(history.runs.name, runs[number].name)))
                for number in (history.events[0].before, history.events[0].run))  # fmt: skip
        return [f"next: collbench compare {' '.join(both)}"]
    return [f"next: measure again, {LEAST} runs that hold are a change"] if history.latest else []


def _lack_text(lacks: Lack) -> str:
    launches = counted(lacks.launches, "launch", "launches")
    if lacks.kind == "wrong results":
        return f"results were wrong in {launches}"
    if lacks.kind == "not resolved":
        return "the clock does not resolve it, or others used its cores"
    if lacks.kind == "another way":
        return f"measured in another way: {lacks.detail}"
    return f"{lacks.kind}{f' in {launches}' if lacks.launches else ''}: {lacks.detail}"


def caveats(history: History, names: Names) -> list[str]:
    """What could mislead, the gravest first."""
    runs, correlation = history.runs.runs, history.correlation
    lacking: dict[str, list[Series]] = {}
    for one in history.cells:
        series = one.series
        if series.missing is not None:
            lacking.setdefault(f"no record since run {runs[series.missing].name}", []).append(series)
        elif series.lacks:
            said = f"not measured in run {runs[series.last].name}, {_lack_text(series.lacks)}"
            lacking.setdefault(said, []).append(series)
    lines = [f"{why}: {', '.join(names.groups(cells))}" for why, cells in lacking.items()]
    if history.latest and history.events:
        outside = sum(len(one.cells) for one in history.latest)
        lines.append(
            f"the latest run lies outside its level in {counted(outside, 'cell')}; a change needs {LEAST} runs"
        )
    if any(one.tested for one in history.cells):
        known = f"neighbouring runs resemble each other (r = {correlation.estimate:.2f})"
        lines += {"none": [], "alike": [f"{known}: waves with r up to {correlation.limit:.2f} are allowed for"],
                  "unknown": [f"whether runs resemble their neighbours is unknown: r = {WAVES} is not excluded, "
                              f"{correlation.limit:.2f} allowed for"]}[correlation.dependence]  # fmt: skip
    untested = sum(bool(one.series.points) and not one.tested for one in history.cells)
    lines += [f"{counted(untested, 'cell')} with fewer than {FEWEST} runs: not tested"] if untested else []
    machines = dict.fromkeys(run.machine for run in runs)
    lines += [f"{len(machines)} machines, each with its own series: {'; '.join(machines)}"] if len(machines) > 1 else []
    skipped = sum(not one.series.points and not one.series.lacks for one in history.cells)
    lines += [f"{counted(skipped, 'cell')} skipped in every run"] if skipped else []
    left_out = (f"left out: {why.removeprefix(f'{history.runs.name}/')}" for why in history.runs.left_out)
    return [*lines, *left_out, *history.runs.doubts]


CHANGES = ("since", "verdict", "what", "place", "size (B)", "machine", "difference (%)", "difference 95 %", "before",
           "after", "runs", "may have begun", "run", "in the same run")  # fmt: skip
CELLS = ("what", "place", "size (B)", "machine", "now", "now 95 %", "runs", "changes", "not measured")
ENVIRONMENT = ("since", "run", "side", "what changed", "machine")


def complete(history: History, names: Names) -> tuple[Table, Table, Table]:
    """Every change, every cell, and every change of the environment."""
    cells, runs = {id(one.series): one for one in history.cells}, history.runs.runs
    shared = f": {names.shared}" if names.shared else ""
    machines = len({run.machine for run in runs}) > 1
    changed = tuple(_row(change, event, cells[id(change.series)], history, names)
                    for event in history.events for change in event.changes)  # fmt: skip
    renewed = tuple(dict.fromkeys(
        (runs[one.run].day, runs[one.run].name, one.side[0] or "", in_full(one.facts), one.machine if machines else "")
        for one in history.renewals
    ))  # fmt: skip
    every = tuple(_cell(one, history, names) for one in history.cells)
    return (without_empty(Table(f"what changed{shared}", CHANGES, changed)),
            without_empty(Table(f"every cell{shared}", CELLS, every)),
            without_empty(Table("what changed in the environment", ENVIRONMENT, renewed)))  # fmt: skip


def _row(change: Change, event: Event, one: Trend, history: History, names: Names) -> tuple[str, ...]:
    runs, ratio = history.runs.runs, change.ratio
    before, after = next(pair for pair in pairwise(one.levels) if pair[1].start == change.at)
    first, last = (runs[number].day for number in change.between)
    return (runs[change.run].day, "slower" if change.slower else "faster", *names[change.series],
            signed(ratio.value), " .. ".join(map(signed, ratio.interval or ())),
            format_duration(one.time(before).value), format_duration(one.time(after).value),
            f"{before.stop - before.start} and {after.stop - after.start}",
            "" if first == last else f"{first} .. {last}", runs[change.run].name,
            in_full(event.facts.get(event.run, {})))  # fmt: skip


def signed(ratio: float) -> str:
    """`+12.0` for 1.12."""
    return f"{(ratio - 1) * 100:+.1f}"


def _cell(one: Trend, history: History, names: Names) -> tuple[str, ...]:
    gaps, runs = one.series.gaps, history.runs.runs
    now = one.time(one.levels[-1]) if one.series.points else None
    days = ", ".join(f"{signed(change.ratio.value)} % since {runs[change.run].day}" for change in one.changes)
    gap = max(gaps, key=lambda gap: gap.run, default=None)
    lacks = f"{counted(len(gaps), 'run')}, the latest {runs[gap.run].name}: {_lack_text(gap.lacks)}" if gap else ""
    return (*names[one.series], format_duration(now.value) if now else "",
            " .. ".join(map(format_duration, (now and now.interval) or ())), str(len(one.series.points)),
            days or ("none" if one.tested else "too few runs"), lacks)  # fmt: skip


def document(history: History, names: Names) -> dict[str, Any]:
    """Times in seconds; runs by their number in time; null where there is none."""
    from msgspec import to_builtins

    return {
        "answer": sentence(history, names), "margin": history.margin, "correlation": to_builtins(history.correlation),
        "runs": [{"name": run.name, "started": run.started.isoformat(), "machine": run.machine}
                 for run in history.runs.runs],
        "events": [
            {"run": event.run, "before": event.before, "verdict": "slower" if event.slower else "faster",
             "facts": {str(number): facts for number, facts in event.facts.items()},
             "cells": [str(names[change.series]) for change in event.changes]}
            for event in history.events
        ],
        "latest": [{"run": one.run, "of": one.of,
                    "cells": [{"name": str(names[series]), "ratio": ratio} for series, ratio in one.cells]}
                   for one in history.latest],
        "cells": [
            {"name": str(names[one.series]), "tested": one.tested, **to_builtins(one.series),
             "changes": [{"run": change.run, "between": change.between, "ratio": to_builtins(change.ratio),
                          "p_adjusted": change.p} for change in one.changes]}
            for one in history.cells
        ],
        "environment": to_builtins(history.renewals),
        "notes": caveats(history, names), "left_out": history.runs.left_out, "doubts": history.runs.doubts,
    }  # fmt: skip
