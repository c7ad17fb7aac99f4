"""The verdict of a comparison: a sentence, what differs with the losses first, and nothing that is left unsaid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, made_case, spread, write_run

from collbench.schema.case import Case

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


def test_the_verdict_is_one_sentence_and_the_losses_come_first(compare: Collbench, run: Path) -> None:
    found = compare(run, "--by", "policy")
    first, *lines = found.out.splitlines()
    assert first == (
        "multi strict against host: 2 of 6 cells are slower, worst +50.0 % (+50.0 .. +50.0) at 64; "
        "1 faster, -25.0 % (-25.0 .. -25.0) at 512; 1 same within 2 %; "
        "1 open (a loss of up to 25.3 % at 32K is not excluded); 1 not compared"
    )
    assert "* not compared: multi strict: failed: died" in lines
    assert "* every cell, with its times: --all (3 more)" in lines
    common = "allreduce sum float32, backend mpi, driver native, thread level single, 2 ranks"
    assert f"what differs; in all of them: {common}" in lines, "what they have in common is not what differs"
    rows = [line.split() for line in lines if line.startswith(("slower", "faster", "same", "inconclusive"))]
    assert [row[0] for row in rows] == ["slower", "slower", "faster"]
    assert [size for row in rows for size in row if size in ("8", "64", "512")] == ["64", "8", "512"]


def test_what_is_open_is_said_once_with_what_would_tell(compare: Collbench, run: Path) -> None:
    out = compare(run, "--by", "policy").out
    (line,) = (line for line in out.splitlines() if line.startswith("* 1 open: "))
    assert "more launch" in line and "inconclusive" not in out


def test_every_cell_is_there_for_who_asks(compare: Collbench, run: Path) -> None:
    out = compare(run, "--by", "policy", "--all").out
    assert out.startswith("multi strict against host: 2 of 6 cells are slower, ")
    assert [word for word in ("inconclusive (", "not comparable (", "p adjusted", " same") if word not in out] == []
    data = compare(run, "--by", "policy", "--style", "csv").out
    assert len(data.splitlines()) == 7, "a head and all six cells"
    document = json.loads(compare(run, "--by", "policy", "--style", "json").out)
    assert out.startswith(document["answer"]) and len(document["comparisons"]) == 6


def test_nothing_slower_is_said_with_what_is_not_known(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    run = write_run(tmp_path / "run", {host: spread(US, 4), multi: spread(US, 4)})
    assert compare(run, "--by", "policy").out.splitlines()[:2] == [
        "multi strict against host: Nothing is established of 1 cell; 1 open",
        "* 1 open: at least 2 more launches needed",
    ]


def test_a_loss_that_is_not_excluded_is_not_called_none(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    noisy = [US * (0.8 if n % 2 else 1.3) for n in range(10)]
    cells: dict[Case, list[Entry]] = {host: [*spread(US, 10, 0.001)], multi: [*noisy]}
    first = compare(write_run(tmp_path / "run", cells), "--by", "policy").out.splitlines()[0]
    assert "Nothing is established of 1 cell; 1 open (a loss of up to 30.0 % is not excluded)" in first
    host, multi = sides("a", 16)
    cells |= {host: [*spread(US, 10, 0.001)], multi: [*spread(US, 10, 0.001)]}
    first = compare(write_run(tmp_path / "more", cells), "--by", "policy").out.splitlines()[0]
    assert "None of 2 cells is established to be slower; 1 same within 2 %; 1 open (a loss of" in first


def test_with_every_cell_nothing_is_left_to_ask_for(compare: Collbench, run: Path) -> None:
    out = compare(run, "--by", "policy", "--all").out
    assert "--all (" not in out and "what differs" not in out
    short = compare(run, "--by", "policy").out
    assert short.splitlines()[-1].startswith("* difference: the median of the ratios within blocks of launches")


def test_of_many_differences_the_largest_losses_are_shown(compare: Collbench, tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {}
    for step in range(30):
        host, multi = sides("a", 8 << step)
        cells |= {host: [*spread(10 * US, 10, 0.001)], multi: [*spread((11 + step) * US, 10, 0.001)]}
    out = compare(write_run(tmp_path / "run", cells), "--by", "policy").out
    assert out.count("\nslower ") == 20 and "--all (10 more)" in out and "+300.0" in out and "+10.0" not in out


def test_slow_launches_that_no_median_shows_are_in_the_table(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    steady = spread(US, 60, 0.002)
    jumping = [time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    out = compare(write_run(tmp_path / "run", {host: steady, multi: jumping}), "--by", "policy").out
    assert "1 same within 2 % in the median, 1 of them with other numbers of slow launches" in out
    assert "same (over 1.25 times the median: 0 of 60 launches of the base, 20 of 60 of the other)" in out


def test_a_cell_is_named_by_what_tells_it_from_the_others(compare: Collbench, tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {}
    for op, factor in (("sum", 1.2), ("max", 1.4)):
        for image in ("a", "b"):
            host, multi = (case.having(op=op) for case in sides(image, 8))
            cells |= {host: [*spread(US, 10, 0.001)], multi: [*spread(factor * US, 10, 0.001)]}
    first, *_ = compare(write_run(tmp_path / "run", cells), "--by", "policy").out.splitlines()
    assert "worst +40.0 % (+40.0 .. +40.0) (allreduce max float32, " in first and " at 8" not in first


def test_that_launches_differ_from_each_other_is_said(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    cells: dict[Case, list[Entry]] = {host: [*spread(US, 10, 0.001)], multi: [US * (1 + n % 2) for n in range(10)]}
    lines = compare(write_run(tmp_path / "run", cells), "--by", "policy").out.splitlines()
    assert "* in 1 of 1 cell launches differ by more than half: see the samples" in lines
