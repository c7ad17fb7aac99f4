"""Data-parallel training beside all-reduces, by the ranks of one world."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.job import Child, command_line, descendants, runs
from collbench.workloads.dl.datasets import NETWORKS
from tests.mpi.jobs import Command, environment, finish
from tests.processes import wait_for

pytestmark = pytest.mark.torch

PLAN = """
collectives = ["allreduce"]
sizes = ["1K"]
backends = ["torch-gloo"]
warmup = 0
iters = 2
benchmarks = [{ name = "ddp", network = "alexnet", batch = 2, threads = 1 }]
"""


def check(records: list[dict[str, Any]]) -> None:
    """What both kinds of starts give."""
    reduced, *trained = records
    assert reduced["case"]["workload"] == "allreduce" and reduced["messages"] == []
    assert [record["case"]["what"]["measure"] for record in trained] == ["step", "compute", "communication"]
    for record in trained:
        assert record["status"] == "ok" and record["case"]["where"]["ranks"] == 2
        assert record["messages"] == [4 * NETWORKS["alexnet"].parameters]
        assert len(record["ranks"]["p50"]) == 2 and record["check"]["repeatable"]["loss"] > 0


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return str(tmp_path / "plan.toml")


def test_trainings_and_collectives_share_a_torchrun(torchrun: Command, plan: str) -> None:
    ended = finish(torchrun(2, "run", plan, "--style", "json"))
    assert ended.code == 0, ended.err
    check(ended.records)


def test_they_share_ranks_that_are_started_one_by_one(torchrun: Command, plan: str) -> None:
    """As in containers: rank 0 holds the store where all meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", "collbench", "run", plan, "--style", "json"]
    ranks = ({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2))
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda own: finish(command, env=shared | own), ranks)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    check(first.records)


@pytest.mark.mpi
@pytest.mark.parametrize("benchmark", ["ddp", "parameter_server"])
def test_ranks_and_their_trainings_end_when_mpirun_is_killed(mpirun: Command, tmp_path: Path, benchmark: str) -> None:
    """They meet over gloo, so no library tells them."""
    parameters = {"ddp": ["network=alexnet", "batch=2"], "parameter_server": ["steps=10000000", "servers=1"]}
    command = mpirun(2, "suite", benchmark, *parameters[benchmark], "-n", "1000000", "-w", "0")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment(), cwd=tmp_path) as process:
        below: list[Child] = []
        try:

            def training() -> bool:
                below[:] = descendants(process.pid)
                named = [child for child in below if b"collbench.workloads.dl." in command_line(child.number)]
                return len(named) == 2 or process.poll() is not None

            wait_for(training)
            assert process.poll() is None
        finally:
            process.kill()
        wait_for(lambda: not any(map(runs, below)))
