"""The garbage collector while a run is read: paused, and afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import ItemsView, Iterator

import pytest
from tests.unit.made_runs import made_case, made_record

from collbench.analysis.results import Cell, cells_of, without_collector
from collbench.errors import RunReadError
from collbench.report.cells import launch_tables
from collbench.schema.case import Case
from collbench.schema.record import Record


def test_it_is_paused_while_records_are_read() -> None:
    during: list[bool] = []

    def records() -> Iterator[Record]:
        during.append(gc.isenabled())
        yield made_record(made_case(), 0, 1e-6)

    cells_of(records())
    assert (during, gc.isenabled()) == ([False], True)


class Watched(dict[Case, Cell]):
    """Cells that note whether the collector is on when they are asked for."""

    def __init__(self) -> None:
        self.during: list[bool] = []

    def items(self) -> ItemsView[Case, Cell]:  # type: ignore[override]
        self.during.append(gc.isenabled())
        return super().items()


def test_it_is_paused_while_a_table_is_made() -> None:
    cells = Watched()
    launch_tables(cells)
    assert (cells.during, gc.isenabled()) == ([False], True)


def test_it_goes_on_after_a_line_that_is_no_record() -> None:
    def damaged() -> Iterator[Record]:
        yield made_record(made_case(), 0, 1e-6)
        raise RunReadError("line 2")

    with pytest.raises(RunReadError):
        cells_of(damaged())
    assert gc.isenabled()


def test_who_had_paused_it_goes_on_without() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
