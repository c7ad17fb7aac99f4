"""A history as tables: the answer, a row for each change, and with all cells a row for each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from collbench.analysis.estimate import Estimate
from collbench.analysis.history.events import CellChange, Event
from collbench.analysis.history.history import History, Told
from collbench.analysis.history.surroundings import told
from collbench.report.history.answer import latest, line, notes, sentence, signed
from collbench.report.history.names import Names
from collbench.report.tables import Table, without_empty
from collbench.units import counted, format_duration

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
