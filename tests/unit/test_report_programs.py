"""The page of a run of programs: the picture of all differences, where it stands, and a section for each benchmark."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.unit.made_runs import made_case, spread, write_run
from tests.unit.made_suite import CPU, IO, of, recorded, write_suite

from collbench.analysis.runs import observe
from collbench.report.page import programs
from collbench.report.page.contents import chapter
from collbench.report.page.drawing import BETTER, OPEN, SERIES, WORSE
from collbench.report.page.drawing import Figure as Drawn
from collbench.report.page.figures.pictures import BenchmarkRow, benchmarks
from collbench.report.page.render import Chapter, html
from collbench.schema.record import Work

US = 1e-6
SUITES = {"linpack": "cpu", "dgemm": "cpu", "dd": "io", "fio": "io", "ioping": "io"}
EFFECTS = {"dd": 1.06, "dgemm": 0.96}
SHARES = {"ioping": 0.06, "dd": 0.01}


def chapter_of(path: Path, figures: bool = False, margin: float = 0.02) -> Chapter:
    return chapter(observe(path), {}, margin, figures=figures, suite_of=SUITES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = tuple(made for made in CPU + IO if made.case.workload in SUITES)
    return write_suite(tmp_path_factory.mktemp("programs") / "run", chosen, slower=EFFECTS, share=SHARES)


@pytest.fixture
def painted(run: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[BenchmarkRow], Axes]:
    """The rows of the picture, and the axes that they are painted on."""
    return _painted(run, monkeypatch)


def _painted(run: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[BenchmarkRow], Axes]:
    found: list[tuple[list[BenchmarkRow], Axes]] = []

    def remember(rows: list[BenchmarkRow], margin: float, title: str, name: str) -> Drawn:
        shown, figure = benchmarks(rows, margin, title, name), Figure()
        shown.paint(figure.add_subplot())
        found.append((rows, figure.axes[0]))
        return shown

    monkeypatch.setattr(programs, "benchmarks", remember)
    chapter_of(run, figures=True)
    return found[0]


def test_rows_are_sorted_by_suite_and_told_apart_by_what_differs(painted: tuple[list[BenchmarkRow], Axes]) -> None:
    rows, axes = painted
    assert [row.label for row in rows] == [
        "CPU", "linpack (n 2000, lda 2000)", "linpack (n 5000, lda 5008)", "dgemm",
        "I/O", "dd (count 16, on overlay)", "dd (count 1600, on overlay)", "dd (count 16, on volume)",
        "dd (count 1600, on volume)", "ioping (mode cached)", "ioping (mode direct)", "fio (request)", "fio (p99)",
    ]  # fmt: skip
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.label for row in rows]
    bold = [label.get_text() for label in axes.get_yticklabels() if label.get_fontweight() == "bold"]
    assert bold == ["CPU", "I/O"]


def test_a_verdict_has_a_colour_a_marker_and_a_word(painted: tuple[list[BenchmarkRow], Axes]) -> None:
    rows, axes = painted
    marks = [line for line in axes.lines if line.get_gid()]
    looks = {(to_hex(str(line.get_color())), line.get_marker()) for line in marks}
    assert looks == {(WORSE, ">"), (BETTER, "<"), (SERIES[0], "s"), (OPEN, "o")}
    texts = [text.get_text() for text in axes.texts]
    assert len(texts) == len(rows) - 2  # suites have none
    assert [texts[row].split()[0] for row in (0, 2, 3, 7)] == ["same", "faster", "slower", "unclear"]


def test_whiskers_are_the_intervals_and_the_margin_is_a_band(painted: tuple[list[BenchmarkRow], Axes]) -> None:
    rows, axes = painted
    compared = [row.comparison for row in rows if row.comparison is not None]
    zero, *whiskers = [np.asarray(line.get_xdata(), dtype=float) for line in axes.lines]
    assert not zero.any()
    for comparison, ends in zip(compared, whiskers, strict=True):
        assert comparison.ratio is not None and comparison.ratio.interval is not None
        low, high = comparison.ratio.interval
        assert ends == pytest.approx([(end - 1) * 100 for end in (low, comparison.ratio.value, high)])
    box = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (box.x0, box.x1) == pytest.approx((-2.0, 2.0))
    assert axes.get_xscale() == "linear"


def test_far_differences_have_a_logarithmic_axis_whose_labels_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_suite(tmp_path / "run", CPU[:3], slower={"linpack": 3.1, "dgemm": 0.4})
    _, axes = _painted(run, monkeypatch)
    assert axes.get_xscale() == "symlog"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["-30", "-10", "-2", "0", "+2", "+10", "+30", "+100"]
    assert axes.get_xlim()[0] < -70 and axes.get_xlim()[1] > 250


def test_the_picture_follows_the_answer_and_the_evidence_follows(run: Path) -> None:
    page = html([chapter_of(run, figures=True)])
    places = [page.index(text) for text in (
        "CPU: single strict vs host: faster by 4 %", "I/O: single strict vs host: slower by",
        "All benchmarks, by policy: single strict vs host", "<h2>All benchmarks</h2>", "<h2>linpack</h2>",
        "linpack solve, tools, single strict vs host (docker)", "<h2>fio</h2>", "<h2>Verdicts by storage</h2>",
        "<h2>Environment</h2>")]  # fmt: skip
    assert places == sorted(places)
    plot = re.search(r'<svg class="plot".*?</svg>', page, re.DOTALL)
    assert plot is not None and len(re.findall(r'id="[\w-]*mark-\d+"', plot.group())) == 11
    assert "take host" not in page and "at 0" not in page
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_numbers_of_the_picture_are_a_table_too(run: Path) -> None:
    found = chapter_of(run)
    assert found.picture == ()
    (table,) = found.sections[0].folded_tables
    assert table.rows[2][0] == "dgemm" and table.rows[2][1].startswith("faster -4 % (")
    assert len(table.rows) == 11


def test_a_benchmark_has_its_comparison_and_its_launches(run: Path) -> None:
    sections = {section.title: section for section in chapter_of(run).sections}
    (compared,), (launches,) = sections["dgemm"].tables, sections["dgemm"].folded_tables
    assert "host (GFLOP/s)" in compared.columns and "single strict (GFLOP/s)" in compared.columns
    assert launches.columns[0] == "place"
    assert launches.title == "Times of dgemm total, n 2048, threads 2, tools, 8 launches"


def test_a_run_of_one_side_is_shown_and_compared_with_nothing(tmp_path: Path) -> None:
    run = write_suite(tmp_path / "run", CPU, policies=())
    found = chapter_of(run, figures=True)
    assert found.answer == ("4 benchmarks on one side: there is nothing to compare with.",)
    assert found.picture == ()
    assert [section.title for section in found.sections] == ["linpack", "dgemm", "stream", "sysbench_cpu"]
    assert "rate (GFLOP/s)" in found.sections[0].tables[0].columns


def test_given_leaves_only_what_was_asked_about(run: Path) -> None:
    found = chapter(observe(run), {"storage": "volume"}, 0.02, figures=False, suite_of=SUITES)
    assert [section.title for section in found.sections] == ["All benchmarks", "dd", "fio"]


def test_collectives_beside_programs_have_their_own_answers(tmp_path: Path) -> None:
    cells = {made_case(*place): spread(time * US) for place, time in ((("host", None), 1), (("single", "strict"), 2))}
    program = CPU[2].case
    measured = [recorded(CPU[2], program, launch, time) for launch, time in enumerate(spread(0.19))]
    run = write_run(tmp_path / "run", {program: measured, **cells})
    found = chapter_of(run)
    assert found.answer[0] == "1 benchmark on one side: there is nothing to compare with."
    assert len(found.answer) == 3
    assert all("allreduce" in line or "vs host" in line for line in found.answer[1:])
    titles = [section.title for section in found.sections]
    assert titles == ["dgemm", "allreduce sum float32", "Verdicts by policy"]


def test_markup_in_the_name_of_a_benchmark_is_text(tmp_path: Path) -> None:
    hostile = "<b>x</b>$_{"
    run = write_suite(tmp_path / "run", (of(hostile, 1.0, Work(amount=1), measure=hostile, n=1),))
    page = html([chapter_of(run, figures=True)])
    assert "<b>" not in page and "&lt;b&gt;x&lt;/b&gt;$_{" in page


def test_no_section_is_empty() -> None:
    """Where no pair differs in a factor alone, there are no verdicts by it."""
    found = chapter_of(Path(__file__).parents[2] / "results/xu2017-cpu-io")
    filled = (one.lines or one.tables or one.figures or one.folded or one.folded_tables for one in found.sections)
    assert found.sections and all(filled)
