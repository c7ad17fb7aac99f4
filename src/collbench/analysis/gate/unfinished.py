"""How far a gate came that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.observations import Cell
from collbench.schema.manifest import Experiment


@dataclass(frozen=True)
class Unfinished:
    """Of `most` blocks so many `blocks` are complete. `until_decided`: fewer than `most` may be enough."""

    blocks: int
    most: int
    until_decided: bool


def unfinished(cells: Sequence[tuple[Cell | None, Cell | None]], experiment: Experiment | None) -> Unfinished:
    """How far the launches of these cells came, each as base and other; None where a side has no record of it."""
    most, until = (0, "launches") if experiment is None else (experiment.launches, experiment.until)
    return Unfinished(_complete([(_launches(base), _launches(other)) for base, other in cells]), most,
                      until == "decided")  # fmt: skip


def _launches(cell: Cell | None) -> int:
    return 0 if cell is None else len(cell.medians) + cell.failed + cell.skipped


def _complete(launches: Sequence[tuple[int, int]]) -> int:
    """Blocks that all cells have on both sides, but those that were decided, and not launched again, before the last.

    A cell that was decided is not in the block that was begun last, nor in the one before.
    """
    begun = max((max(sides) for sides in launches), default=0)
    return min((min(sides) for sides in launches if max(sides) >= begun - 1), default=0)
