"""The table of what launches took: its rows and columns, and what a program's check measured."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import Entry, made_case, made_cell, write_run

from collbench.analysis.results import Cell, joined
from collbench.analysis.runs import observe
from collbench.cli import cli
from collbench.report.cells import launch_table
from collbench.schema.case import Case
from collbench.schema.record import ResultCheck


def run_of(path: Path, accuracies: list[float]) -> Path:
    """On the host with these figures; in a container without any."""

    def checked(number: int, accuracy: float) -> ResultCheck:
        return ResultCheck(wrong=0, figures={"accuracy": accuracy, "steps of worker 0": 10.0 + number})

    host, inside = program_case(), program_case("multi", "strict")
    cells: dict[Case, list[Entry]] = {
        host: [program_record(host, number, 1.0, check=checked(number, accuracy))
               for number, accuracy in enumerate(accuracies)],
        inside: [program_record(inside, number, 1.0) for number in range(len(accuracies))],
    }  # fmt: skip
    return write_run(path, cells)


def test_the_median_of_a_figure_stands_beside_the_times(tmp_path: Path) -> None:
    observed = observe(run_of(tmp_path / "run", [0.97, 0.87654, 0.5]))
    table = launch_table(list(observed.cells.values()))
    assert "steps of worker 0" not in table.columns
    column = table.columns.index("accuracy")
    assert [row[column] for row in table.rows] == ["0.877", ""]


def test_runs_that_are_read_together_have_the_figures_of_all(tmp_path: Path) -> None:
    first, second = (observe(run_of(tmp_path / name, values)) for name, values in (("a", [0.1, 0.2]), ("b", [0.9])))
    (host,) = (case for case in first.cells if case.where.on_host)
    cell = joined([(first.cells, 0), (second.cells, 2)])[host]
    assert cell.by_figure["accuracy"] == [0.1, 0.2, 0.9] and cell.figures["accuracy"] == 0.9


def test_it_is_seen_on_the_terminal(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [0.97, 0.87654, 0.5])
    printed = CliRunner().invoke(cli, ["report", str(run), "-o", str(tmp_path / "report.md")], catch_exceptions=False)
    assert printed.exit_code == 0
    assert "accuracy" in (tmp_path / "report.md").read_text(encoding="utf-8")


def cells_of(launches: dict[str, int]) -> list[Cell]:
    """A place with so many launches; with none one that was skipped."""
    return [
        made_cell(made_case(policy), [1e-6 * (launch + 1) for launch in range(number)])
        for policy, number in launches.items()
    ]


def test_a_row_has_the_median_and_the_ends_and_a_place_without_launches_has_none() -> None:
    table = launch_table(cells_of({"single": 5, "host": 3, "multi": 0}))
    place, median, ends, launches = (
        table.columns.index(name) for name in ("place", "median (us)", "min .. max (us)", "launches")
    )
    assert [(row[place], row[median], row[ends], row[launches]) for row in table.rows] == [
        ("host", "2.000", "1.000 .. 3.000", "3"),
        ("single", "3.000", "1.000 .. 5.000", "5"),
    ]


def test_the_number_of_launches_is_a_column_only_where_it_differs() -> None:
    assert "launches" not in launch_table(cells_of({"single": 3, "host": 3})).columns
