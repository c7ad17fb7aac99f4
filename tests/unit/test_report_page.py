"""The report as a page, of collectives and of programs."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.unit.conftest import Collbench
from tests.unit.made_runs import (
    Entry,
    experiment,
    image,
    library,
    made_case,
    made_manifest,
    made_record,
    sampled,
    spread,
    write_run,
)
from tests.unit.made_suite import CPU, IO, of, recorded, write_suite

from collbench.analysis.runs import observe
from collbench.errors import RequestError, to_install
from collbench.report.page import contents
from collbench.report.page.contents import chapter
from collbench.report.page.pictures import BenchmarkRow, benchmarks
from collbench.report.page.render import BETTER, OPEN, SERIES, WORSE, Chapter, html
from collbench.report.page.render import Figure as Drawn
from collbench.schema.case import Case
from collbench.schema.record import Record, Work
from collbench.schema.store import RunWriter

US = 1e-6
HOSTILE = "<script>alert(1)</script>\"'&$x_{$\\"

#: Suites of benchmarks, and where one takes longer or less, or spreads, in the container.
SUITES = {"linpack": "cpu", "dgemm": "cpu", "dd": "io", "fio": "io", "ioping": "io"}
EFFECTS = {"dd": 1.06, "dgemm": 0.96}
SHARES = {"ioping": 0.06, "dd": 0.01}


def ladder(path: Path, sizes: tuple[int, ...] = (8, 1024, 1 << 20)) -> Path:
    """Two images at four places, with samples of seven launches."""
    places = {("host", None): 1.0, ("multi", "strict"): 1.1, ("single", "strict"): 4.0, ("single", "ipc"): 1.5}
    images = ("openmpi", "mpich")
    generator = np.random.default_rng(1)
    known = experiment(images, differences=("a difference",), left_out=("a step",))
    with RunWriter(path, made_manifest(experiment=known)) as writer:
        for launch, (number, name), (place, factor), size in product(
            range(7), enumerate(images), places.items(), sizes
        ):
            time = (1 + number / 10) * factor * (1 + size / 1024) * US * (1 + launch / 100)
            samples = np.rint(time * 1e9 * generator.lognormal(0, 0.05, (2, 20))).astype(np.int64)
            record = made_record(made_case(*place, image=name, size=size), launch, time)
            writer.append(sampled(record, samples), samples)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ladder(tmp_path_factory.mktemp("report") / "run")


def chapter_of(path: Path, figures: bool = False) -> Chapter:
    return chapter(observe(path), {}, 0.02, figures=figures, suite_of=SUITES)


def page_of(run: Path) -> str:
    return html([chapter_of(run, figures=True)])


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return page_of(run)


class Elements(HTMLParser):
    """Every element with its attributes, and the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.slow
def test_a_page_answers_and_shows_time_bandwidth_bars_ladder_and_samples(page: str) -> None:
    words, labels = Elements(page).words, " ".join(re.findall(r'aria-label="([^"]+)"', page))
    for heading in ("Answer", "take openmpi, host", "mislead", "a difference", "Verdicts by policy", "Both sides"):
        assert heading in words, heading
    for plot in ("every option", "time against", "bus bandwidth", "policies side", "ladder, mpich", "every sample"):
        assert plot in labels, plot


@pytest.mark.slow
def test_every_plot_has_marks_a_name_and_ids_of_its_own(page: str) -> None:
    plots = re.findall(r'<svg class="plot".*?</svg>', page, re.DOTALL)
    assert len(plots) == 1 + 2 + 2 + 1 + 3  # the answer, curves, ladders, bars, samples
    assert 'aria-label="What every option takes"' in plots[0]
    for plot in plots:
        assert re.search(r'id="[\w-]*mark-\d+"', plot)
        assert re.match(r'<svg class="plot"[^>]* role="img" aria-label="[^"]+"', plot)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', page)) <= set(ids)


