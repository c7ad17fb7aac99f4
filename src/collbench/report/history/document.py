"""A history for programs: runs, cells with all their times, changes."""

from __future__ import annotations

from typing import Any

from collbench.analysis.history.events import CellChange
from collbench.analysis.history.history import History, Told
from collbench.report.history.answer import latest, line, notes, sentence
from collbench.report.history.names import Names


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
        "cells": [_cell(one, names) for one in history.cells],
        "environment": [{"run": one.run, "machine": one.machine, "image": one.side[0], "facts": one.facts}
                        for one in history.surroundings.renewals],
        "notes": notes(history, names), "left_out": history.runs.left_out, "doubts": history.runs.doubts,
    }  # fmt: skip


def _cell(one: Told, names: Names) -> dict[str, Any]:
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
