"""Measuring from the command line, and faults on the way."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.processes import LIMIT, wait_for
from tests.runs import read_run
from tests.unit.made_runs import made_case, spread, write_run

from collbench import collectives
from collbench.report import STYLES
from collbench.report.styles import COLUMNS

Collbench = Callable[..., CompletedProcess[str]]
Environment = dict[str, str]

FAKE = ("--backend", "fake")
SHORT = ("-b", 8, "-e", 1024, "-f", 8, "-n", 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", collectives.names())
def test_every_collective_is_a_command(collbench: Collbench, name: str) -> None:
    done = collbench(name, *FAKE, *SHORT, "--ranks", 3, "--style", "json")
    assert (done.returncode, unused(done)) == (0, ["-b", "-e"] if name == "barrier" else [])
    records = json.loads(done.stdout)["records"]
    sizes = [record["case"].get("what", {}).get("size") for record in records]
    assert sizes == ([None] if name == "barrier" else [8, 64, 512])
    assert {record["check"]["wrong"] for record in records} == {0}


def unused(done: CompletedProcess[str]) -> list[str]:
    """The flags that the only line names, which mean nothing for this collective."""
    lines = done.stderr.splitlines()
    assert len(lines) < 2 and all(line.startswith("collbench: ignored: ") for line in lines), lines
    return re.findall(r" (-\w)\b", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "flags"),
    [("bcast -e 8 -n 1 -o max", ["-o"]), ("allreduce -e 8 -n 1 -r 1", ["-r"]), ("barrier -d int8", ["-d"]),
     ("reduce -e 8 -n 1 -o max -r 1 -d int8 -b 8", [])],
)  # fmt: skip
def test_a_flag_that_means_nothing_here_is_named(collbench: Collbench, words: str, flags: list[str]) -> None:
    done = collbench(*words.split(), *FAKE)
    assert (done.returncode, unused(done)) == (0, flags)


@pytest.mark.parametrize("spelling", ["all_reduce", "All-Reduce", "ALLREDUCE"])
def test_spellings_are_the_same_command(collbench: Collbench, spelling: str) -> None:
    done = collbench(spelling, *FAKE, *SHORT, "--style", "csv")
    assert (done.returncode, "ok,,allreduce,,sum,float32," in done.stdout) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_standard_output_holds_the_style_alone(collbench: Collbench, style: str) -> None:
    """Nothing is added to it, and with no terminal nothing goes to standard error either."""
    done = collbench("bcast", *FAKE, *SHORT, "--style", style)
    assert (done.returncode, done.stderr) == (0, "")
    if style == "json":
        assert len(json.loads(done.stdout)["records"]) == 3
    elif style == "csv":
        assert {len(row) for row in csv.reader(io.StringIO(done.stdout))} == {len(COLUMNS)}
    elif style != "table":
        assert all(line.startswith("#") or line.split()[0].isdigit() for line in done.stdout.splitlines() if line)


def test_nccl_tests_style_measures_both_places(collbench: Collbench) -> None:
    done = collbench("allreduce", *FAKE, *SHORT, "--style", "nccl-tests")
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [len(row) for row in rows] == [13, 13, 13]
    assert all("N/A" not in row for row in rows)
    assert re.search(r"^# Out of bounds values : 0 OK$", done.stdout, re.MULTILINE)  # as nccl-tests prints it


def records_of(collbench: Collbench, *flags: object) -> list[dict[str, Any]]:
    done = collbench("allreduce", *FAKE, *flags, "--style", "json")
    assert (done.returncode, done.stderr) == (0, "")
    records: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return records


def test_flags_reach_the_measurement(collbench: Collbench) -> None:
    flags = "-b 1K -e 1K -n 7 -w 2 -c 0 -d half -o max --align barrier --in-place --ranks 2"
    (record,) = records_of(collbench, *flags.split())
    what, how = record["case"]["what"], record["case"]["how"]
    assert (what["dtype"], what.get("op"), how.get("in_place", False)) == ("float16", "max", True)
    assert record["work"] == {"amount": 1024, "unit": "bytes", "shown": "time", "count": 512, "bus_factor": 1.0}
    assert record["samples"] == {"n": 7, "invalid": 0, "warmup": 2, "file": None}
    assert (record["align"], record["check"]["wrong"]) == ("barrier", None)


@pytest.mark.slow
def test_sweeps_and_budgets(collbench: Collbench) -> None:
    for flags, sizes in (("-b 8 -e 40 -i 16", [8, 24, 40]), ("-b 8 -e 100 -f 3", [8, 24, 72]), ("-b 8M", [8 << 20])):
        records = records_of(collbench, *flags.split(), "-n", 3)
        assert [record["case"]["what"]["size"] for record in records] == sizes
    for flags, samples in (("--budget 1us --floor 13", 13), ("--budget 1h --floor 1 --cap 25", 25)):
        (record,) = records_of(collbench, "-b", 8, "-e", 8, *flags.split())
        assert record["samples"]["n"] == samples


@pytest.mark.slow
def test_a_run_on_disk_shows_as_it_was_printed(collbench: Collbench, tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    done = collbench("gather", *FAKE, *SHORT, "--out", run, "-J", tmp_path / "document.json")
    assert (done.returncode, done.stderr) == (0, "")
    shown = collbench("show", run)
    assert (shown.returncode, shown.stdout) == (0, done.stdout)
    document = json.loads((tmp_path / "document.json").read_text())
    assert document == json.loads(collbench("show", run, "--style", "json").stdout)
    stored = read_run(run)
    assert stored.manifest.simulated
    for record in stored.records:
        samples = stored.samples(record)
        assert samples is not None and samples.shape == (4, 5)


def test_a_run_without_a_manifest_of_ours(collbench: Collbench, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": 99}')
    done = collbench("show", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "schema 99" in done.stderr and re.search(r" 1\b", done.stderr)


def test_a_run_that_was_cut_off_is_shown_with_a_warning(collbench: Collbench, stored_run: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "records.jsonl"):
        (tmp_path / name).write_bytes((stored_run / name).read_bytes())
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(b'{"case"')
    done = collbench("show", tmp_path, "--style", "csv")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 11)
    assert f"{tmp_path}: " in one_message(done) and "cut off" in done.stderr


def test_an_experiment_that_was_stopped_is_shown_as_one(collbench: Collbench, tmp_path: Path) -> None:
    """made_runs: an experiment of as many launches as the longest list."""
    host, multi = made_case(image="a"), made_case("multi", "strict", image="a")
    whole = write_run(tmp_path / "whole", {host: spread(1e-5), multi: spread(1e-5)})
    assert collbench("show", whole).stderr == ""
    cut = write_run(tmp_path / "cut off", {host: spread(1e-5), multi: spread(1e-5)[:-3]})
    shown = collbench("show", cut)
    assert shown.returncode == 0
    for words in (f"{cut} ", "10 launches", "1 cell ", f"collbench launch PLAN --resume '{cut}'"):
        assert words in one_message(shown)


def test_arguments_that_are_no_text_can_be_kept(collbench: Collbench, tmp_path: Path) -> None:
    """A directory's name is bytes, and need not be UTF-8."""
    name = (bytes(tmp_path) + b"/caf\xe9").decode("utf-8", "surrogateescape")
    done = collbench("bcast", *FAKE, *SHORT, "--out", name, UCX_TLS="caf\udce9")
    assert (done.returncode, done.stderr) == (0, "")
    assert read_run(Path(name)).manifest.environment["UCX_TLS"] == "caf\ufffd"


