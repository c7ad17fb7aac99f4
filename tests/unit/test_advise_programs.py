"""Advice on programs: most have no size, and none is spoken of."""

from __future__ import annotations

from pathlib import Path

from tests.unit.conftest import Collbench
from tests.unit.made_suite import CPU, IO, write_suite


def test_what_has_no_size_is_advised_without_one(here: Collbench, tmp_path: Path) -> None:
    slower, share = {"dd": 1.06, "linpack": 0.9}, {"ioping": 0.03}
    run = write_suite(tmp_path / "run", CPU + IO, slower=slower, share=share)
    out = here("advise", run, "--why").out
    assert " at 0" not in out and " 0:" not in out
    assert "* Take single strict.\n* Instead host: 1.11x (1.11 .. 1.11) the time.\n* Sure: every other" in out
    assert "* Take host, storage overlay.\n" in out and "* Sure: host, storage volume is as fast.\n" in out
    assert "* 64M: take host; as fast: single strict.\n" in out, "stream has a size"
    most = "* The most isolated option (tools, single strict) takes 1.06x (1.06 .. 1.06) the time of the fastest.\n"
    assert most in out
    parts = [part for part in out.split("\n\n") if part.startswith("dd total, count 16,")]
    (dd,) = (part for part in parts if "factor" in part)
    assert dd.splitlines()[1].split() == ["factor", "choice", "time"]


def test_the_answer_of_a_report_has_no_size_either(here: Collbench, tmp_path: Path) -> None:
    run = write_suite(tmp_path / "run", CPU[:1], slower={"linpack": 1.5})
    document = here("advise", run, "--style", "json").out
    assert '"Instead single strict: 1.50x (1.50 .. 1.50) the time."' in document
