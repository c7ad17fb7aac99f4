"""Launches of some of their cases, on the host and in containers: what a run until decided goes on with."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.containers.conftest import ROOT, Started
from tests.processes import LIMIT


@pytest.mark.docker
def test_a_launch_measures_what_is_asked_in_the_plan_s_order(clean: Started) -> None:
    command = [sys.executable, "-m", "tests.containers.launch_of_some", "openmpi"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    clean.processes.append(process.pid)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert sorted(json.loads(out)) == [
        [0, "host", 16, "ok"], [0, "host", 64, "ok"], [0, "single", 16, "ok"], [0, "single", 32, "ok"],
        [1, "single", 8, "ok"],
    ]  # fmt: skip
