"""Two cells of which one is compared with the other."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.analysis.observations import Cell


@dataclass(frozen=True)
class Pair:
    """Two cells that are compared. `free` are the facts of the measuring in which they may differ (`pairs.METHODS`).

    `remarks` say in what else the sides differ, `asked` what the fact that is the question is on each.
    """

    base: Cell
    other: Cell
    base_name: str
    other_name: str
    free: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
