"""A run beside papers on host and container as it is shown: lines, tables, the page, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from importlib import resources
from pathlib import Path

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_papers import dd, ioping, judged, linpack, programs, training, write

from collbench.analysis.paper.reference import ProgramConclusion, ProgramsPaper
from collbench.errors import RequestError
from collbench.report.paper import beside, paper, papers, tally


def test_the_run_stands_beside_the_figures_of_the_paper(tmp_path: Path) -> None:
    planted = [dd(16, 0.95), ("hpcg", {"n": 64}, 1.005), ioping("latency", 1.02)]
    lines, tables = beside(write(tmp_path / "run", planted), paper("xu2017"))
    assert tally(lines) == "2 confirmed, 1 undecided, 6 not measurable here"
    decided = [row for row in tables[0].rows if row[0] == ""]
    assert ("", "hpcg total, n 64", "confirmed: the whole interval lies within -1 .. 1 %", "0.50 (0.43 .. 0.56)",
            "pc 0.556, server 0.244") in decided  # fmt: skip
    assert "ioping request, on overlay, mode latency" in [row[1].replace("total", "request") for row in decided]
    figures = next(table for table in tables if table.title.startswith("figures"))
    assert len(figures.rows) == 30
    assert figures.rows[0] == ("HPCG, dimension 192, 1800 s", "pc", "5.317 GFLOP/s", "5.288 GFLOP/s", "0.556",
                               "0.0105 GB/s", "0.0104 GB/s", "0.50 (0.43 .. 0.56)")  # fmt: skip
    latency = [row for row in figures.rows if "latency" in row[0]]
    here = ("100 ms", "102 ms", "-2.00 (-2.06 .. -1.94)")
    assert [row[4:] for row in latency] == [("98.999", *here), ("3.509", *here)]
    assert figures.rows[-1][-1] == "not measured"


def test_each_network_of_a_training_stands_beside_its_bound(tmp_path: Path) -> None:
    other_batch = ("train", {"network": "fcn5", "batch": 1024, "measure": "batch", "storage": "overlay"}, 1.03)
    planted = [*training("batch", 1.02, 1.01, 1.0, 0.99), *training("first", 0.5), other_batch]
    _, tables = beside(write(tmp_path / "run", planted), paper("xu2017"))
    figures = next(table for table in tables if table.title.startswith("figures"))
    found = {row[0]: row for row in figures.rows if row[-1] != "not measured"}
    assert len(found) == 6
    assert found["LSTM: seconds per batch, first epoch left out"][4:7] == ("|Diff%| < 5", "100 ms", "99 ms")
    assert found["FCN5: first epoch, loading included"][4:7] == ("|Diff%| < 77", "100 ms", "50 ms")
    batches = [name for name in found if name.startswith("FCN5: seconds per batch, first epoch left out (here ")]
    assert len(batches) == 2 and sum("batch 1024" in name for name in batches) == 1


def test_a_paper_on_what_is_not_measured_says_why(tmp_path: Path) -> None:
    lacking = ProgramConclusion(number=1, text="Training is alike.", lacking="no benchmark trains")
    published = msgspec.structs.replace(programs("zhao2018"), conclusions=(lacking,), experiments=())
    lines, tables = beside(write(tmp_path / "run", [dd(16, 1.0)]), published)
    assert lines == ["Conclusion 1, Training is alike. NOT MEASURABLE HERE: no benchmark trains."]
    assert [table.title for table in tables] == ["conclusions of zhao2018", "assumptions about zhao2018"]


@pytest.mark.parametrize("sides", [("host",), ("multi",)])
def test_a_run_of_one_side_is_refused(tmp_path: Path, sides: tuple[str, ...]) -> None:
    observed = write(tmp_path / "run", [dd(16, 1.0)])
    cells = {case: cell for case, cell in observed.cells.items() if case.where.policy in sides}
    with pytest.raises(
        RequestError, match=r"nothing to compare with xu2017, which needs linpack, .*, dd, ioping or train on the host"
    ):
        beside(replace(observed, cells=cells), paper("xu2017"))


def test_an_unknown_paper_is_answered_with_the_list() -> None:
    files = resources.files("collbench.report") / "reference"
    assert papers() == sorted(file.name.removesuffix(".json") for file in files.iterdir())
    assert {"choi2021", "siddaramanna2018", "xu2017", "zhao2018"} <= set(papers())
    with pytest.raises(
        RequestError, match=r"no such paper. Did you mean xu2017\? There are: choi2021, siddaramanna2018"
    ):
        paper("xu2018x")


def test_published_diff_follows_from_the_results_where_both_are_published() -> None:
    for reference in papers():
        published = paper(reference)
        assert published.reference == reference
        if isinstance(published, ProgramsPaper):
            for one in published.experiments:
                if one.host is not None and one.docker is not None:
                    assert (one.host - one.docker) / one.host * 100 == pytest.approx(one.diff, abs=0.02)
    laptop = {one.experiment: one.diff for one in programs("zhao2018").experiments if one.cell}
    assert laptop == pytest.approx({"cpu": -1.27, "memory": -3.86, "threads": -22.51, "fileio": 9.96}, abs=0.005)


@pytest.mark.parametrize("ending", ["html", "txt"])
def test_the_report_has_verdicts_figures_and_assumptions(tmp_path: Path, here: Collbench, ending: str) -> None:
    write(tmp_path / "run", [dd(16, 0.95), ("hpcg", {"n": 64}, 1.005)])
    out = tmp_path / f"report.{ending}"
    told = here("report", tmp_path / "run", "--against", "xu2017", "-o", out)
    assert told.code == 0, told.err
    text = unescape(out.read_text(encoding="utf-8"))
    for said in ("Of the 9 conclusions of xu2017: 2 confirmed", "Disk, dd: small files are written faster", "-4.263",
                 "confirmed: the whole interval lies below -1 %", "figures of xu2017", "ResNet-56"):  # fmt: skip
        assert said in text, said


def test_an_unknown_paper_is_refused_before_the_run_is_read(tmp_path: Path, here: Collbench) -> None:
    told = here("report", tmp_path, "--against", "xu2018", "-o", tmp_path / "report.txt")
    assert told.code == 2 and "--against xu2018: no such paper. Did you mean xu2017?" in told.err


def test_what_was_not_measured_is_named_or_counted(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", [dd(8192, 1.03), *linpack(2000)]))
    assert found[5].why == "1 of 2 cells support it, 2 are needed; not measured: dd count 16384 bs 65536"
    assert found[1].why == "1 of 14 cells support it, 8 are needed; not measured: 13 of the cells"
    assert (found[4].finding, found[4].why) == ("not measurable here", "not measured: dd count 16 bs 65536")
    assert found[3].finding == "not measurable here" and found[3].why == "not measured: 6 of the cells"


def test_a_report_that_could_not_be_written_is_refused_before_the_run_is_read(tmp_path: Path, here: Collbench) -> None:
    told = here("report", tmp_path / "none", "-o", tmp_path / "nowhere" / "x.html")
    assert told.code != 0 and told.err.endswith(f"x.html: there is no folder {tmp_path / 'nowhere'}.\n")
