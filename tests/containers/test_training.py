"""Trainings on the host and in containers of a real engine: one process, and ranks that start together."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from collbench.schema.record import Record
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.test_launch import need

PLAN = """\
images = ["torch"]
policies = ["host", "multi", "single"]
oversubscribe = true
launches = 1
warmup = 1
iters = 2
timeout = "120s"
{more}
"""

SERVER = "collbench.workloads.dl.parameter_server"


def records(run: Path) -> dict[tuple[str, str], Record]:
    """By policy and measure."""
    return {(record.case.where.policy, record.case["measure"]): record for record in read_run(run).records}


def boxes(record: Record) -> int:
    """Places that its ranks were in: containers, or the host."""
    return len(set(record.ranks.container if record.ranks else ()))


@pytest.mark.docker
@pytest.mark.torch
def test_servers_and_workers_meet_wherever_they_are(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "torch")
    more = 'workers = [2]\nservers = [1]\nbenchmarks = [{ name = "parameter_server", steps = 50 }]'
    plan = PLAN.replace("warmup = 1\niters = 2", "warmup = 0\niters = 1")  # each is an execution
    code, _, err = ended(launch(plan.format(more=more)))
    found = records(tmp_path / "run")
    assert {record.status for record in found.values()} == {"ok"}, err
    assert (code, {policy: boxes(record) for (policy, _), record in found.items()}) == (
        0, {"host": 1, "multi": 1, "single": 3}
    )  # fmt: skip
    assert {(record.case["servers"], record.case.where.ranks) for record in found.values()} == {(1, 3)}


@pytest.mark.docker
@pytest.mark.torch
def test_replicas_learn_the_same_wherever_they_are_beside_their_all_reduces(
    clean: Started, launch: Launch, tmp_path: Path
) -> None:
    need(clean, "torch")
    more = ('ranks = [2]\ncollectives = ["allreduce"]\nbackends = ["torch-gloo"]\nsizes = ["1M"]\n'
            'benchmarks = [{ name = "ddp", network = "alexnet", batch = 4 }]')  # fmt: skip
    code, _, err = ended(launch(PLAN.format(more=more)))
    found = records(tmp_path / "run")
    assert (code, {record.status for record in found.values()}) == (0, {"ok"}), err
    steps = [record for (_, measure), record in found.items() if measure == "step"]
    assert len(steps) == 3
    (messages,) = {record.messages for record in steps}
    assert sum(messages) == 4 * 85_098
    assert len({record.check.repeatable["loss"] for record in steps if record.check is not None}) == 1


@pytest.mark.docker
@pytest.mark.torch
def test_a_training_reads_a_cold_file_first(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "torch")
    more = 'benchmarks = [{ name = "train", network = "alexnet", batch = 8, epoch = 2 }]'
    code, _, err = ended(launch(PLAN.replace(', "single"', "").format(more=more)))
    found = records(tmp_path / "run")
    assert (code, {record.status for record in found.values()}) == (0, {"ok"}), err
    assert {key: record.samples.n for key, record in found.items() if record.samples is not None} == {
        ("host", "batch"): 2, ("host", "first"): 1, ("multi", "batch"): 2, ("multi", "first"): 1
    }  # fmt: skip
    assert all(record.check is not None and record.check.figures["resident"] < 0.01 for record in found.values())


@pytest.mark.docker
@pytest.mark.torch
@pytest.mark.parametrize("later", [0.0, 5.0], ids=["before-they-meet", "while-they-train"])
def test_a_worker_that_is_killed_ends_its_world_and_no_other(
    clean: Started, launch: Launch, tmp_path: Path, later: float
) -> None:
    need(clean, "torch")
    more = 'workers = [1]\nservers = [1]\nbenchmarks = [{ name = "parameter_server", steps = 100000000 }]'
    process = launch(PLAN.replace('"host", "multi", ', "").format(more=more))
    end = time.monotonic() + 100
    while time.monotonic() < end and len(running := of_servers()) < 2:
        time.sleep(0.2)
    time.sleep(later)
    began = time.monotonic()
    os.kill(running[-1], signal.SIGKILL)
    code, _, err = ended(process)
    (record,) = records(tmp_path / "run").values()
    assert (code, record.status) == (1, "failed"), err
    assert record.reason is not None and "signal 9" in record.reason
    assert time.monotonic() - began < 60
    assert of_servers() == []


def of_servers() -> list[int]:
    """Processes of such a training, in whatever container."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if SERVER.encode() in words:
            found.append(int(folder.name))
    return sorted(found)
