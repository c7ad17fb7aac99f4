"""Tables of runs: units of columns, sizes, notes above and below, what a terminal shows."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs import read_run
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_programs import printing, row_with, run_row
from tests.unit.made_runs import (
    experiment,
    image,
    library,
    made_case,
    made_cell,
    made_failure,
    made_record,
    spread,
    write_run,
)
from tests.unit.made_suite import inside

from collbench import workloads
from collbench.analysis.results import joined
from collbench.analysis.runs import observe
from collbench.report import new_style
from collbench.report.cells import launch_table
from collbench.report.headings import heading, own_names, reductions, row_words, table_key, value_text, varying
from collbench.report.numbers import each_of, rate, rate_scale, rate_unit, time_each, time_scale
from collbench.report.remarks import of_records as cautions
from collbench.report.remarks import remarks
from collbench.report.tables import Table, latex, lined_up, terminal
from collbench.schema.case import Case, case_of
from collbench.schema.record import (
    Record,
    ResultCheck,
    Samples,
    Unit,
    Work,
    lag1_autocorrelation,
    median_interval_ranks,
    summarise,
)
from collbench.workloads.program import Measure


@pytest.fixture
def forty_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of lines of any length, those of a terminal."""
    monkeypatch.setattr("collbench.report.tables.LONGEST_LINE", 40)