# What goes wrong in the middle ----------------------------------------------------------------------------------------

THREE = ("allreduce", *FAKE, "--ranks", 3, "-n", 5)
FROM_8_TO_32 = (*THREE, "-b", 8, "-e", 32)
ENDLESS = ("allreduce", *FAKE, "-b", 1, "-e", 5000, "-i", 1, "-n", 200)


def one_message(done: CompletedProcess[str]) -> str:
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("collbench: ")
    return done.stderr


@pytest.mark.slow
def test_the_cases_before_a_corrupted_one_stay_good(collbench: Collbench, tmp_path: Path) -> None:
    """After its timing, and before that of the next. Every collective: tests/contract/test_fake.py."""
    done = collbench(*FROM_8_TO_32, "--fault", "corrupt:2@20", "--out", tmp_path / "run")
    assert (done.returncode, "failed at 16: " in done.stdout) == (1, True)
    records = read_run(tmp_path / "run").records
    assert [(record.status, (record.reason or "").split()[:3]) for record in records] == [
        ("ok", []), ("failed", ["wrong", "result", "after"]), ("failed", ["wrong", "result", "before"])
    ]  # fmt: skip
    assert [record.check.wrong for record in records if record.check] == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [*((f"raise:{rank}@15", 1, f"rank {rank}: allreduce 16 B on fake: RuntimeError: ") for rank in range(3)),
     *((f"hang:{rank}@15", 3, " 4 s in allreduce 16 B on fake") for rank in (0, 2))],
)  # fmt: skip
def test_a_rank_that_raises_or_hangs_ends_the_job_with_one_message(
    collbench: Collbench, tmp_path: Path, fault: str, code: int, words: str
) -> None:
    run = tmp_path / "run"
    done = collbench(*FROM_8_TO_32, "--fault", fault, "-T", 4, "--out", run)
    assert done.returncode == code
    assert words in one_message(done)
    assert f"1 record is in {run}: collbench show {run}" in done.stderr
    assert [record.status for record in read_run(run).records] == ["ok"]
    assert ["8", "2"] in [line.split()[:2] for line in done.stdout.splitlines()], "what was measured is printed"


