"""The nccl-tests style, read by a parser as people write them for nccl-tests: regular expressions on lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from collbench.report import new_style
from collbench.schema.record import Record
from collbench.schema.store import read_run

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
    found: list[Parsed] = []
    for line in text.splitlines():
        if match := STARTED.match(line):
            found.append(Parsed(match[1]))
        elif match := SETTINGS.match(line):
            found[-1].settings = match.groups()
        elif match := DEVICE.match(line):
            found[-1].devices.append(match.groups())
        elif "redop" in line:
            found[-1].header = line.strip("# ").split()
        elif match := ROW.match(line):
            found[-1].rows.append(match.groups())
        elif match := WRONG.match(line):
            found[-1].wrong = match.groups()
        elif match := AVERAGE.match(line):
            found[-1].average = float(match[1])
        elif match := ENDED.match(line):
            found[-1].ended = match[1] == found[-1].name
        else:
            assert line.startswith("#"), f"neither a row nor a comment: {line!r}"
    return found


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


def test_verdicts_and_averages(parsed: list[Parsed]) -> None:
    assert [one.wrong for one in parsed] == [("7", "FAILED"), *[("0", "OK")] * 5]
    assert parsed[0].average == pytest.approx((0.0291050 + 0.0301508 + 7.14938) / 3, rel=1e-5)
    assert [one.average for one in parsed[1:4]] == [0.0576, 0.0, 0.0]


def test_a_failure_that_counts_nothing_is_still_a_failure(stored_run: Path) -> None:
    run = read_run(stored_run)
    style = new_style("nccl-tests")
    style.begin(run.manifest)
    failed = msgspec.structs.replace(run.records[0], status="failed", reason="why", seconds=None, check=None)
    (one,) = parse(style.add(failed) + style.end())
    assert one.wrong == ("0", "FAILED")
    assert one.average == 0.0


def test_rows_are_laid_out_as_the_c_program_prints_them(printed: Callable[..., str]) -> None:
    """By the same printf formats, and under the headings: every column ends where its heading ends."""
    lines = printed("nccl-tests", 0, 1).splitlines()
    row = next(line for line in lines if ROW.match(line))
    half = "  %7s  %6s  %6s  %6g"
    expected = "%12i  %12i  %8s  %6s  %6i" % (8, 2, "float", "sum", -1)  # noqa: UP031 - printf on purpose
    assert row == expected + half % ("0.41", "0.02", "0.03", 0) + half % ("0.40", "0.02", "0.03", 0)
    heading = next(line for line in lines if "redop" in line)
    assert [m.end() for m in re.finditer(r"\S+", row)] == [m.end() for m in re.finditer(r"[^\s#]\S*|#wrong", heading)]
    above = lines[lines.index(heading) - 1]
    assert above.index("out-of-place") < above.index("in-place", above.index("out-of-place") + 12)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.004, "   0.00"),
        (1234.567, "1234.57"),
        (12345.67, "12345.7"),
        (123456.7, " 123457"),
        (1234567.0, "1234567"),
        (12345678.0, "1.2e+07"),
    ],
)
def test_long_times_stay_in_their_column(stored_run: Path, us: float, text: str) -> None:
    run = read_run(stored_run)
    seconds = run.records[0].seconds
    assert seconds is not None
    slow: Record = msgspec.structs.replace(run.records[0], seconds=msgspec.structs.replace(seconds, p50=us * 1e-6))
    style = new_style("nccl-tests")
    style.begin(run.manifest)
    printed = style.add(slow) + style.end()
    line = next(line for line in printed.splitlines() if ROW.match(line))
    assert line[52:61] == f"  {text}"


@pytest.mark.parametrize(
    ("sizes", "settings"),
    [
        ({"min": "1K", "max": "64M", "factor": 4, "step": None}, ("1024", str(64 << 20), "4", "factor")),
        ({"min": 8, "max": 64, "factor": 2, "step": "1K"}, ("8", "64", "1024", "bytes")),
        (["8", "1K"], ("8", "8", "2", "factor")),
        (None, ("8", "8", "2", "factor")),
    ],
)
def test_sweeps_are_told_in_bytes(stored_run: Path, sizes: object, settings: tuple[str, ...]) -> None:
    run = read_run(stored_run)
    style = new_style("nccl-tests")
    style.begin(msgspec.structs.replace(run.manifest, plan={"sizes": sizes}))
    (one,) = parse(style.add(run.records[0]) + style.end())
    assert one.settings == settings


def test_a_record_that_does_not_tell_its_elements_is_a_row(stored_run: Path) -> None:
    run = read_run(stored_run)
    work = run.records[0].work
    assert work is not None
    record: Record = msgspec.structs.replace(run.records[0], work=msgspec.structs.replace(work, count=None))
    style = new_style("nccl-tests")
    style.begin(run.manifest)
    lines = (style.add(record) + style.end()).splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith("#")] == [[str(int(work.amount)), "N/A"]]
