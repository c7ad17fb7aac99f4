"""Histories that are made up: a folder of runs, one a night, whose cells have the times that a test asks for.

    write_history(path, {made_case(): [10e-6] * 10 + [12e-6] * 5})

Each entry is one night: a time (s) around which the launches spread, None (the run has no record of the case) or a text
(it failed for that reason).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.made_runs import Entry, write_run

from collbench.schema.case import Case

FIRST = datetime(2026, 10, 1, 2, 30, tzinfo=UTC)

#: The fields of the manifest of a night.
OfNight = Callable[[int], dict[str, Any]]


def night(number: int) -> str:
    """The name of a night's folder, which is its date."""
    return f"{FIRST + timedelta(days=number):%Y-%m-%d}"


def write_history(
    path: Path,
    times: Mapping[Case, Sequence[float | str | None]],
    of_night: OfNight = lambda number: {},
    launches: int = 1,
    noise: float = 0.005,
) -> Path:
    """Write the runs; `noise` is the spread of the nights, `of_night` replaces fields of manifests. The path again."""
    draw = np.random.default_rng(1)
    for number in range(max(map(len, times.values()))):
        medians: dict[Case, list[Entry]] = {}
        for case, entries in times.items():
            entry = entries[number] if number < len(entries) else None
            if isinstance(entry, str):
                medians[case] = [entry] * launches
            elif entry is not None:
                of_run = entry * (1 + float(draw.normal(0, noise)))
                medians[case] = [of_run * (1 + float(draw.normal(0, noise / 5))) for _ in range(launches)]
        made = (FIRST + timedelta(days=number)).isoformat()
        write_run(path / night(number), medians, **({"created": made} | of_night(number)))
    return path


def steps(*levels: tuple[float, int]) -> list[float]:
    """So many nights of each time (s)."""
    return [time for time, nights in levels for _ in range(nights)]
