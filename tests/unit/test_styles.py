"""Styles of records: machine formats read by parsers of their kind, nccl-tests and OSU as people parse them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from tests.runs import Run, read_run
from tests.unit.made_runs import library, made_case, made_manifest, made_record

from collbench.report import new_style
from collbench.report.numbers import format_rate, format_us
from collbench.report.styles import COLUMNS
from collbench.schema import record as records
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record


@pytest.fixture
def run(stored_run: Path) -> Run:
    return read_run(stored_run)


def shown(style: str, manifest: Manifest, *rows: Record) -> str:
    """What the style prints for these records."""
    printer = new_style(style)
    return "".join([printer.begin(manifest), *map(printer.add, rows), printer.end()])


def test_osu_rows_have_five_columns_and_a_barrier_four(printed: Callable[..., str]) -> None:
    """OSU's columns with -f: size (of a block), average, minimum, maximum, iterations; osu_barrier has no size."""
    sections = printed("osu").split("\n\n")
    titles = [section.splitlines()[0] for section in sections]
    assert titles == [
        f"# OSU MPI {name} Latency Test"
        for name in ("Allreduce", "Allreduce", "Gather", "Gather", "Barrier", "Broadcast", "Broadcast", "ps_bcast")
    ]
    assert ["in place" in section for section in sections[:4]] == [False, True, False, True]
    every: list[list[str]] = []
    for section in sections:
        rows = [line.split() for line in section.splitlines() if line and not line.startswith("#")]
        assert rows or "# skipped at" in section
        for row in rows:
            assert len(row) == (4 if "Barrier" in section else 5)
            average, low, high = map(float, row[-4:-1])
            assert low <= average <= high and row[-1].isdigit()
        every += rows
    assert [row[0] for row in every if len(row) == 5] == ["8", "1048576", "8", "240", "4294967296", "65536"]
    assert (every[0], every[1][-1]) == (["8", "0.43", "0.37", "0.78", "1000"], "988")


@pytest.mark.parametrize(("collective", "size"), [("reduce_scatter", "4096"), ("allgather", "1024")])
def test_osu_size_of_a_split_collective(run: Run, collective: str, size: str) -> None:
    """osu_reduce_scatter prints the whole buffer, osu_allgather what one rank contributes."""
    record = next(record for record in run.records if record.seconds and record.case["dtype"] == "float32")
    assert record.work is not None
    work = msgspec.structs.replace(record.work, amount=4096, count=256)
    split = msgspec.structs.replace(record, case=record.case.having(workload=collective), work=work)
    text = shown("osu", run.manifest, split)
    assert [line.split()[0] for line in text.splitlines() if not line.startswith("#")] == [size]


def test_csv_has_a_row_for_every_record(printed: Callable[..., str], run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(printed("csv"))))
    assert tuple(rows[0]) == COLUMNS
    for row, record in zip(rows, run.records, strict=True):
        assert None not in row
        assert [row[name] for name in ("status", "reason", "size_asked", "amount", "driver")] == [
            record.status, record.reason or "", str(record.case["size"]),
            "" if record.work is None else str(record.work.amount), record.driver or "",
        ]  # fmt: skip
        if record.seconds is not None and record.samples is not None:
            assert (float(row["median_s"]), float(row["busbw_GBps"])) == (record.seconds.p50, record.busbw)
            assert int(row["samples"]) == record.samples.n - record.samples.invalid
        else:
            assert row["median_s"] == row["samples"] == ""


def test_json_is_one_document_whose_records_are_records(printed: Callable[..., str], run: Run) -> None:
    document = json.loads(printed("json"))
    assert set(document) == {"manifest", "records"}
    assert document["manifest"]["ranks"] == 4
    for fields, record in zip(document["records"], run.records, strict=True):
        assert fields.pop("algbw") == record.algbw
        assert fields.pop("busbw") == record.busbw
        assert records.decode(json.dumps(fields).encode()) == record