@pytest.mark.slow
def test_the_page_asks_nothing_of_a_network_and_runs_nothing(page: str) -> None:
    elements = Elements(page).found
    assert not {"script", "link", "iframe", "object", "embed", "form"} & {tag for tag, _ in elements}
    for tag, attributes in elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith(("#", "data:image/png;base64,")), value
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\((?!#)", page)


@pytest.mark.slow
def test_markup_in_a_run_reaches_the_page_as_text(tmp_path: Path) -> None:
    cells = {made_case(place, None, image=image, size=size): spread(US, 6)
             for place in ("host", HOSTILE) for image in ("a", HOSTILE) for size in (8, 64)}  # fmt: skip
    records: dict[object, list[Record]] = {
        case: [made_record(case, n, t, transport=HOSTILE, notes=(HOSTILE,)) for n, t in enumerate(times)]
        for case, times in cells.items()
    }
    elements = Elements(page_of(write_run(tmp_path / "run", records, title=HOSTILE)))  # type: ignore[arg-type]
    assert "script" not in {tag for tag, _ in elements.found}
    assert HOSTILE in elements.words


@pytest.mark.slow
def test_the_same_run_gives_the_same_page_and_colours_are_left_to_the_style_sheet(run: Path, page: str) -> None:
    assert page_of(run) == page
    assert "var(--series-0)" in page and "var(--ink)" in page
    assert not re.search(r"#0101[0-9a-f]{2}", page)


@pytest.mark.slow
def test_samples_that_are_missing_or_damaged_are_left_out(tmp_path: Path) -> None:
    run = ladder(tmp_path / "run", sizes=(8,))
    for number, file in enumerate(sorted((run / "samples").iterdir())):
        if number % 2:
            file.unlink()
        else:
            file.write_bytes(b"no array")
    assert "every sample" not in Elements(page_of(run)).words


GATHERED = made_case(workload="allgather")

#: Runs with little in them.
LITTLE: dict[str, dict[Case, list[Entry]]] = {
    "one option": {made_case(): [US]},
    "nothing measured": {made_case(image="a"): ["died"] * 3},
    "nothing moved": {
        of: [made_record(of, n, US, work=Work(amount=0 if of["size"] == 8 else 256, bus_factor=0.75)) for n in range(7)]
        for of in (GATHERED, GATHERED.having(size=8))
    },
    "nothing resolved": {made_case(image="a"): [0.0] * 7, made_case(image="b"): [*spread(US, 7)]},
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LITTLE)
def test_runs_with_little_in_them_make_a_page_too(tmp_path: Path, what: str) -> None:
    run = write_run(tmp_path / "run", LITTLE[what])
    (answer,) = chapter_of(run, figures=True).answer
    assert answer in Elements(page_of(run)).words


@pytest.mark.slow
def test_the_facts_are_those_of_every_side(tmp_path: Path) -> None:
    """Both images, and of each what stands in it and beside it; what was not examined does not differ."""
    sides = {name: image(name, libraries=(library(version="5.0"), library("UCX", name)), python=python)
             for name, python in (("a", "3.11.1"), ("b", "3.11.2"))}  # fmt: skip
    hosts = tuple(image(name, libraries=(library(version="4.1"),), python="3.12.0") for name in sides)
    made = experiment(sides, images=tuple(sides.values()), environments=hosts)
    cells = {made_case(*place, image=name): spread(US, 6)
             for name in sides for place in (("host", None), ("multi", "strict"))}  # fmt: skip
    facts = {row[0]: row[1] for row in
             chapter_of(write_run(tmp_path / "run", cells, experiment=made)).environment[0].rows}  # fmt: skip
    assert facts["library"] == "Open MPI 4.1 and Open MPI 5.0, UCX a and Open MPI 5.0, UCX b"
    assert facts["python"] == "3.11.1 and 3.11.2 and 3.12.0"
    alone = write_run(tmp_path / "alone", {made_case(): spread(US, 6)}, experiment=experiment(["a"], environments=()))
    assert {row[2:5:2] for row in chapter_of(alone).environment[1].rows} == {("-", "-")}


def disturbed(path: Path) -> Path:
    """A simulated run on too few cores, of which others had their share."""
    case = made_case()
    entries = [made_record(case, n, US * (1 + n), contended=True, oversubscribed=True) for n in range(3)]
    return write_run(path, {case: entries}, simulated=True)


@pytest.mark.slow
def test_what_could_mislead_is_on_the_page(tmp_path: Path) -> None:
    run = disturbed(tmp_path / "run")
    caveats, words = chapter_of(run).misleading, Elements(page_of(run)).words
    assert len(caveats) == 4 and all(caveat in words for caveat in caveats)


def test_what_a_page_says_first(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    """Its answers, and what could mislead."""
    places = {("host", None): 10, ("single", "ipc"): 15, ("single", "strict"): 20}
    ladders = {
        "a ladder": {
            made_case(*place, size=size): spread(time * US) for place, time in places.items() for size in (8, 64)
        },
        "a ladder of two operations": {
            made_case(*place, op=op): spread(time * US) for place, time in places.items() for op in ("sum", "max")
        },
    }
    several = ladders["a ladder of two operations"]
    ladders["in containers alone"] = {case: times for case, times in several.items() if not case.where.on_host}
    ladders["two operations"] = {
        made_case(image=image, ranks=ranks, workload=name, op=None): spread(US * time * ranks, 7)
        for name in ("alltoall", "allgather") for ranks in (2, 4) for image, time in (("a", 1), ("b", 2))
    }  # fmt: skip
    ladders["on the host alone"] = {case: times for case, times in several.items() if case.where.on_host}
    quick = {made_case(): spread(US), made_case("single", "strict"): spread(2 * US)}
    program = [recorded(CPU[2], CPU[2].case, launch, time) for launch, time in enumerate(spread(0.19))]
    runs = {
        **{name: write_run(tmp_path / name, cells) for name, cells in (LITTLE | ladders).items()},
        "disturbed": disturbed(tmp_path / "disturbed"),
        "programs on one side": write_suite(tmp_path / "programs", CPU, policies=()),
        "collectives beside a program": write_run(tmp_path / "both", {CPU[2].case: program, **quick}),
    }
    shown = []
    for name, run in runs.items():
        page = chapter_of(run)
        lines = (f"## {name}", "", *page.answer, "", *(f"* {caveat}" for caveat in page.misleading))
        shown.append("\n".join(lines).rstrip() + "\n")
    golden("report-answers.txt", "\n".join(shown))
    both = chapter_of(runs["collectives beside a program"])
    assert [section.title for section in both.sections] == ["dgemm", "allreduce sum float32", "Verdicts by policy"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".html", ".md", ".csv", ".tex", ".txt"])
def test_every_format_is_written_whole(here: Collbench, run: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"report{ending}"
    written = here("report", run, "-o", out)
    assert (written.code, written.err, list(tmp_path.iterdir())) == (0, "", [out])
    text = out.read_text()
    assert "single" in text
    if ending == ".csv":
        rows = list(csv.reader(text.splitlines()))
        assert len({len(row) for row in rows}) == 1 and len(rows) > 50
    if ending == ".tex":
        assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "word"),
    [("-o report.docx", ".html"), ("--against nobody1999", "choi2021"), ("-o /nowhere/report.html", "/nowhere"),
     ("--given policy=never", "--given")],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_line(here: Collbench, run: Path, flags: str, word: str) -> None:
    refused = here("report", run, *flags.split())
    assert refused.code in (1, 2) and word in refused.err and "Traceback" not in refused.err


@pytest.mark.slow
def test_a_page_that_was_there_stays_when_the_new_one_fails(here: Collbench, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")
    assert here("report", tmp_path / "nothing", "-o", out).code == 2
    assert out.read_text() == "old"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["matplotlib", "jinja2", "scipy"])
def test_a_package_that_is_missing_is_asked_for(run: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RequestError, match=re.escape(to_install("analysis"))):
        page_of(run)


# The page of a run of programs ----------------------------------------------------------------------------------------

#: The rows of the picture, and the axes that they are painted on.
Painted = tuple[list[BenchmarkRow], Axes]


@pytest.fixture(scope="module")
def programs_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = tuple(made for made in CPU + IO if made.case.workload in SUITES)
    return write_suite(tmp_path_factory.mktemp("programs") / "run", chosen, slower=EFFECTS, share=SHARES)


@pytest.fixture
def painted(programs_run: Path, monkeypatch: pytest.MonkeyPatch) -> Painted:
    return picture_of(programs_run, monkeypatch)


def picture_of(programs_run: Path, monkeypatch: pytest.MonkeyPatch) -> Painted:
    pictures: list[Painted] = []

    def remember(rows: list[BenchmarkRow], margin: float, title: str, name: str) -> Drawn:
        shown, figure = benchmarks(rows, margin, title, name), Figure()
        shown.paint(figure.add_subplot())
        pictures.append((rows, figure.axes[0]))
        return shown

    monkeypatch.setattr(contents, "benchmarks", remember)
    chapter_of(programs_run, figures=True)
    return pictures[0]


def test_rows_are_sorted_by_suite_and_told_apart_by_what_differs(painted: Painted) -> None:
    rows, axes = painted
    assert [row.label for row in rows] == [
        "CPU", "linpack (n 2000, lda 2000)", "linpack (n 5000, lda 5008)", "dgemm",
        "I/O", "dd (count 16, on overlay)", "dd (count 1600, on overlay)", "dd (count 16, on volume)",
        "dd (count 1600, on volume)", "ioping (mode cached)", "ioping (mode direct)", "fio (request)", "fio (p99)",
    ]  # fmt: skip
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.label for row in rows]
    bold = [label.get_text() for label in axes.get_yticklabels() if label.get_fontweight() == "bold"]
    assert bold == ["CPU", "I/O"]


def test_a_verdict_has_a_colour_a_marker_and_a_word(painted: Painted) -> None:
    rows, axes = painted
    marks = [line for line in axes.lines if line.get_gid()]
    looks = {(to_hex(str(line.get_color())), line.get_marker()) for line in marks}
    assert looks == {(WORSE, ">"), (BETTER, "<"), (SERIES[0], "s"), (OPEN, "o")}
    texts = [text.get_text() for text in axes.texts]
    assert len(texts) == len(rows) - 2  # suites have none
    assert [texts[row].split()[0] for row in (0, 2, 3, 7)] == ["same", "faster", "slower", "unclear"]


def test_whiskers_are_the_intervals_and_the_margin_is_a_band(painted: Painted) -> None:
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


def test_no_margin_is_a_margin(programs_run: Path) -> None:
    assert "<svg" in html([chapter(observe(programs_run), {}, 0.0, suite_of=SUITES)])


def test_far_differences_have_a_logarithmic_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs_run = write_suite(tmp_path / "run", CPU[:3], slower={"linpack": 3.1, "dgemm": 0.4})
    _, axes = picture_of(programs_run, monkeypatch)
    assert axes.get_xscale() == "symlog"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["-30", "-10", "-2", "0", "+2", "+10", "+30", "+100"]
    assert axes.get_xlim()[0] < -70 and axes.get_xlim()[1] > 250


def test_the_picture_follows_the_answer_and_the_evidence_follows(programs_run: Path) -> None:
    page = page_of(programs_run)
    places = [page.index(text) for text in (
        "CPU: single strict vs host: ", "I/O: single strict vs host: ",
        "All benchmarks, by policy: single strict vs host", "<h2>All benchmarks</h2>", "<h2>linpack</h2>",
        "linpack solve, tools, single strict vs host (docker)", "<h2>fio</h2>", "<h2>Verdicts by storage</h2>",
        "<h2>Environment</h2>")]  # fmt: skip
    assert places == sorted(places)
    plot = re.search(r'<svg class="plot".*?</svg>', page, re.DOTALL)
    assert plot is not None and len(re.findall(r'id="[\w-]*mark-\d+"', plot.group())) == 11
    assert "take host" not in page and "at 0" not in page
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_benchmarks_have_tables_of_comparisons_and_launches(programs_run: Path) -> None:
    report = chapter_of(programs_run)
    assert report.picture == ()
    (numbers,) = report.sections[0].folded_tables
    assert numbers.rows[2][0] == "dgemm" and numbers.rows[2][1].startswith("faster -4 % (")
    assert len(numbers.rows) == 11
    sections = {section.title: section for section in report.sections}
    (compared,), (launches,) = sections["dgemm"].tables, sections["dgemm"].folded_tables
    assert "host (GFLOP/s)" in compared.columns and "single strict (GFLOP/s)" in compared.columns
    assert launches.columns[0] == "place"
    assert launches.title == "Times of dgemm total, n 2048, threads 2, tools, 8 launches"
    given = chapter(observe(programs_run), {"storage": "volume"}, 0.02, figures=False, suite_of=SUITES)
    assert [section.title for section in given.sections] == ["All benchmarks", "dd", "fio"]


def test_a_run_of_one_side_is_shown_and_compared_with_nothing(tmp_path: Path) -> None:
    report = chapter_of(write_suite(tmp_path / "run", CPU, policies=()), figures=True)
    assert (len(report.answer), report.picture) == (1, ())
    assert [section.title for section in report.sections] == ["linpack", "dgemm", "stream", "sysbench_cpu"]
    assert "rate (GFLOP/s)" in report.sections[0].tables[0].columns


def test_markup_in_the_name_of_a_benchmark_is_text(tmp_path: Path) -> None:
    hostile = "<b>x</b>$_{"
    programs_run = write_suite(tmp_path / "run", (of(hostile, 1.0, Work(amount=1), measure=hostile, n=1),))
    page = page_of(programs_run)
    assert "<b>" not in page and "&lt;b&gt;x&lt;/b&gt;$_{" in page


def test_no_section_is_empty() -> None:
    """Where no pair differs in a factor alone, there are no verdicts by it."""
    sections = chapter_of(Path(__file__).parents[2] / "results/xu2017/xu2017-io").sections
    filled = (one.lines or one.tables or one.figures or one.folded or one.folded_tables for one in sections)
    assert sections and all(filled)
