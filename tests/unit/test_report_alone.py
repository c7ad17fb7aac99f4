"""Runs of one option, of one launch: their numbers, no word on sides or intervals that there are not, links to each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import made_case, spread, write_run

HOST, SINGLE = made_case(), made_case("single", "strict")


@pytest.fixture
def alone(tmp_path: Path) -> tuple[Path, Path]:
    cells = {made_case(size=size): [size * 1e-9] for size in (1024, 4096, 65536)}
    return write_run(tmp_path / "a", cells), write_run(tmp_path / "b", cells)


def test_one_option_is_told_with_its_times(here: Collbench, alone: tuple[Path, Path]) -> None:
    said = here("advise", alone[0]).out.splitlines()[0]
    assert "1.02 us at 1K, 65.5 us at 64K; 1 launch" in said


def test_without_sides_there_is_no_drift_between_them(
    here: Collbench, alone: tuple[Path, Path], tmp_path: Path
) -> None:
    assert "drift between them" not in here("advise", *alone).out
    both = write_run(tmp_path / "both", {HOST: spread(1e-6, 7), SINGLE: spread(2e-6, 7)})
    assert "drift between them" in here("advise", both).out


def test_the_page_of_two_runs_names_each_and_says_nothing_twice(
    here: Collbench, alone: tuple[Path, Path], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert here("report", *alone, "--output", page).code == 0
    text = page.read_text()
    links = re.findall(r'<a href="#run-[12]">([^<]*)</a>', text)
    assert len(set(links)) == 2 and all(str(run) in link for run, link in zip(alone, links, strict=True))
    assert len(re.findall("performance guidelines", text, re.IGNORECASE)) == 2, "once in each run"
    assert "hiskers" not in text, "one launch has no interval"


def test_captions_tell_of_whiskers_where_there_are_some(here: Collbench, tmp_path: Path) -> None:
    cells = {case.having(size=size): spread(size * 1e-9, 7) for case in (HOST, SINGLE) for size in (1024, 4096)}
    assert here("report", write_run(tmp_path / "run", cells), "--output", tmp_path / "page.html").code == 0
    text = (tmp_path / "page.html").read_text()
    assert text.count("Whiskers: 95 % interval; series") == 2 and "launch medians; whiskers: 95 % interval." in text


@pytest.mark.parametrize(("policies", "shown"), [('["host"]', False), ('["host", "multi"]', True)])
def test_one_cell_has_no_order(here: Collbench, tmp_path: Path, policies: str, shown: bool) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f'collectives = ["bcast"]\nsizes = ["8"]\nimages = ["a"]\nengine = "fake"\npolicies = {policies}\n')
    found = here("plan", plan, "--order")
    assert (found.code, "order of launches" in found.out) == (0, shown), found
