"""Measuring from the command line, and faults on the way."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.processes import LIMIT
from tests.unit.made_runs import made_case, spread, write_run

from collbench import collectives
from collbench.report import STYLES
from collbench.report.styles import COLUMNS
from collbench.schema.store import read_run

Collbench = Callable[..., CompletedProcess[str]]

FAKE = ("--backend", "fake")
SHORT = ("-b", 8, "-e", 1024, "-f", 8, "-n", 5)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_collective_on_any_number_of_ranks(collbench: Collbench, tmp_path: Path, ranks: int) -> None:
    """First and last root, both places, sizes that no rank count divides: nothing is wrong."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        f"collectives = {json.dumps(collectives.names())}\n"
        f"backends = ['fake']\nroots = {sorted({0, ranks - 1})}\nin_place = [false, true]\n"
        "sizes = [0, 100, 4100]\niters = 3\nwarmup = 1\n"
    )
    done = collbench("run", plan, "--ranks", ranks, "--style", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    skipped = {row["workload"] for row in rows if row["status"] == "skipped"}
    assert skipped == ({"ps_bcast", "ps_gather"} if ranks == 1 else set())
    measured = [row for row in rows if row["status"] != "skipped"]
    assert {row["workload"] for row in measured} == set(collectives.names()) - skipped
    assert {(row["status"], row["wrong"], row["ranks"]) for row in measured} == {("ok", "0", str(ranks))}
    assert {row["simulated"] for row in rows} == {"True"}


@pytest.mark.slow
@pytest.mark.parametrize("name", collectives.names())
def test_every_collective_is_a_command(collbench: Collbench, name: str) -> None:
    done = collbench(name, *FAKE, *SHORT, "--ranks", 3, "--style", "json")
    unused = "collbench: ignored: barrier does not use -b, -e.\n" if name == "barrier" else ""
    assert (done.returncode, done.stderr) == (0, unused)
    document = json.loads(done.stdout)
    sizes = [record["case"].get("what", {}).get("size") for record in document["records"]]
    assert sizes == ([None] if name == "barrier" else [8, 64, 512])
    assert {record["check"]["wrong"] for record in document["records"]} == {0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "unused"),
    [("bcast", ["-o", "max"], "-o"), ("allreduce", ["-r", "1"], "-r"), ("barrier", ["-d", "int8"], "-d"),
     ("reduce", ["-o", "max", "-r", "1", "-d", "int8", "-b", "8"], None)],
)  # fmt: skip
def test_a_flag_that_means_nothing_here_is_named(
    collbench: Collbench, name: str, flags: list[str], unused: str | None
) -> None:
    done = collbench(name, *FAKE, "-e", 8, "-n", 1, *flags) if name != "barrier" else collbench(name, *FAKE, *flags)
    assert done.returncode == 0
    assert done.stderr == ("" if unused is None else f"collbench: ignored: {name} does not use {unused}.\n")


@pytest.mark.parametrize("spelling", ["all_reduce", "All-Reduce", "ALLREDUCE"])
def test_spellings_are_the_same_command(collbench: Collbench, spelling: str) -> None:
    done = collbench(spelling, *FAKE, *SHORT, "--style", "csv")
    assert done.returncode == 0
    assert "ok,,allreduce,,sum,float32," in done.stdout


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


@pytest.mark.slow
def test_the_fake_backend_repeats_itself(collbench: Collbench) -> None:
    documents = [json.loads(collbench("alltoall", *FAKE, *SHORT, "--style", "json").stdout) for _ in range(2)]
    assert documents[0]["records"] == documents[1]["records"]


def test_nccl_tests_style_measures_both_places(collbench: Collbench) -> None:
    done = collbench("allreduce", *FAKE, *SHORT, "--style", "nccl-tests")
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [len(row) for row in rows] == [13, 13, 13]
    assert all("N/A" not in row for row in rows)
    assert "# Out of bounds values : 0 OK\n" in done.stdout


def asked(collbench: Collbench, *flags: object) -> list[dict[str, Any]]:
    done = collbench("allreduce", *FAKE, *flags, "--style", "json")
    assert (done.returncode, done.stderr) == (0, "")
    records: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return records


def test_flags_reach_the_measurement(collbench: Collbench) -> None:
    flags = "-b 1K -e 1K -n 7 -w 2 -c 0 -d half -o max --gate barrier --in-place --ranks 2"
    (record,) = asked(collbench, *flags.split())
    assert record["case"]["what"]["dtype"] == "float16"
    assert record["case"]["what"].get("op") == "max"
    assert record["case"]["how"].get("in_place", False) is True
    assert record["work"] == {"amount": 1024, "unit": "bytes", "shown": "time", "count": 512, "bus_factor": 1.0}
    assert record["samples"] == {"n": 7, "invalid": 0, "warmup": 2, "file": None}
    assert record["gate"] == "barrier"
    assert record["check"]["wrong"] is None


