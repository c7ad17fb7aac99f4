"""A history as a page: the answer, when what changed, a plot for each cell that did, and the others folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collbench.analysis.environment import side_of
from collbench.analysis.history.history import History, Told
from collbench.report.history.answer import latest, line, notes, sentence
from collbench.report.history.names import Names
from collbench.report.history.tables import changed as of_changes
from collbench.report.history.tables import complete
from collbench.report.page.contents import Chapter
from collbench.report.page.drawing import Figure
from collbench.report.page.figures.timeline import timeline
from collbench.report.page.figures.trend import CAPTION, trend
from collbench.report.page.render import html
from collbench.report.page.section import Section
from collbench.units import counted

#: Plots of cells that changed, and of others: more make a page too large for browsers.
MOST_CHANGED, MOST_OTHERS = 60, 40

FOOTER = (
    "Times are medians of launch medians; a level is the median of its runs. How changes are found, and what that "
    "controls: docs/history.md of collbench."
)


def page(history: History, names: Names) -> str:
    """One HTML file.

    Raises:
        RequestError: Jinja or Matplotlib is not installed.
    """
    changed = _changed(history)
    others = [one for one in history.cells if not one.changes and one.series.points]
    cells, *environment = complete(history, names)
    evidence = _plots(f"{counted(len(changed), 'cell')} that changed", changed, MOST_CHANGED, history, names)
    rest = _plots(f"{counted(len(others), 'cell')} without a change", others, MOST_OTHERS, history, names)
    sections = (
        *([replace(evidence, folded_tables=tuple(of_changes(history, names)))] if changed else []),
        replace(rest, figures=(), folded=rest.figures, folded_tables=(cells,), fold="Their plots"),
    )
    picture = (timeline(history, names, changed, "timeline"),) if changed else ()
    lines = (sentence(history, names), *(line(event, history, names) for event in history.events[1:]),
             *latest(history, names))  # fmt: skip
    about = ", ".join(filter(None, (*dict.fromkeys(run.machine for run in history.runs.runs), names.shared)))
    run = Chapter(about, f"History: {history.runs.name}", lines, tuple(notes(history, names)), sections,
                  tuple(environment), picture)  # fmt: skip
    return html([run], FOOTER)


def _changed(history: History) -> list[Told]:
    """Event by event, the latest first, each cell once."""
    by_series = {id(one.series): one for one in history.cells}
    found = {id(change.series): by_series[id(change.series)] for event in history.events for change in event.changes}
    return list(found.values())


def _plots(title: str, cells: Sequence[Told], most: int, history: History, names: Names) -> Section:
    lines = [CAPTION] if cells else []
    lines += [f"Plots of {len(cells) - most} more cells are left out; the table has them."] if len(cells) > most else []
    prefix = title.split()[-1]
    figures = tuple(_trend(one, history, names, f"{prefix}-{number}") for number, one in enumerate(cells[:most]))
    return Section(title, tuple(lines), figures=figures)


def _trend(one: Told, history: History, names: Names, name: str) -> Figure:
    side = side_of(one.series.case)
    renewed = {found.run for found in history.surroundings.renewals
               if found.side == side and found.machine == one.series.machine}  # fmt: skip
    return trend(one, history.runs.runs, sorted(renewed), name, str(names[one.series]))
