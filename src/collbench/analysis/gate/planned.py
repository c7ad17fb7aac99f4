"""What a side has of each planned cell."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.analysis.observations import Cell, Observed
from collbench.schema.case import Case, Where


def planned_cells(run: Observed, cases: Iterable[Case]) -> list[Cell | None]:
    """Of each case what a run has of it; None: nothing.

    A launch that fails before its end has one failed record for all of its cases that have none. So a case without any
    record has failed as often as the case of its place that failed most, and for the same reasons.
    """
    failed: dict[Where, Cell] = {}
    for cell in run.cells.values():
        if cell.failed and cell.failed >= failed.get(cell.case.where, cell).failed:
            failed[cell.case.where] = cell
    return [run.cells.get(case) or _as_failed(case, failed.get(case.where)) for case in cases]


def _as_failed(case: Case, beside: Cell | None) -> Cell | None:
    if beside is None:
        return None
    return Cell(case, failed=beside.failed, reasons=beside.reasons, lost=dict(beside.lost),
                until_decided=beside.until_decided)  # fmt: skip
