"""The verdict of a comparison: a sentence, what differs with the losses first, and nothing that is left unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, made_case, spread, write_run

from collbench.analysis.compare import compare as compared
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import within
from collbench.analysis.runs import observe
from collbench.report.tables import Table
from collbench.report.verdict import MOST_ROWS, tables
from collbench.schema.case import Case
from collbench.units import format_size

US = 1e-6

#: By size what a container takes over the host, with a spread of a part of a per cent; a number alone is noise.
FACTORS = {8: 1.12, 64: 1.5, 512: 0.75, 4096: 1.0}


def sides(image: str, size: int) -> tuple[Case, Case]:
    return made_case("host", image=image, size=size), made_case("multi", "strict", image=image, size=size)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A host and a container: two sizes slower, one faster, one the same, one open and one that fails."""
    cells: dict[Case, list[Entry]] = {}
    for size, factor in FACTORS.items():
        host, multi = sides("a", size)
        cells |= {host: [*spread(10 * US, 10, 0.001)], multi: [*spread(10 * US * factor, 10, 0.001)]}
    host, multi = sides("a", 32768)
    cells |= {host: [*spread(10 * US)], multi: [10 * US * (0.8 if block % 2 else 1.25) for block in range(10)]}
    host, multi = sides("a", 65536)
    cells |= {host: [*spread(10 * US)], multi: ["died"] * 10}
    return write_run(tmp_path / "run", cells)


def grid_of(run: Path) -> Table:
    """What is shown first of a host and a container."""
    (table,) = tables(compared(within(observe(run), find_factor("policy"), frozenset())), 0.05)
    return table


def document(compare: Collbench, run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compare(run, "--by", "policy", "--style", "json").out)
    return found


def verdicts(compare: Collbench, run: Path) -> dict[int, str]:
    """By size."""
    return {one["base"]["case"]["what"]["size"]: one["verdict"] for one in document(compare, run)["comparisons"]}


def test_each_size_has_its_verdict_and_the_first_line_is_the_answer(compare: Collbench, run: Path) -> None:
    assert verdicts(compare, run) == {
        8: "slower", 64: "slower", 512: "faster", 4096: "same", 32768: "unclear", 65536: "not comparable"
    }  # fmt: skip
    first, *_ = compare(run, "--by", "policy").out.splitlines()
    assert first == document(compare, run)["answer"]


def test_what_is_open_is_said_once_with_what_would_tell(compare: Collbench, run: Path) -> None:
    (more,) = (one["launches_more"] for one in document(compare, run)["comparisons"] if one["verdict"] == "unclear")
    assert more is not None
    lines = compare(run, "--by", "policy").out.splitlines()
    assert sum(line.startswith("* ") and f"{more} more launch" in line for line in lines) == 1


def test_every_cell_is_there_for_who_asks(compare: Collbench, run: Path) -> None:
    out = compare(run, "--by", "policy", "--all").out
    assert [word for word in ("unclear (", "not comparable (", " same") if word not in out] == []
    data = compare(run, "--by", "policy", "--style", "csv").out
    assert len(data.splitlines()) == 7, "a head and all six cells"
    found = document(compare, run)
    assert out.startswith(found["answer"]) and len(found["comparisons"]) == 6


def test_too_few_launches_establish_nothing(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    (one,) = document(compare, write_run(tmp_path / "run", {host: spread(US, 4), multi: spread(US, 4)}))["comparisons"]
    assert (one["verdict"], one["launches_more"], one["ratio"]["interval"]) == ("unclear", 2, None)


def test_a_loss_that_is_not_excluded_is_not_called_none(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    noisy = [US * (0.8 if n % 2 else 1.3) for n in range(10)]
    cells: dict[Case, list[Entry]] = {host: [*spread(US, 10, 0.001)], multi: [*noisy]}
    assert verdicts(compare, write_run(tmp_path / "run", cells)) == {8: "unclear"}
    host, multi = sides("a", 16)
    cells |= {host: [*spread(US, 10, 0.001)], multi: [*spread(US, 10, 0.001)]}
    assert verdicts(compare, write_run(tmp_path / "more", cells)) == {8: "unclear", 16: "same"}


def test_with_every_cell_nothing_is_left_to_ask_for(compare: Collbench, run: Path) -> None:
    assert "--all" not in compare(run, "--by", "policy", "--all").out


def test_of_many_differences_the_largest_losses_are_shown(compare: Collbench, tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {}
    for step in range(30):
        host, multi = sides("a", 8 << step)
        cells |= {host: [*spread(10 * US, 10, 0.001)], multi: [*spread((11 + step) * US, 10, 0.001)]}
    grid = grid_of(write_run(tmp_path / "run", cells))
    sizes = {row[grid.columns.index("size (B)")] for row in grid.rows}
    assert sizes == {format_size(8 << step) for step in range(30 - MOST_ROWS, 30)}
    assert compare(tmp_path / "run", "--by", "policy", "--style", "csv").out.count("slower") == 30


def test_slow_launches_that_no_median_shows_are_in_the_table(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    steady = spread(US, 60, 0.002)
    jumping = [time * (2 if n % 6 == 0 else 1) for n, time in enumerate(steady)]
    run = write_run(tmp_path / "run", {host: steady, multi: jumping})
    (one,) = document(compare, run)["comparisons"]
    assert (one["verdict"], one["slow"]["launches"]) == ("same", [0, 10])
    assert all("slow" in compare(run, "--by", "policy", *flags).out for flags in ((), ("--all",)))


def test_a_row_is_named_by_what_tells_it_from_the_others(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {}
    for op, factor in (("sum", 1.2), ("max", 1.4)):
        for image in ("a", "b"):
            host, multi = (case.having(op=op) for case in sides(image, 8))
            cells |= {host: [*spread(US, 10, 0.001)], multi: [*spread(factor * US, 10, 0.001)]}
    grid = grid_of(write_run(tmp_path / "run", cells))
    assert "size (B)" not in grid.columns and "image" in grid.columns
    assert len({row[:-1] for row in grid.rows}) == len(grid.rows) == 4


def test_that_launches_differ_from_each_other_is_said(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    cells: dict[Case, list[Entry]] = {host: [*spread(US, 10, 0.001)], multi: [US * (1 + n % 2) for n in range(10)]}
    lines = compare(write_run(tmp_path / "run", cells), "--by", "policy").out.splitlines()
    assert any(line.startswith("* in 1 of 1 cell ") and " half" in line for line in lines)
