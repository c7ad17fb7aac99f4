"""`report --figure`: one figure as a file for a paper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import made_case, spread, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    cells = {made_case(policy, step).having(size=size): spread(size * 1e-9, 7)
             for policy, step in (("host", None), ("single", "strict")) for size in (1024, 4096)}  # fmt: skip
    return write_run(tmp_path / "run", cells)


def test_a_vector_file_has_the_colours_of_the_page_on_paper(here: Collbench, run: Path, tmp_path: Path) -> None:
    assert here("report", run, "--figure", "time against size", "-o", tmp_path / "x.svg").code == 0
    text = (tmp_path / "x.svg").read_text()
    assert text.startswith("<?xml") and "<svg" in text
    assert "#0b6bb8" in text, "the first series"
    assert not re.findall(r"#0101[0-9a-f]{2}", text) and "var(--" not in text


def test_a_page_of_a_document(here: Collbench, run: Path, tmp_path: Path) -> None:
    assert here("report", run, "--figure", "1", "-o", tmp_path / "x.pdf").code == 0
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--figure", "no such thing", "-o", "x.svg"), "time against size"),
        (("--figure", "99", "-o", "x.svg"), "time against size"),
        (("--figure", "against size", "-o", "x.svg"), "bus bandwidth"),
        (("--figure", "1", "-o", "x.html"), ".svg or .pdf"),
        (("-o", "x.svg"), "--figure"),
    ],
)
def test_what_names_no_single_figure_is_refused_with_what_there_is(
    here: Collbench, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = here("report", run, *flags)
    assert (found.code, named in found.err) == (2, True), found.err
    assert not list(tmp_path.glob("x.*"))
