"""What is printed of programs, byte by byte: a table for each benchmark, in the units that people know it by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.made_runs import made_manifest
from tests.unit.made_suite import CPU, IO, of_one_launch, write_suite

from collbench.analysis.compare import compare
from collbench.analysis.factors import find_factor
from collbench.analysis.own_sides import by_suite
from collbench.analysis.pairs import within
from collbench.analysis.runs import Observed, observe
from collbench.report import new_style
from collbench.report.cells import launch_tables
from collbench.report.cells import tables as program_tables
from collbench.report.page.programs import sentences
from collbench.report.tables import terminal

Golden = Callable[[str, str], None]


@pytest.fixture
def run(tmp_path: Path) -> Observed:
    slower = {"dd": 1.06, "fio": 1.09, "dgemm": 0.96}
    share = {"ioping": 0.03, "dd": 0.01, "fio": 0.004}
    return observe(write_suite(tmp_path / "run", slower=slower, share=share))


@pytest.mark.parametrize(("style", "name"), [("table", "programs.txt"), ("csv", "programs.csv")])
def test_records(golden: Golden, style: str, name: str) -> None:
    printer = new_style(style)
    text = printer.begin(made_manifest(ranks=1, libraries=()))
    golden(name, text + "".join(map(printer.add, of_one_launch())) + printer.end())


@pytest.mark.parametrize("style", ["nccl-tests", "osu"])
def test_styles_of_collective_benchmarks_leave_programs_out(style: str) -> None:
    printer = new_style(style)
    text = printer.begin(made_manifest(ranks=1, libraries=()))
    text += "".join(map(printer.add, of_one_launch())) + printer.end()
    assert text.count("not a collective") == len(of_one_launch())


def test_launches(golden: Golden, run: Observed) -> None:
    golden("programs-launches.txt", terminal(launch_tables(run.cells)))


@pytest.mark.parametrize("factor", ["policy", "storage"])
def test_comparisons(golden: Golden, run: Observed, factor: str) -> None:
    compared = compare(within(run, find_factor(factor), frozenset()))
    golden(f"programs-by-{factor}.txt", terminal(program_tables(compared)))


def test_sentences_of_suites(golden: Golden, run: Observed) -> None:
    suites = {made.case.workload: "cpu" for made in CPU} | {made.case.workload: "io" for made in IO}
    lines = [*sentences(by_suite(run, "policy", suites), 0.02), *sentences(by_suite(run, "storage", suites), 0.02)]
    golden("programs-suites.txt", "".join(f"{line}\n" for line in lines))