def test_a_failure_stays_under_the_heading_of_its_case(printed: Callable[..., str]) -> None:
    """It has no driver of its own: the heading goes by the driver that was asked for."""
    table = printed("table", 4, 5)
    assert table.count("gather") == 2 and "driver python" in table and "! skipped at 2000: " in table
    assert printed("table", 3, 0).count("allreduce sum") == 1
    assert printed("nccl-tests", 5, 4).count("Collective test starting") == 1


@pytest.mark.parametrize(("ranks", "simulated", "hint"), [(1, False, True), (1, True, False), (2, False, False)])
def test_one_rank_alone_is_told_to_bring_others(run: Run, ranks: int, simulated: bool, hint: bool) -> None:
    manifest = msgspec.structs.replace(run.manifest, ranks=ranks, simulated=simulated)
    heading = new_style("table").begin(manifest)
    assert (f"; {ranks} rank on alpha" in heading) is (ranks == 1)
    assert ("mpirun -n 4" in heading) is hint
    assert ("SIMULATED: " in heading) is simulated and "fake" not in heading


def test_times_have_four_digits_where_they_matter_and_rates_three() -> None:
    times = {0.41234: "0.412", 9.9994: "9.999", 12.346: "12.35", 123.46: "123.5", 1234.4: "1234", 0: "0.000"}
    assert {us: format_us(us * 1e-6) for us in times} == times
    rates = {None: "-", 0.0: "-", 0.01234: "0.0123", 0.5: "0.500", 12.345: "12.35", 123.45: "123.5"}
    assert {value: format_rate(value) for value in rates} == rates


def test_a_table_with_two_gates_says_which_row_had_which(run: Run) -> None:
    first = next(record for record in run.records if record.seconds is not None)
    other = msgspec.structs.replace(first, align="barrier", case=first.case.having(size=16))
    lines = shown("table", run.manifest, first, other).splitlines()
    rows = [line.split() for line in lines if line.lstrip()[:1].isdigit()]
    assert [row[-1] for row in rows] == ["roundtime", "barrier"]


@pytest.mark.parametrize(
    ("number", "late", "interval"), [(1, 0, "-"), (6, 1, "-"), (5, 0, "-"), (6, 0, "1.000 .. 2.000")]
)
def test_fewer_than_six_valid_samples_have_no_interval(number: int, late: int, interval: str) -> None:
    samples = records.Samples(n=number, invalid=late, warmup=5)
    record = made_record(made_case(), 0, 1e-6, samples=samples)
    assert record.seconds is not None
    record = msgspec.structs.replace(record, seconds=msgspec.structs.replace(record.seconds, ci95=(1e-6, 2e-6)))
    row = shown("table", made_manifest(), record).splitlines()[-1]
    assert interval in map(str.strip, row.split("  "))
    assert (".." in row) is (interval != "-")


@pytest.mark.parametrize("style", ["table", "nccl-tests"])
def test_a_library_of_several_images_is_named_once(style: str) -> None:
    manifest = made_manifest(libraries=(library(), library("MPICH", "4.3")) * 2)
    text = shown(style, manifest, made_record(made_case(), 0, 1e-6))
    assert text.count("Open MPI 5.0.11, MPICH 4.3") == text.count("MPICH 4.3") == 1


# The nccl-tests style, read by a parser as people write them for nccl-tests -------------------------------------------

HALF = r"\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)"
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)" + HALF + HALF + r"\s*$")
STARTED = re.compile(r"^# Collective test starting: (\w+_perf)$")
SETTINGS = re.compile(
    r"^# nThread 1 nGpus 1 minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\) warmup iters: "
)
WRONG = re.compile(r"^# Out of bounds values : (\d+) (OK|FAILED)$")
AVERAGE = re.compile(r"^# Avg bus bandwidth    : (\S+) $")
ENDED = re.compile(r"^# Collective test concluded: (\w+_perf)$")
DEVICE = re.compile(r"^#  Rank +(\d+) Group +(\d+) Pid +(\d+) on +(\S+) device +(\d+) \[[0-9a-f:]+\] (.+)$")