def started(environment: Environment, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "collbench", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_in_the_middle(bare_environment: Environment, tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    recorded = run / "records.jsonl"
    with started(bare_environment, *ENDLESS, "--out", run) as process:
        try:
            wait_for(lambda: process.poll() is not None or (recorded.exists() and recorded.stat().st_size > 0))
            process.send_signal(number)
            printed, said = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert (process.returncode, len(said.splitlines())) == (130, 1), said
    assert "interrupted" in said or (number == signal.SIGTERM and "SIGTERM" in said)
    assert f" in {run}: collbench show {run}" in said
    assert {record.status for record in read_run(run).records} == {"ok"}
    assert "median" in printed


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [ENDLESS, (*ENDLESS, "--style", "csv")])
def test_standard_output_closed_early(bare_environment: Environment, arguments: tuple[object, ...]) -> None:
    """As `collbench ... | head -1` does: it stops, without a traceback."""
    with started(bare_environment, *arguments) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            if "csv" not in arguments:
                process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(timeout=LIMIT) == 130
        finally:
            process.kill()
    assert len(said.splitlines()) == 1 and said.startswith("collbench: "), said


def in_shell(environment: Environment, script: str, *arguments: object) -> CompletedProcess[str]:
    """The program as `"$@"` of a script."""
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "collbench", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "flag"), [('"$@" >&-', None), ('"$@" >&-', "--out"), ('"$@" >&-', "-J"), ('"$@" | true', "--out")]
)
def test_standard_output_closed_from_the_start(
    bare_environment: Environment, tmp_path: Path, script: str, flag: str | None
) -> None:
    """Measuring to disk goes on without a reader."""
    kept = tmp_path / "kept"
    where = () if flag is None else (flag, kept)
    done = in_shell(bare_environment, script, *THREE, "-e", "64", "--style", "csv", *where)
    if flag is None:
        assert (done.returncode, "--out DIR" in done.stderr) == (130, True)
    else:
        records = read_run(kept).records if flag == "--out" else json.loads(kept.read_text())["records"]
        assert (done.returncode, len(records), "Traceback" in done.stderr) == (0, 4, False)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["table", "csv"])
def test_a_shown_run_without_a_reader(bare_environment: Environment, stored_run: Path, style: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "collbench", "show", str(stored_run), "--style", style]
    try:
        done = subprocess.run(command, env=bare_environment, stdout=writing, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT, check=False)  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


@pytest.mark.slow
def test_a_full_disk_under_out(bare_environment: Environment, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = in_shell(bare_environment, 'ulimit -f 16; exec "$@"', *THREE, "-e", "4M", "--out", run)
    records = read_run(run).records
    assert (done.returncode, 2 <= len(records) < 20) == (1, True)
    assert f" {len(records)} records " in one_message(done) and f"collbench show {run}" in done.stderr
    assert done.stdout.count("\n") >= len(records)


@pytest.mark.slow
def test_a_full_disk_under_standard_output(bare_environment: Environment) -> None:
    done = in_shell(bare_environment, '"$@" >/dev/full', *THREE)
    assert (done.returncode, os.strerror(errno.ENOSPC) in one_message(done)) == (1, True)
