"""What goes wrong in the middle: one message, the documented exit code, and what was measured before is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.processes import LIMIT

from collbench.schema.store import read_run

pytestmark = pytest.mark.slow  # every test starts programs

Collbench = Callable[..., CompletedProcess[str]]

FAKE = ("--backend", "fake", "--ranks", 3, "-n", 5)
ENDLESS = ("allreduce", "--backend", "fake", "-b", 1, "-e", 5000, "-i", 1, "-n", 200)


def one_message(done: CompletedProcess[str]) -> str:
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("collbench: ")
    return done.stderr


@pytest.mark.parametrize("at", ["", "@7"])
@pytest.mark.parametrize("name", ["allreduce", "ps_gather"])
def test_a_corrupted_result_is_caught(collbench: Collbench, name: str, at: str) -> None:
    """Before timing, and (from the 8th operation on) after it. The rank is one that receives.

    Every collective: tests/contract/test_fake.py.
    """
    rank = 0 if name == "ps_gather" else 1
    done = collbench(name, *FAKE, "-b", 64, "-e", 64, "--fault", f"corrupt:{rank}{at}", "--style", "csv")
    assert done.returncode == 1
    _, row = done.stdout.splitlines()
    assert row.startswith("failed,wrong result " + ("after" if at else "before"))


def test_the_cases_before_a_corrupted_one_stay_good(collbench: Collbench, tmp_path: Path) -> None:
    done = collbench("allreduce", *FAKE, "-b", 8, "-e", 32, "--fault", "corrupt:2@20", "--out", tmp_path / "run")
    assert done.returncode == 1
    records = read_run(tmp_path / "run").records
    assert [record.status for record in records] == ["ok", "failed", "failed"]
    assert [record.check.wrong for record in records if record.check] == [0, 1, 1]
    assert "! failed at 16: wrong result" in done.stdout


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_raises_ends_the_job_with_one_message(collbench: Collbench, tmp_path: Path, rank: int) -> None:
    run = tmp_path / "run"
    done = collbench("allreduce", *FAKE, "-b", 8, "-e", 32, "--fault", f"raise:{rank}@15", "--out", run)
    assert done.returncode == 1
    assert f"rank {rank}: allreduce 16 B on fake: RuntimeError: fake: raised on demand" in one_message(done)
    assert f"1 record is in {run}: collbench show {run}" in done.stderr
    assert [record.status for record in read_run(run).records] == ["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_hangs_is_timed_out(collbench: Collbench, tmp_path: Path, rank: int) -> None:
    run = tmp_path / "run"
    done = collbench("allreduce", *FAKE, "-b", 8, "-e", 32, "--fault", f"hang:{rank}@15", "-T", 4, "--out", run)
    assert done.returncode == 3
    assert "no progress for 4 s in allreduce 16 B on fake" in one_message(done)
    assert f"1 record is in {run}" in done.stderr
    assert [record.status for record in read_run(run).records] == ["ok"]
    assert ["8", "2"] in [line.split()[:2] for line in done.stdout.splitlines()], "what was measured is printed"


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


@pytest.mark.parametrize(("kept", "code"), [(None, 130), ("--out", 0), ("-J", 0)])
def test_standard_output_closed_from_the_start(
    bare_environment: dict[str, str], tmp_path: Path, kept: str | None, code: int
) -> None:
    more = [] if kept is None else [kept, str(tmp_path / "kept")]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "collbench", "allreduce", *map(str, FAKE), "-e", "64",
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


def test_measuring_to_disk_goes_on_without_a_reader(bare_environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | true', "sh", sys.executable, "-m", "collbench", "allreduce", *map(str, FAKE), "-e", "1K",
         "--style", "csv", "--out", str(tmp_path / "run")],
        env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert len(read_run(tmp_path / "run").records) == 8


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


def test_a_full_disk_under_out(bare_environment: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", sys.executable, "-m", "collbench", "allreduce", *map(str, FAKE),
         "-e", "4M", "--out", str(run)],
        env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    records = read_run(run).records
    assert 2 <= len(records) < 20
    assert f"The {len(records)} records written before are whole (collbench show {run})." in one_message(done)
    assert done.stdout.count("\n") >= len(records)


def test_a_full_disk_under_standard_output(bare_environment: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "collbench", "allreduce", *map(str, FAKE)],
            env=bare_environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left on device" in one_message(done)