def width(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.usefixtures("forty_characters")
def test_the_widest_column_is_broken_and_intervals_are_not() -> None:
    """And a table that fits has one line a row."""
    rows = [("1", "a sentence of several words", "+12.0 (+9.0 .. +15.0)"), ("2", "short", "same")]
    lines = lined_up(("no.", "what", "difference"), rows).splitlines()
    assert max(map(len, lines)) <= 40
    assert any("(+9.0 .. +15.0)" in line for line in lines)
    assert [line.split()[0] for line in lines if line[0] != " "] == ["no.", "---", "1", "2"]
    assert lined_up(("a", "b"), [("1", "x y"), ("2", "z")]).splitlines() == [
        "a    b", "---  ---", "1    x y", "2    z"]  # fmt: skip


@pytest.mark.usefixtures("forty_characters")
def test_columns_move_together_before_intervals_break() -> None:
    ends, heads = "(1.00 .. 2.00)", ("a", "b", "c")
    narrow, text, broken = (lined_up(heads, [(ends, ends, last)]) for last in ("12345678", "1234567890", ends))
    assert width(narrow) <= 40 and narrow.count(ends) == 2
    assert width(text) == 40 and text.count(ends) == 2 and f"{ends} {ends} 1" in text
    assert width(broken) <= 40 and ends not in broken


WORD = st.text("abc", min_size=1, max_size=8)
CELL = st.lists(WORD, max_size=6).map(" ".join)


@pytest.mark.usefixtures("forty_characters")
@given(st.integers(1, 4).flatmap(lambda columns: st.lists(st.tuples(*[CELL] * columns), min_size=1, max_size=4)))
def test_no_word_is_lost_and_no_line_is_too_wide(rows: list[tuple[str, ...]]) -> None:
    heads = tuple(f"head {number}" for number in range(len(rows[0])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collbench.report.tables.LONGEST_LINE", 40)
        text = terminal([Table("title", heads, tuple(rows))])
    assert width(text) <= 40
    words = sorted(word for row in rows for cell in row for word in cell.split())
    assert sorted(word for word in text.split() if set(word) <= set("abc")) == words


@pytest.mark.usefixtures("forty_characters")
def test_a_table_for_a_paper_has_in_its_caption_what_all_rows_share() -> None:
    """And small type, smaller for wide rows."""
    rows = (("8", "host", "1.00", "-1 .. +2"), ("1M", "host", "20.0", "+3 .. +9"))
    text = latex([Table("bcast", ("size (B)", "place", "difference (%)", "difference 95 %"), rows, ("5 % noise",))])
    assert "\\caption{bcast, place host}" in text and "\\small" in text and "% 5 \\% noise\n" in text
    assert "\n8 & 1.00 (-1 .. +2) \\\\\n1M & 20.0 (+3 .. +9) \\\\\n\\bottomrule" in text
    wide = Table("", ("a", "b"), (("x" * 30, "y" * 30), ("z", "w")))
    assert "\\footnotesize" in latex([wide])


# The unit of a column of times or rates, and what a row of a program's table is told apart by -------------------------

REQUESTS = Work(amount=200, unit="requests", shown="time")


@pytest.mark.parametrize(
    ("seconds", "unit", "texts"),
    [([2.5e-7, 3e-6], "us", ["0.250", "3.000"]), ([0.0, 2e-3, 1.5], "ms", ["0.000", "2.000", "1500"]),
     ([1.0, 90000.0], "s", ["1.000", "90000"]), ([2e-4, 1.5], "", ["200 us", "1.5 s"]), ([], "us", [])],
)  # fmt: skip
def test_the_unit_of_times_suits_the_smallest_if_none_is_far(seconds: list[float], unit: str, texts: list[str]) -> None:
    scale = time_scale(seconds)
    assert (scale.unit, list(map(scale.text, seconds))) == (unit, texts)
    assert scale.heading("median") == ("median" if not unit else f"median ({unit})")


@pytest.mark.parametrize(
    ("unit", "amounts", "heading", "texts"),
    [("bytes", (3e9, 1e9), "rate (GB/s)", ["3.000", "1.000"]),
     ("bytes", (3e9, 183e6), "rate (MB/s)", ["3000", "183.0"]),
     ("flop", (5e8,), "rate (GFLOP/s)", ["0.500"]), ("requests", (10526.0,), "rate (IOPS)", ["10526"])],
)  # fmt: skip
def test_rates_have_their_usual_unit(unit: Unit, amounts: tuple[float, ...], heading: str, texts: list[str]) -> None:
    shown = [(Work(amount=amount, unit=unit, shown="rate"), 1.0) for amount in amounts]
    scale = rate_scale(shown)
    assert (scale.heading("rate"), [scale.text(*each) for each in shown]) == (heading, texts)


def test_rates_of_different_work_have_their_units_in_the_cells() -> None:
    shown = [(Work(amount=3e9, shown="rate"), 1.0), (Work(amount=20, unit="events", shown="rate"), 0.0)]
    scale = rate_scale(shown)
    assert (scale.heading("rate"), [scale.text(*each) for each in shown]) == ("rate", ["3.000 GB/s", "- events/s"])
    assert rate(Work(amount=3e9), 1.5) == 2.0
    units: dict[Unit, str] = {"bytes": "2.000", "flop": "2.000", "requests": "2000000000"}
    for unit, text in units.items():
        assert rate_scale([]).text(Work(amount=3e9, unit=unit), 1.5).split()[0] == text
    assert rate_scale([]).text(Work(amount=1), 0.0) == "- GB/s"
    assert rate_unit([Work(amount=1)]) == ""
    assert rate_unit([Work(amount=0), Work(amount=1, unit="requests", shown="rate")]) == "IOPS"


def test_of_requests_known_by_their_time_one_is_shown() -> None:
    assert time_each(REQUESTS, 1.0) == 0.005
    assert time_each(Work(amount=200, unit="requests", shown="rate"), 1.0) == 1.0
    assert time_each(Work(amount=200, unit="bytes"), 1.0) == 1.0
    assert each_of([REQUESTS, REQUESTS]) == " a request"
    assert each_of([REQUESTS, Work(amount=1, unit="batches")]) == each_of([]) == each_of([Work(amount=1)]) == ""


def test_tokens_are_a_rate_beside_the_time_of_their_batch() -> None:
    tokens = Work(amount=1024, unit="tokens", shown="rate")
    assert (rate(tokens, 0.5), rate_unit([tokens]), time_each(tokens, 0.5)) == (2048.0, "tokens/s", 0.5)
    assert each_of([tokens, Work(amount=4, unit="batches")]) == " a batch"
    assert each_of([tokens]) == ""


def test_all_reduces_of_a_step_are_told_once_for_each_training() -> None:
    made = [case_of("ddp", {"network": name, "measure": measure, "ranks": 2})
            for name in ("gpt-tiny", "alexnet") for measure in ("step", "compute")]  # fmt: skip
    steps = [(case, (1 << 20, 3 << 20) if case["network"] == "gpt-tiny" else (2048,)) for case in made]
    assert reductions(steps) == [
        "network gpt-tiny: 2 all-reduces a step, 4.00 MiB in all",
        "network alexnet: 1 all-reduce a step, 2.00 KiB in all",
    ]
    assert reductions(steps[:2]) == ["2 all-reduces a step, 4.00 MiB in all"]
    assert reductions([(made[0], ())]) == []
    (line,) = cautions([made_record(made[0], 0, 1e-3, messages=(2048,))])
    assert line.endswith(reductions(steps[2:])[0])


def test_parameters_keep_their_order_and_the_place_is_none_of_them() -> None:
    first = case_of("fio", {"rw": "read", "bs": 4096, "storage": "volume", "size": 1 << 20, "measure": "p99"})
    cases: list[Case] = [first, inside(first.having(bs=65536)), inside(first)]
    assert own_names(cases) == ("rw", "bs", "storage", "size", "measure")
    assert varying(cases) == ("bs", "size")
    assert row_words(first, ("rw", "bs", "storage", "size")) == "rw read, bs 4096, on volume, 1M"
    assert [value_text(first, name) for name in ("bs", "size", "nothing")] == ["4096", "1M", ""]


def test_worlds_of_one_program_share_a_table_with_a_column_of_ranks() -> None:
    """A training of 1 worker and of 2; of a collective, worlds are tables."""
    one, two = (case_of("ddp", {"measure": "step", "network": "fcn5", "ranks": ranks}) for ranks in (1, 2))
    assert varying([one, two]) == ("ranks",)
    assert table_key(one) == table_key(two)
    assert heading(two) == "ddp step, network fcn5, 2 ranks"
    made = [case_of("allreduce", {"backend": "mpi", "size": 8, "ranks": ranks}) for ranks in (2, 4)]
    assert table_key(made[0]) != table_key(made[1])


# What a row and a remark say of sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("amount", "last"), [(1024, ": 1K"), (960, "1K (sizes asked for)")])
def test_a_remark_says_where_its_sizes_are_not_those_of_the_rows(amount: int, last: str) -> None:
    case = made_case(size=1024)
    record = made_record(case, 0, 1e-6, contended=True, work=Work(amount=amount, count=80, bus_factor=0.5))
    (line,) = cautions([record, made_record(case.having(size=8), 0, 1e-6)])
    assert line.endswith(last)


def test_a_table_shows_the_bytes_that_move(stored_run: Path) -> None:
    """And of a program the size asked for."""
    rounded = made_record(made_case(size=1000), 0, 1e-6, work=Work(amount=960, count=80, bus_factor=0.5))
    work, case = Work(amount=5e9, unit="flop", shown="rate"), case_of("dgemm", {"size": 1000, "measure": "total"})
    for record, head, size in ((rounded, "moved", "960"), (made_record(case, 0, 1e-6, work=work), "size", "1000")):
        style = new_style("table")
        style.begin(read_run(stored_run).manifest)
        lines = (style.add(record) + style.end()).splitlines()
        assert (lines[2].split()[0], lines[5].split()[0]) == (head, size)


def test_a_program_that_is_skipped_is_named_once_by_its_parameters_and_not_by_its_measures() -> None:
    cases = [case_of("fio", {"bs": bs, "measure": name}) for bs in (4096, 65536) for name in ("p99", "request")]
    rows = [made_failure(case, 0, "no O_DIRECT", "skipped") for case in cases[:2]]
    rows += [made_record(case, 0, 1e-3, contended=True) for case in cases[2:]]
    skipped, contended = remarks(rows)
    assert skipped == "! skipped at bs 4096: no O_DIRECT"
    assert contended.startswith("* ") and contended.endswith(": all")
    (contended,) = remarks([*rows[2:], made_record(cases[0], 0, 1e-3)])
    assert contended.endswith(": bs 65536")


# What stands above and below the tables of compare and advise ---------------------------------------------------------

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


def late_run(path: Path, *cells: tuple[str, int, int, int]) -> Path:
    """Of each image and size the samples of ten launches, and how many of them began late."""
    return write_run(path, {
        made_case(image=name, size=size): [
            made_record(made_case(image=name, size=size), launch, 1e-6,
                        samples=Samples(n=number, invalid=late, warmup=5)) for launch in range(10)
        ]
        for name, size, number, late in cells
    })  # fmt: skip


@pytest.mark.parametrize("command", [("advise",), ("compare", "--by", "image")])
def test_late_samples_are_pooled_and_the_worst_named(here: Collbench, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A report alone has few of them too."""
    cells = (("a", 1024, 9000, 9), ("b", 1024, 9000, 9), ("a", 4096, 100, 44), ("b", 4096, 100, 20))
    name, *flags = command
    out = here(name, late_run(tmp_path / "run", *cells), *flags).out
    (line,) = (line for line in out.splitlines() if "began late" in line)
    assert line.startswith("* 0.5 % ") and line.endswith(" 44 % (4K, a host)")
    few = late_run(tmp_path / "few", ("a", 1024, 100, 9), ("b", 1024, 100, 9))
    assert "began late" not in here("advise", few).out
    assert here("report", few, "-o", tmp_path / "r.txt").code == 0
    report = " ".join((tmp_path / "r.txt").read_text().split())
    assert re.search(r" 9\.0 % .* began late .* 9\.0 % \(1K, a host\)", report)


def test_the_papers_figure_is_in_the_json_alone(compare: Collbench, tmp_path: Path) -> None:
    """Its sign is the opposite of the difference's."""
    run = write_run(tmp_path / "run", {made_case(image="a"): spread(1e-6), made_case(image="b"): spread(2e-6)})
    assert not any("Diff%" in compare(run, "--by", "image", "--style", style).out for style in ("table", "csv"))
    (comparison,) = json.loads(compare(run, "--by", "image", "--style", "json").out)["comparisons"]
    assert comparison["paper_diff_percent"] == pytest.approx(-100)


def test_sizes_without_a_column_are_named(here: Collbench, tmp_path: Path) -> None:
    cells = {made_case(image=image, size=1024 << step): spread(1e-6, 7) for image in "ab" for step in range(7)}
    assert "measured too: 8K" in here("advise", write_run(tmp_path / "seven", cells), "--why").out
    fewer = {case: times for case, times in cells.items() if case["size"] != 8192}
    assert "measured too" not in here("advise", write_run(tmp_path / "six", fewer), "--why").out


def test_guidelines_that_hold_are_not_under_a_heading_of_violated_ones(here: Collbench, tmp_path: Path) -> None:
    cells = {made_case(size=size): spread(size * 1e-9, 7) for size in (1024, 4096)}
    lines = here("advise", write_run(tmp_path / "run", cells), "--why").out.splitlines()
    counts = lines[lines.index("performance guidelines") + 1]
    assert re.findall(r"\d+ \w+", counts) == ["1 checked", "1 hold", "0 violated", "0 undecided"]


# What people know by a rate is shown by it, and is compared by its time as everything else is -------------------------

HOST = case_of("stream", {"measure": "triad", "size": 1_000_000, "image": "openmpi"})
INSIDE = HOST.having(engine="docker", policy="single", isolation="strict")


def measured(case: Case, launch: int, seconds: float, work: Work | None = None) -> Record:
    known = work or Work(amount=3_000_000, shown="rate")
    return made_record(case, launch, seconds, work=known, driver=None, align=None, cadence=None, clock="local",
                       in_place=None, transport=None)  # fmt: skip


def alike(cases: Sequence[Case], work: Work | None = None) -> Mapping[Case, list[Record]]:
    return {case: [measured(case, launch, 1e-3, work) for launch in range(7)] for case in cases}


def test_tables_of_launches_and_comparisons_show_the_rate(here: Collbench, tmp_path: Path) -> None:
    """The host at 3 GB/s, the container at 2; the host has a library more, which programs do not use."""
    cells = {case: [measured(case, launch, seconds * (1 + launch / 1e4)) for launch in range(8)]
             for case, seconds in ((HOST, 1e-3), (INSIDE, 1.5e-3))}  # fmt: skip
    with_nccl = (image(libraries=(library(), library("NCCL", "2.29"))),)
    run = write_run(tmp_path / "run", cells, experiment=experiment(["openmpi"], environments=with_nccl, launches=8))
    shown = here("show", run)
    assert (shown.code, shown.err, shown.out.splitlines()[0]) == (0, "", "stream triad, openmpi, 8 launches")
    assert "rate" in shown.out and "(GB/s)" in shown.out
    host, inside = (line.split() for line in shown.out.splitlines() if line.startswith("1000000 "))
    assert "2.999" in host and "1.999" in inside
    compared = here("compare", run, "--by", "policy", "--all")
    assert (compared.code, compared.err, "Diff%" in compared.out) == (0, "", False)
    for text in ("\n\nstream triad, openmpi, single strict vs host (docker)\n", "(GB/s)", "2.999", "1.999", "slower",
                 "+50.0"):  # fmt: skip
        assert text in compared.out
    assert "take host" in here("advise", run).out


def test_guidelines_are_of_collectives(here: Collbench, tmp_path: Path) -> None:
    """A larger size may well be quicker for a program: nothing says that it must not."""
    advised = here("advise", write_run(tmp_path / "run", alike([HOST, HOST.having(size=1000), INSIDE])), "--why")
    assert (advised.code, "guideline" in advised.out) == (0, False), advised.err


def test_times_have_no_column_of_rates(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", alike([HOST, INSIDE], Work(amount=1, unit="launches")), libraries=(library(),))
    for command, *flags in (("show",), ("compare", "--by", "policy", "--all")):
        printed = here(command, run, *flags)
        assert (printed.code, "rate" in printed.out.replace("separate", "")) == (0, False), printed.err


# The table of what launches took --------------------------------------------------------------------------------------


def run_of(path: Path, accuracies: list[float]) -> Path:
    """On the host with these figures; in a container without any."""

    def checked(number: int, accuracy: float) -> ResultCheck:
        return ResultCheck(wrong=0, figures={"accuracy": accuracy, "steps of worker 0": 10.0 + number})

    host, inside = program_case(), program_case("multi", "strict")
    return write_run(path, {
        host: [program_record(host, number, 1.0, check=checked(number, accuracy))
               for number, accuracy in enumerate(accuracies)],
        inside: [program_record(inside, number, 1.0) for number in range(len(accuracies))],
    })  # fmt: skip


def test_the_median_of_a_figure_stands_beside_the_times(here: Collbench, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [0.97, 0.87654, 0.5])
    table = launch_table(list(observe(run).cells.values()))
    assert "steps of worker 0" not in table.columns
    column = table.columns.index("accuracy")
    assert [row[column] for row in table.rows] == ["0.877", ""]
    assert here("report", run, "-o", tmp_path / "report.md").code == 0
    assert "accuracy" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_runs_that_are_read_together_have_the_figures_of_all(tmp_path: Path) -> None:
    first, second = (observe(run_of(tmp_path / name, values)) for name, values in (("a", [0.1, 0.2]), ("b", [0.9])))
    (host,) = (case for case in first.cells if case.where.on_host)
    cell = joined([(first.cells, 0), (second.cells, 2)])[host]
    assert cell.by_figure["accuracy"] == [0.1, 0.2, 0.9] and cell.figures["accuracy"] == 0.9


def test_a_row_has_the_median_and_the_ends_and_a_place_without_launches_has_none() -> None:
    """The number of launches is a column only where it differs."""

    def table_of(**launches: int) -> Table:
        return launch_table([made_cell(made_case(policy), [1e-6 * (launch + 1) for launch in range(number)])
                             for policy, number in launches.items()])  # fmt: skip

    table = table_of(single=5, host=3, multi=0)
    columns = [table.columns.index(name) for name in ("place", "median (us)", "min .. max (us)", "launches")]
    assert [[row[column] for column in columns] for row in table.rows] == [
        ["host", "2.000", "1.000 .. 3.000", "3"], ["single", "3.000", "1.000 .. 5.000", "5"],
    ]  # fmt: skip
    assert "launches" not in table_of(single=3, host=3).columns


def exact_low(n: int) -> int:
    """The largest k with P(Binomial(n, 1/2) <= k) <= 2.5 %, in whole numbers; 0 where there is none."""
    choose, below, low = 1, 0, 0
    for k in range(n):
        below += choose
        choose = choose * (n - k) // (k + 1)
        if below * 1000 > 25 * 2**n:
            break
        low = k
    return low


def test_the_interval_of_the_median_is_exact() -> None:
    for n in (*range(1, 201), 1_000, 9_999, 10_000):
        low, high = median_interval_ranks(n)
        assert (low, high) == (exact_low(n), n - 1 - low), n
    assert [median_interval_ranks(100, confidence) for confidence in (0.99, 0.95)] == [(36, 63), (39, 60)]
    binom = pytest.importorskip("scipy.stats", reason="scipy is not installed here").binom
    for n in range(1, 201):
        low, high = median_interval_ranks(n)
        covered = binom.cdf(high, n, 0.5) - binom.cdf(low, n, 0.5)
        narrower = binom.cdf(high - 1, n, 0.5) - binom.cdf(low + 1, n, 0.5)
        assert covered >= 0.95 > narrower if n >= 6 else (low, high) == (0, n - 1)


@pytest.mark.parametrize("n", [1, 2, 3, 20, 101])
def test_a_summary_is_numpys(n: int) -> None:
    samples = np.random.default_rng(n).integers(400, 900, n)
    summary = summarise(samples)
    ordered = sorted(samples.tolist())
    low, high = median_interval_ranks(n)
    expected = [*np.percentile(samples, (50, 95, 99)).tolist(), sum(ordered) / n]
    assert [summary.p50, summary.p95, summary.p99, summary.mean] == pytest.approx(
        [value * 1e-9 for value in expected], rel=1e-12
    )
    assert (summary.min, summary.max) == (ordered[0] * 1e-9, ordered[-1] * 1e-9)
    assert summary.ci95 == (ordered[low] * 1e-9, ordered[high] * 1e-9)
    assert summary.min <= summary.ci95[0] <= summary.p50 <= summary.ci95[1] <= summary.max


def test_the_order_of_samples_matters_to_lag1_alone() -> None:
    rising = summarise(np.arange(1, 101))
    mixed = summarise(np.random.default_rng(1).permutation(np.arange(1, 101)))
    assert rising.lag1 is not None and mixed.lag1 is not None
    assert rising.lag1 > 0.9 > 0.3 > abs(mixed.lag1)
    assert rising.ci95 == mixed.ci95


def test_lag1_by_its_definition() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    mean = sum(values) / 7
    above = sum((values[i] - mean) * (values[i + 1] - mean) for i in range(6))
    below = sum((value - mean) ** 2 for value in values)
    assert lag1_autocorrelation(np.array(values)) == pytest.approx(above / below)
    assert lag1_autocorrelation(np.array([1.0, -1.0] * 50)) == pytest.approx(-0.99)
    assert lag1_autocorrelation(np.array([1.0, 2.0, 6.0])) == pytest.approx(-1 / 14)
    assert lag1_autocorrelation(np.array([1.0, 2.0])) is lag1_autocorrelation(np.full(10, 7.0)) is None


# Times near the resolution of what a program prints have a note -------------------------------------------------------


@pytest.mark.parametrize(("seconds", "coarse"), [(9.9e-3, True), (1e-2, False)])
def test_a_time_of_few_steps_has_a_note(monkeypatch: pytest.MonkeyPatch, seconds: float, coarse: bool) -> None:
    measures = (Measure("total", lambda case: 1, "events", step=1e-4), Measure("exact", lambda case: 1, "events"))
    row = replace(row_with(printing("")), measures=measures, verify=lambda case, output: 0, notes=lambda output: (),
                  elapsed=lambda *_: 0.0,
                  parse=lambda output: {"total": [seconds] * 4, "exact": [1e-9] * 4})  # fmt: skip
    (total, _), (exact, _) = run_row(monkeypatch, row)
    notes = [note for note in total.notes if "100 us" in note and "total" in note]
    assert bool(notes) == coarse
    assert not set(notes) & set(exact.notes) and total.status == exact.status == "ok"


def test_sysbench_prints_tenths_of_milliseconds() -> None:
    rows = [workloads.get(name) for name in workloads.names() if name.startswith("sysbench_")]
    assert len(rows) == 4
    assert {measure.step for row in rows for measure in row.measures} == {1e-4}