@dataclass
class Parsed:
    """One collective."""

    name: str
    settings: tuple[str, ...] = ()
    devices: list[tuple[str, ...]] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    wrong: tuple[str, ...] = ()
    average: float = -1.0
    ended: bool = False


def parse(text: str) -> list[Parsed]:
    collectives: list[Parsed] = []
    for line in text.splitlines():
        if match := STARTED.match(line):
            collectives.append(Parsed(match[1]))
        elif match := SETTINGS.match(line):
            collectives[-1].settings = match.groups()
        elif match := DEVICE.match(line):
            collectives[-1].devices.append(match.groups())
        elif "redop" in line:
            collectives[-1].header = line.strip("# ").split()
        elif match := ROW.match(line):
            collectives[-1].rows.append(match.groups())
        elif match := WRONG.match(line):
            collectives[-1].wrong = match.groups()
        elif match := AVERAGE.match(line):
            collectives[-1].average = float(match[1])
        elif match := ENDED.match(line):
            collectives[-1].ended = match[1] == collectives[-1].name
        else:
            assert line.startswith("#"), f"neither a row nor a comment: {line!r}"
    return collectives


@pytest.fixture
def parsed(printed: Callable[..., str]) -> list[Parsed]:
    return parse(printed("nccl-tests"))


def test_every_collective_has_its_header_and_footer(parsed: list[Parsed]) -> None:
    names = ["all_reduce", "gather", "barrier", "broadcast", "broadcast", "ps_bcast"]
    assert [one.name for one in parsed] == [f"{name}_perf" for name in names]
    for one in parsed:
        half = ["time", "algbw", "busbw", "#wrong"]
        assert one.header == ["size", "count", "type", "redop", "root", *half, *half]
        assert one.settings == ("8", str(4 << 30), "2", "factor")
        assert [(device[0], device[3]) for device in one.devices] == [
            ("0", "alpha"), ("1", "alpha"), ("2", "beta"), ("3", "beta"),
        ]  # fmt: skip
        assert one.ended


def test_rows_hold_both_places(parsed: list[Parsed]) -> None:
    na = ("N/A",) * 4
    assert parsed[0].rows == [
        ("8", "2", "float", "sum", "-1", "0.41", "0.02", "0.03", "0", "0.40", "0.02", "0.03", "0"),
        ("1048576", "262144", "float", "sum", "-1", "220.00", "4.77", "7.15", "0", *na),
    ]
    assert parsed[1].rows == [("960", "60", "float", "none", "2", "12.50", "0.08", "0.06", "N/A", *na)]
    assert parsed[3].rows == []
    assert parsed[4].rows == [("4294967296", "1073741824", "float", "none", "0", "1234570", "3.48", "3.48", "0", *na)]


def test_verdicts_and_averages(parsed: list[Parsed], run: Run) -> None:
    """A failure that counts nothing is still a failure."""
    assert [one.wrong for one in parsed] == [("7", "FAILED"), *[("0", "OK")] * 5]
    assert parsed[0].average == pytest.approx((0.0291050 + 0.0301508 + 7.14938) / 3, rel=1e-5)
    assert [one.average for one in parsed[1:4]] == [0.0576, 0.0, 0.0]
    failed = msgspec.structs.replace(run.records[0], status="failed", reason="why", seconds=None, check=None)
    (one,) = parse(shown("nccl-tests", run.manifest, failed))
    assert (one.wrong, one.average) == (("0", "FAILED"), 0.0)


