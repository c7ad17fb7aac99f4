"""A history in one breath: how many changes, each in a line with all its cells, and what could mislead."""

from __future__ import annotations

from collbench.analysis.history.events import Event
from collbench.analysis.history.history import History, LatestRun
from collbench.analysis.history.scan import FEWEST, LEAST
from collbench.analysis.history.series import Series
from collbench.analysis.history.surroundings import told
from collbench.report.history.names import Names
from collbench.units import counted

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
