"""What every style prints for the run in `tests/data/run`, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.report import STYLES, new_style
from collbench.schema.store import read_run

NAMES = {
    "table": "table.txt",
    "nccl-tests": "nccl-tests.txt",
    "osu": "osu.txt",
    "csv": "rows.csv",
    "json": "document.json",
}


@pytest.mark.parametrize("style", STYLES)
def test_a_style_prints_what_it_printed_before(
    style: str, printed: Callable[..., str], golden: Callable[[str, str], None]
) -> None:
    golden(NAMES[style], printed(style))


@pytest.mark.parametrize("style", STYLES)
def test_ending_twice_prints_no_table_twice(style: str, stored_run: Path) -> None:
    """The end is also asked for when a run is cut short."""
    run = read_run(stored_run)
    printer = new_style(style)
    printer.begin(run.manifest)
    printer.add(run.records[0])
    printer.end()
    again = printer.end()
    assert again == "" or style == "json"


@pytest.mark.parametrize("style", STYLES)
def test_a_run_without_records_can_be_printed(style: str, stored_run: Path) -> None:
    run = read_run(stored_run)
    printer = new_style(style)
    assert isinstance(printer.begin(run.manifest) + printer.end(), str)
    assert isinstance(new_style(style).end(), str)
