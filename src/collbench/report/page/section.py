"""A part of a report's page, before layout."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.report.page.drawing import Figure
from collbench.report.tables import Table


@dataclass(frozen=True)
class Section:
    """One operation on all its numbers of ranks, or one kind of table. `fold`: the line above what is folded."""

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    folded: tuple[Figure, ...] = ()
    folded_tables: tuple[Table, ...] = ()
    fold: str = ""
