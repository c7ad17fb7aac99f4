"""What stands above and below the tables of compare and advise: headings, late samples, legends."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import made_case, made_record, spread, write_run

from collbench.schema.case import Case, case_of
from collbench.schema.record import Record, Samples

STREAM = case_of("stream", {"driver": "native", "measure": "copy"})


@pytest.mark.parametrize(
    ("factor", "base", "other", "heading"),
    [
        ("op", made_case(op="max"), made_case(op="sum"), "allreduce float32, backend mpi"),
        ("dtype", made_case(), made_case(dtype="float64"), "allreduce sum, backend mpi"),
        ("measure", STREAM, STREAM.having(measure="triad"), "stream, driver native"),
        ("block", STREAM.having(block=4096), STREAM.having(block=65536), "stream copy, driver native"),
        ("backend", made_case(), made_case(backend="nccl"), "allreduce sum float32, driver native"),
        ("driver", made_case(), made_case(driver="python"), "allreduce sum float32, backend mpi, driver native/python"),
    ],
)
def test_no_heading_contains_a_value_of_the_compared_factor(
    compare: Collbench, tmp_path: Path, factor: str, base: Case, other: Case, heading: str
) -> None:
    run = write_run(tmp_path / "run", {base: spread(1e-6), other: spread(2e-6)})
    assert compare(run, "--by", factor, "--all").out.split("\n\n")[1].startswith(heading)


def test_tables_whose_bases_differ_in_the_factor_alone_are_one(compare: Collbench, tmp_path: Path) -> None:
    cases = [made_case(op=op, size=size) for op, size in (("max", 8), ("sum", 8), ("min", 16), ("sum", 16))]
    run = write_run(tmp_path / "run", {case: spread(1e-6) for case in cases})
    rows = [*csv.DictReader(io.StringIO(compare(run, "--by", "op", "--style", "csv").out))]
    assert len({row["table"] for row in rows}) == 1
    assert [row["sides"] for row in rows] == ["sum vs max", "sum vs min"]


def _late(case: Case, number: int, late: int) -> list[Record]:
    return [made_record(case, launch, 1e-6, samples=Samples(n=number, invalid=late, warmup=5)) for launch in range(10)]


@pytest.mark.parametrize("command", [("advise",), ("compare", "--by", "image")])
def test_late_samples_are_pooled_and_the_worst_cell_is_named(
    here: Collbench, tmp_path: Path, command: tuple[str, ...]
) -> None:
    cells = {made_case(image=image, size=size): _late(made_case(image=image, size=size), number, late)
             for image, size, number, late in
             (("a", 1024, 9000, 9), ("b", 1024, 9000, 9), ("a", 4096, 100, 44), ("b", 4096, 100, 20))}  # fmt: skip
    name, *flags = command
    out = here(name, write_run(tmp_path / "run", cells), *flags).out
    assert " ".join(out.split()).count("began late") == 1
    said = "* 0.5 % of the samples began late at the gate and are excluded; of the worst cell 44 % (4K, a host)"
    assert said in out.splitlines()


def test_few_late_samples_in_every_cell_are_not_mentioned(here: Collbench, tmp_path: Path) -> None:
    cells = {made_case(image=image): _late(made_case(image=image), 100, 9) for image in "ab"}
    run = write_run(tmp_path / "run", cells)
    assert "began late" not in here("advise", run).out
    assert here("report", run, "-o", tmp_path / "r.txt").code == 0
    assert (
        "9.0 % of the samples began late at the gate and are excluded; of the worst cell 9.0 % (1K, a host)"
        in " ".join((tmp_path / "r.txt").read_text().split())
    )


def test_the_papers_figure_is_in_the_json_alone(compare: Collbench, tmp_path: Path) -> None:
    """Its sign is the opposite of the difference's."""
    run = write_run(
        tmp_path / "run", {made_case(image=image): spread(time) for image, time in (("a", 1e-6), ("b", 2e-6))}
    )
    assert not any("Diff%" in compare(run, "--by", "image", "--style", style).out for style in ("table", "csv"))
    (one,) = json.loads(compare(run, "--by", "image", "--style", "json").out)["comparisons"]
    assert one["paper_diff_percent"] == pytest.approx(-100)


def test_sizes_without_a_column_are_named(here: Collbench, tmp_path: Path) -> None:
    sizes = [1024 << step for step in range(7)]
    cells = {made_case(image=image, size=size): spread(1e-6, 7) for image in "ab" for size in sizes}
    out = here("advise", write_run(tmp_path / "seven", cells), "--why").out
    assert "measured too: 8K" in out
    fewer = {case: times for case, times in cells.items() if case["size"] != 8192}
    assert "measured too" not in here("advise", write_run(tmp_path / "six", fewer), "--why").out


def test_guidelines_that_hold_are_not_under_a_heading_of_violated_ones(here: Collbench, tmp_path: Path) -> None:
    cells = {made_case(size=size): spread(size * 1e-9, 7) for size in (1024, 4096)}
    lines = here("advise", write_run(tmp_path / "run", cells), "--why").out.splitlines()
    assert lines[lines.index("performance guidelines") + 1] == "* 1 checked: 1 hold, 0 violated, 0 undecided"
