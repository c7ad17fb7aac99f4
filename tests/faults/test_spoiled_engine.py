"""Launches through an engine of which every twentieth answer is spoiled: no hang, no traceback, nothing left unsaid."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.containers.conftest import Started
from tests.containers.worlds import LONG, ranks_of, wait_for
from tests.faults.spoiling import Spoiling

from collbench.launch.engines.docker.client import DOCKER, Docker
from collbench.launch.engines.docker.spec import DRIVER_LABEL

#: Longest that one launch may take (s): several answers of a busy engine, each with a limit of a minute.
LONGEST = 400.0


def of(driver: int, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of what an engine lists, that of the driver with this process number."""
    return [one for one in found if one["Labels"][DRIVER_LABEL].split("/")[2] == str(driver)]


@pytest.mark.docker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(16))
def test_a_launch_through_an_engine_that_spoils_answers(tmp_path: Path, seed: int) -> None:
    spoiling = Spoiling(tmp_path / "docker.sock", DOCKER.host, every=20, seed=seed)
    plan = tmp_path / "plan.toml"
    image = ("openmpi", "mpich")[seed % 2]
    plan.write_text(LONG.format(image=image, step="ipc", launches=2).replace('"10s"', '"0.05s"'))
    argv = (sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run"), "--docker-host")
    with subprocess.Popen((*argv, spoiling.host), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, err = process.communicate(timeout=LONGEST)
    spoiling.close()
    engine = Docker()
    containers, networks = of(process.pid, engine.labelled()), of(process.pid, engine.networks())
    engine.remove(containers, networks)
    told = (spoiling.spoiled, err)
    assert process.returncode in (0, 1, 2), told
    assert "Traceback" not in err, told
    if containers or networks:
        assert "--sweep" in err, told


@pytest.mark.docker
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_when_the_engine_stalls_in_the_middle_of_a_launch(
    tmp_path: Path, second: signal.Signals
) -> None:
    spoiling = Spoiling(tmp_path / "docker.sock", DOCKER.host, every=10**9, seed=0)
    plan = tmp_path / "plan.toml"
    plan.write_text(LONG.format(image="mpich", step="strict", launches=1))
    argv = (sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run"), "--docker-host")
    started = Started(Docker())
    with subprocess.Popen((*argv, spoiling.host), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        started.processes.append(process.pid)
        wait_for(lambda: ranks_of(started))
        spoiling.stalled.set()
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # or the system would make one of two that are alike
        process.send_signal(second)
        _, err = process.communicate(timeout=30)  # far less than the minute that an answer may take
    spoiling.close()
    left = started.containers(), started.networks()
    started.engine.remove(*left)
    assert process.returncode == 130, err
    assert all(left)
    assert "interrupted. Containers may be left; collbench launch --sweep removes them. Nothing was recorded yet" in err
