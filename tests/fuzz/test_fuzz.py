"""The fuzzers of everything that reads a run, and of commands and their files, for a bounded time and from one seed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import LIMIT

FUZZER = Path(__file__).with_name("fuzz_run.py")


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_changed_runs_are_read_or_refused_and_nothing_else(tmp_path: Path, bare_environment: dict[str, str]) -> None:
    # A process begins with the peak memory of the one that it was forked from, which may have trained a large network,
    # and libFuzzer has a limit on it. The shell between them has little.
    flags = ("-runs=2000", "-max_total_time=20", "-seed=1", "-timeout=300", f"-artifact_prefix={tmp_path}/")
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, str(FUZZER), *flags],
        env=bare_environment, capture_output=True, text=True, errors="replace", timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done" in done.stderr


def test_odd_commands_plans_and_sites_are_answered_or_refused(bare_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(FUZZER.with_name("fuzz_commands.py")), "--inputs=300", "--seed=1"],
        env=bare_environment, capture_output=True, text=True, errors="replace", timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1].startswith("300 inputs, 0 wrong")