def test_rows_are_laid_out_as_the_c_program_prints_them(printed: Callable[..., str]) -> None:
    """By the same printf formats, and under the headings: every column ends where its heading ends."""
    lines = printed("nccl-tests", 0, 1).splitlines()
    row = next(line for line in lines if ROW.match(line))
    printf = "%12i  %12i  %8s  %6s  %6i" + 2 * "  %7s  %6s  %6s  %6g"
    halves = ("0.41", "0.02", "0.03", 0, "0.40", "0.02", "0.03", 0)
    assert row == printf % (8, 2, "float", "sum", -1, *halves)
    heading = next(line for line in lines if "redop" in line)
    assert [m.end() for m in re.finditer(r"\S+", row)] == [m.end() for m in re.finditer(r"[^\s#]\S*|#wrong", heading)]
    above = lines[lines.index(heading) - 1]
    assert above.index("out-of-place") < above.index("in-place", above.index("out-of-place") + 12)


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.004, "   0.00"), (1234.567, "1234.57"), (12345.67, "12345.7"), (123456.7, " 123457"), (1234567.0, "1234567"),
     (12345678.0, "1.2e+07")],
)  # fmt: skip
def test_long_times_stay_in_their_column(run: Run, us: float, text: str) -> None:
    seconds = run.records[0].seconds
    assert seconds is not None
    slow: Record = msgspec.structs.replace(run.records[0], seconds=msgspec.structs.replace(seconds, p50=us * 1e-6))
    line = next(line for line in shown("nccl-tests", run.manifest, slow).splitlines() if ROW.match(line))
    assert line[52:61] == f"  {text}"


@pytest.mark.parametrize(
    ("sizes", "settings"),
    [({"min": "1K", "max": "64M", "factor": 4, "step": None}, ("1024", str(64 << 20), "4", "factor")),
     ({"min": 8, "max": 64, "factor": 2, "step": "1K"}, ("8", "64", "1024", "bytes")),
     (["8", "1K"], ("8", "8", "2", "factor")), (None, ("8", "8", "2", "factor"))],
)  # fmt: skip
def test_sweeps_are_told_in_bytes(run: Run, sizes: object, settings: tuple[str, ...]) -> None:
    manifest = msgspec.structs.replace(run.manifest, plan={"sizes": sizes})
    (one,) = parse(shown("nccl-tests", manifest, run.records[0]))
    assert one.settings == settings


def test_a_record_that_does_not_tell_its_elements_is_a_row(run: Run) -> None:
    work = run.records[0].work
    assert work is not None
    record: Record = msgspec.structs.replace(run.records[0], work=msgspec.structs.replace(work, count=None))
    lines = shown("nccl-tests", run.manifest, record).splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith("#")] == [[str(int(work.amount)), "N/A"]]


def test_what_a_program_printed_is_no_latency_for_bencher(run: Run) -> None:
    record, seconds = run.records[0], run.records[0].seconds
    assert seconds is not None and record.work is not None
    found = {}
    for shown, amount in (("score", 2e6), ("number", 1e3), ("time", 1.0)):
        printer = new_style("bencher")
        printer.begin(run.manifest)
        work = msgspec.structs.replace(record.work, amount=amount, unit="points", shown=shown, bus_factor=None)
        printer.add(msgspec.structs.replace(record, work=work))
        (metrics,) = json.loads(printer.end()).values()
        ((name, found[shown]),) = metrics.items()
        assert name == {"score": "throughput", "number": "value", "time": "latency"}[shown]
        assert found[shown]["lower_value"] <= found[shown]["value"] <= found[shown]["upper_value"]
    assert found["score"]["value"] == pytest.approx(2e6 / seconds.p50)
    assert found["number"]["value"] == pytest.approx(1e3 * seconds.p50)


def test_no_two_cases_share_a_name_for_bencher() -> None:
    """Of all measured runs, which have sides, storages, parameters and libraries."""
    for manifest in sorted((Path(__file__).parents[2] / "results").rglob("manifest.json")):
        run, printer = read_run(manifest.parent), new_style("bencher")
        printer.begin(run.manifest)
        for record in run.records:
            printer.add(record)
        measured = {record.case for record in run.records if record.seconds is not None}
        assert len(json.loads(printer.end())) == len(measured), run.directory
