"""Launches on the host leave readings before and after each of them, and a run that is resumed goes on with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collbench import yardsticks
from collbench.schema.store import READINGS, read_readings, read_run
from tests.mpi.jobs import environment, finish, mpi_vendor
from tests.processes import LIMIT, wait_for

pytestmark = [pytest.mark.mpi, pytest.mark.one_mpi]

PLAN = """
collectives = ["allreduce"]
images = ["{image}"]
policies = ["host"]
sizes = ["8", "1K"]
ranks = [2]
launches = 3
iters = 20
oversubscribe = true
"""


def command(folder: Path, *more: str) -> list[str]:
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(image=mpi_vendor()))
    return [sys.executable, "-m", "collbench", "launch", str(plan), *more]


def test_a_run_has_readings_and_a_resumed_one_has_more(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = subprocess.Popen(
        command(tmp_path, "--out", str(run)), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    path = run / READINGS
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= 3)  # in the second launch
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=LIMIT)
    assert job.returncode == 130
    begun = (run / READINGS).read_bytes()
    ended = finish(command(tmp_path, "--resume", str(run)))
    assert ended.code == 0, ended.err
    assert (run / READINGS).read_bytes().startswith(begun), "lines are appended"

    found, readings = read_run(run), read_readings(run)
    moments: dict[int, list[str]] = {}
    for one in readings:
        moments.setdefault(one.launch, []).append(one.moment)
    assert sorted(moments) == [0, 1, 2]
    assert all(of_launch[0] == "before" and of_launch[-2:] == ["before", "after"] for of_launch in moments.values())
    assert {one.cells for one in readings} == {(record.case.where,) for record in found.records}
    if len(os.sched_getaffinity(0)) > 1:
        assert {one.reason for one in readings} == {None}
    assert all(one.values.keys() == set(yardsticks.names()) for one in readings)
    experiment = found.manifest.experiment
    assert experiment is not None
    assert experiment.yardsticks == yardsticks.resolutions()
    for reading in (["show", str(run)], ["pack", str(run)], ["show", str(run)]):
        assert finish([sys.executable, "-m", "collbench", *reading]).code == 0


def test_a_selftest_refuses_nothing_and_says_what_moved(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('collectives = ["allreduce"]\nsizes = ["8"]\niters = 20\n')
    ended = finish([sys.executable, "-m", "collbench", "selftest", "--plan", str(plan), "--launches", "6", "-n", "2",
                    "--out", str(tmp_path / "run"), "--style", "json"])  # fmt: skip
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert said["cost"]["launches"] >= 6
    assert {name: one["readings"] for name, one in said["yardsticks"].items() if name != "core_distance"} == {
        "copy": 12, "core_speed": 12,  # both sides live at once
    }  # fmt: skip