@pytest.mark.slow
def test_sweeps(collbench: Collbench) -> None:
    def sizes(*flags: object) -> list[int]:
        return [record["case"]["what"]["size"] for record in asked(collbench, *flags, "-n", 3)]

    assert sizes("-b", 8, "-e", 40, "-i", 16) == [8, 24, 40]
    assert sizes("-b", 8, "-e", 100, "-f", 3) == [8, 24, 72]
    assert sizes("-b", "8M") == [8 << 20]


def test_a_budget_has_floor_and_cap(collbench: Collbench) -> None:
    (few,) = asked(collbench, "-b", 8, "-e", 8, "--budget", "1us", "--floor", 13)
    assert few["samples"]["n"] == 13
    (many,) = asked(collbench, "-b", 8, "-e", 8, "--budget", "1h", "--floor", 1, "--cap", 25)
    assert many["samples"]["n"] == 25


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
        assert samples is not None
        assert samples.shape == (4, 5)


def test_a_run_without_a_manifest_of_ours(collbench: Collbench, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": 99}')
    done = collbench("show", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "written with schema 99; this collbench reads 11" in done.stderr


def test_a_run_that_was_cut_off_is_shown_with_a_warning(collbench: Collbench, stored_run: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "records.jsonl"):
        (tmp_path / name).write_bytes((stored_run / name).read_bytes())
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(b'{"case"')
    done = collbench("show", tmp_path, "--style", "csv")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 11
    assert done.stderr == f"collbench: {tmp_path}: the last record was cut off and is left out.\n"


def test_an_experiment_that_was_stopped_is_shown_as_one(collbench: Collbench, tmp_path: Path) -> None:
    """made_runs: an experiment of as many launches as the longest list."""
    host, multi = made_case(image="a"), made_case("multi", "strict", image="a")
    whole = write_run(tmp_path / "whole", {host: spread(1e-5), multi: spread(1e-5)})
    assert collbench("show", whole).stderr == ""
    cut = write_run(tmp_path / "cut off", {host: spread(1e-5), multi: spread(1e-5)[:-3]})
    shown = collbench("show", cut)
    assert shown.returncode == 0
    command = f"collbench launch PLAN --resume '{cut}'"
    stopped = f"{cut} was stopped before its 10 launches: 1 cell has fewer"
    assert shown.stderr == f"collbench: {stopped} (to finish it: {command}).\n"


def test_arguments_that_are_no_text_can_be_kept(collbench: Collbench, tmp_path: Path) -> None:
    """A directory's name is bytes, and need not be UTF-8."""
    name = (bytes(tmp_path) + b"/caf\xe9").decode("utf-8", "surrogateescape")
    done = collbench("bcast", *FAKE, *SHORT, "--out", name, UCX_TLS="caf\udce9")
    assert (done.returncode, done.stderr) == (0, "")
    assert read_run(Path(name)).manifest.environment["UCX_TLS"] == "caf\ufffd"


# What goes wrong in the middle ----------------------------------------------------------------------------------------

FAKED = ("--backend", "fake", "--ranks", 3, "-n", 5)
ENDLESS = ("allreduce", "--backend", "fake", "-b", 1, "-e", 5000, "-i", 1, "-n", 200)


def one_message(done: CompletedProcess[str]) -> str:
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("collbench: ")
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("at", ["", "@7"])
@pytest.mark.parametrize("name", ["allreduce", "ps_gather"])
def test_a_corrupted_result_is_caught(collbench: Collbench, name: str, at: str) -> None:
    """Before timing, and (from the 8th operation on) after it. The rank is one that receives.

    Every collective: tests/contract/test_fake.py.
    """
    rank = 0 if name == "ps_gather" else 1
    done = collbench(name, *FAKED, "-b", 64, "-e", 64, "--fault", f"corrupt:{rank}{at}", "--style", "csv")
    assert done.returncode == 1
    _, row = done.stdout.splitlines()
    assert row.startswith("failed,wrong result " + ("after" if at else "before"))


@pytest.mark.slow
def test_the_cases_before_a_corrupted_one_stay_good(collbench: Collbench, tmp_path: Path) -> None:
    done = collbench("allreduce", *FAKED, "-b", 8, "-e", 32, "--fault", "corrupt:2@20", "--out", tmp_path / "run")
    assert done.returncode == 1
    records = read_run(tmp_path / "run").records
    assert [record.status for record in records] == ["ok", "failed", "failed"]
    assert [record.check.wrong for record in records if record.check] == [0, 1, 1]
    assert "! failed at 16: wrong result" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_raises_ends_the_job_with_one_message(collbench: Collbench, tmp_path: Path, rank: int) -> None:
    run = tmp_path / "run"
    done = collbench("allreduce", *FAKED, "-b", 8, "-e", 32, "--fault", f"raise:{rank}@15", "--out", run)
    assert done.returncode == 1
    assert f"rank {rank}: allreduce 16 B on fake: RuntimeError: fake: raised on demand" in one_message(done)
    assert f"1 record is in {run}: collbench show {run}" in done.stderr
    assert [record.status for record in read_run(run).records] == ["ok"]


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_hangs_is_timed_out(collbench: Collbench, tmp_path: Path, rank: int) -> None:
    run = tmp_path / "run"
    done = collbench("allreduce", *FAKED, "-b", 8, "-e", 32, "--fault", f"hang:{rank}@15", "-T", 4, "--out", run)
    assert done.returncode == 3
    assert "no progress for 4 s in allreduce 16 B on fake" in one_message(done)
    assert f"1 record is in {run}" in done.stderr
    assert [record.status for record in read_run(run).records] == ["ok"]
    assert ["8", "2"] in [line.split()[:2] for line in done.stdout.splitlines()], "what was measured is printed"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_in_the_middle(bare_environment: dict[str, str], tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "collbench", *map(str, ENDLESS), "--out", str(run)]
    with subprocess.Popen(
        command, env=bare_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while process.poll() is None and not (run / "records.jsonl").exists():
                time.sleep(0.01)
            while process.poll() is None and (run / "records.jsonl").stat().st_size == 0:
                time.sleep(0.01)
            process.send_signal(number)
            printed, said = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 130
    assert len(said.splitlines()) == 1, said
    assert "interrupted" in said or (number == signal.SIGTERM and "SIGTERM" in said)
    records = read_run(run).records
    assert len(records) >= 1
    assert f" in {run}: collbench show {run}" in said
    assert {record.status for record in records} == {"ok"}
    assert "median" in printed


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [ENDLESS, (*ENDLESS, "--style", "csv")])
def test_standard_output_closed_early(bare_environment: dict[str, str], arguments: tuple[object, ...]) -> None:
    """As `collbench ... | head -1` does: it stops, without a traceback."""
    command = [sys.executable, "-m", "collbench", *map(str, arguments)]
    with subprocess.Popen(
        command, env=bare_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            if "csv" not in arguments:
                process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(timeout=LIMIT) == 130
        finally:
            process.kill()
    assert len(said.splitlines()) == 1, said
    assert said.startswith("collbench: ")


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "code"), [(None, 130), ("--out", 0), ("-J", 0)])
def test_standard_output_closed_from_the_start(
    bare_environment: dict[str, str], tmp_path: Path, kept: str | None, code: int
) -> None:
    more = [] if kept is None else [kept, str(tmp_path / "kept")]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "collbench", "allreduce", *map(str, FAKED), "-e", "64",
         "--style", "csv", *more],
        env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == code
    if kept is None:
        assert done.stderr.startswith("collbench: standard output was closed; stopping. With --out DIR")
    elif kept == "--out":
        assert len(read_run(tmp_path / "kept").records) == 4
    else:
        assert len(json.loads((tmp_path / "kept").read_text())["records"]) == 4


@pytest.mark.slow
def test_measuring_to_disk_goes_on_without_a_reader(bare_environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | true', "sh", sys.executable, "-m", "collbench", "allreduce", *map(str, FAKED), "-e", "1K",
         "--style", "csv", "--out", str(tmp_path / "run")],
        env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert len(read_run(tmp_path / "run").records) == 8


@pytest.mark.slow
@pytest.mark.parametrize("style", ["table", "csv"])
def test_a_shown_run_without_a_reader(bare_environment: dict[str, str], stored_run: Path, style: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "collbench", "show", str(stored_run), "--style", style],
            env=bare_environment, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_full_disk_under_out(bare_environment: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", sys.executable, "-m", "collbench", "allreduce", *map(str, FAKED),
         "-e", "4M", "--out", str(run)],
        env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    records = read_run(run).records
    assert 2 <= len(records) < 20
    assert f"The {len(records)} records written before are whole (collbench show {run})." in one_message(done)
    assert done.stdout.count("\n") >= len(records)


@pytest.mark.slow
def test_a_full_disk_under_standard_output(bare_environment: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "collbench", "allreduce", *map(str, FAKED)],
            env=bare_environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left on device" in one_message(done)
