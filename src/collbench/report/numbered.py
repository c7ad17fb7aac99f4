"""Figures of which a record has one for each rank, such as `steps of worker 3`: in a table, from least to largest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NUMBERED = re.compile(r"(.+ of \w+) \d+")


def is_numbered(name: str) -> bool:
    return _NUMBERED.fullmatch(name) is not None


def numbered(by_row: Sequence[Mapping[str, float]]) -> dict[str, list[str]]:
    """By heading, such as `steps of workers`, an entry for each row."""
    by_stem = [_by_stem(row) for row in by_row]
    return {f"{stem}s": [_range(row.get(stem, ())) for row in by_stem]
            for stem in dict.fromkeys(stem for row in by_stem for stem in row)}  # fmt: skip


def _by_stem(figures: Mapping[str, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in figures.items():
        if match := _NUMBERED.fullmatch(name):
            found.setdefault(match[1], []).append(value)
    return found


def _range(values: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{value:g}" for value in (min(values), max(values))) if values else ()
    return " .. ".join(ends)
