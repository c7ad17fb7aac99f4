"""A gate in containers: a variable that slows large messages down is a loss there alone, and nothing is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.conftest import Started, ended
from tests.mpi.test_gate import ACCEPTED, SLOWER

PLAN = """
collectives = ["bcast"]
images = ["openmpi"]
policies = ["multi"]
isolation = ["files"]
sizes = ["64", "256K"]
iters = 30
launches = 6
"""


@pytest.mark.docker
def test_a_variable_in_containers_is_judged(clean: Started, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "gate"
    process = subprocess.Popen(
        [sys.executable, "-m", "collbench", "gate", str(tmp_path / "plan.toml"), "--out", str(out), "--margin", "50%",
         *SLOWER, *ACCEPTED],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    clean.processes.append(process.pid)
    code, printed, err = ended(process)
    assert code == 1, (printed, err)
    told = json.loads((out / "gate.json").read_text())
    answers = {cell["base"]["what"]["size"]: cell["answer"] for cell in told["cells"]}
    assert answers[256 << 10] == "loss"
    assert answers[64] != "loss"
    assert (told["planned"], told["refused"]) == (2, [])
