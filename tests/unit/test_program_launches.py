"""The table of a program's launches: what its check measured, over all of them."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import Entry, write_run

from collbench.analysis.observations import observe
from collbench.cli import cli
from collbench.report.launches import program_launches
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
    table = program_launches(list(observed.cells.values()))
    assert "steps of worker 0" not in table.columns
    column = table.columns.index("accuracy")
    assert [row[column] for row in table.rows] == ["0.877", ""]


def test_runs_that_are_read_together_have_the_figures_of_all(tmp_path: Path) -> None:
    first, second = (observe(run_of(tmp_path / name, values)) for name, values in (("a", [0.1, 0.2]), ("b", [0.9])))
    (host,) = (case for case in first.cells if case.where.on_host)
    first.cells[host].absorb(second.cells[host], 2)
    assert first.cells[host].by_figure["accuracy"] == [0.1, 0.2, 0.9] and first.cells[host].figures["accuracy"] == 0.9


def test_it_is_seen_on_the_terminal(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [0.97, 0.87654, 0.5])
    printed = CliRunner().invoke(cli, ["report", str(run), "-o", str(tmp_path / "report.md")], catch_exceptions=False)
    assert printed.exit_code == 0
    assert "accuracy" in (tmp_path / "report.md").read_text(encoding="utf-8")
