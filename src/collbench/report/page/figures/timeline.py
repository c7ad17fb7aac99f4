"""All cells that changed, a row each: when, by how much, and what changed in the environment then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.analysis.history.history import History, Told
from collbench.report.history.answer import line, signed
from collbench.report.history.names import Names
from collbench.report.page.drawing import FAINT, INK, OPEN, Figure, draw, mark
from collbench.report.page.figures.trend import colour, run_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, FRAME = 10.0, 0.24, 1.1

#: More cells have no row.
MOST = 60

#: More changes of the environment have no label, only their lines.
_LABELS = 6


def timeline(history: History, names: Names, rows: Sequence[Told], name: str) -> Figure:
    """Of the cells `rows`, all of which changed."""
    shown = rows[:MOST]
    labels = _renewed(history)
    caption = (
        "A row for each cell that changed: red from where it became slower, green from where it became faster, by so "
        "many per cent, up to the next change; grey: as at the start. Dotted lines: what changed in the environment."
        + (f" {len(rows) - MOST} more cells changed." if len(rows) > MOST else "")
    )
    values = "; ".join(line(event, history, names) for event in history.events)
    size = (WIDTH, FRAME + ROW * len(shown) + 0.16 * len(labels))
    return draw(name, "What changed, and when", caption, lambda axes: _paint(axes, history, names, shown, labels), size,
                values)  # fmt: skip


def _renewed(history: History) -> dict[int, str]:
    """By run the names of the facts that changed, for the latest."""
    found: dict[int, dict[str, str]] = {}
    for renewal in history.surroundings.renewals:
        found.setdefault(renewal.run, {}).update(renewal.facts)
    latest = sorted(found)[-_LABELS:]
    return {run: _label(found[run]) for run in latest}


def _label(facts: dict[str, str]) -> str:
    name, text = next(iter(facts.items()))
    first = f"{name} {text}"
    more = f" and {len(facts) - 1} more" if len(facts) > 1 else ""
    return f"{first if len(first) <= 50 else f'{first[:47]}...'}{more}"


def _paint(axes: Axes, history: History, names: Names, rows: Sequence[Told], labels: dict[int, str]) -> None:
    runs = history.runs.runs
    for number, one in enumerate(rows):
        _row(axes, number, one)
    for renewal in {one.run for one in history.surroundings.renewals}:
        axes.axvline(renewal - 0.5, color=OPEN, linewidth=0.9, linestyle=":")
    for height, (run, text) in enumerate(labels.items()):
        right = run > len(runs) * 0.6
        axes.annotate(text, (run - 0.5, 1), xycoords=("data", "axes fraction"), textcoords="offset points",
                      xytext=(-3 if right else 3, 3 + 11 * height), ha="right" if right else "left", va="bottom",
                      fontsize=7.5, color=INK, annotation_clip=False)  # fmt: skip
    axes.set_yticks(range(len(rows)), [str(names[one.series]) for one in rows])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    run_axis(axes, runs, 12)


def _row(axes: Axes, number: int, one: Told) -> None:
    points = one.series.points
    ends = [*(change.run for change in one.changes), points[-1].run + 1]
    axes.barh(number, ends[0] - points[0].run, 0.6, left=points[0].run - 0.5, color=FAINT, linewidth=0)
    for index, change in enumerate(one.changes):
        start, stop = ends[index : index + 2]
        (bar,) = axes.barh(
            number, stop - start, 0.6, left=start - 0.5, color=colour(change.slower), linewidth=0, alpha=0.85
        )
        mark(bar, number)
        axes.annotate(f"{signed(change.change.ratio.value)} %", (start - 0.5, number), (-3, 0), ha="right", va="center",
                      textcoords="offset points", fontsize=8, color=INK, fontweight="bold")  # fmt: skip
