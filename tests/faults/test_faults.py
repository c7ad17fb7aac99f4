"""Faults that take long to provoke: odd worlds, networks that are removed, engines whose answers are spoiled."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from tests.containers.conftest import Launch, Started, ended
from tests.containers.worlds import LONG, disturbed, ranks_of, remove_network
from tests.faults.spoiling import Spoiling
from tests.processes import wait_for
from tests.runs import read_run

from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.client import DOCKER, Docker
from collbench.launch.engines.docker.spec import DRIVER_LABEL

#: In the first container, instead of Open MPI's launcher.
DOCKERFILE = """\
FROM collbench/openmpi
USER root
COPY mpirun /opt/collbench/bin/mpirun
USER collbench
"""

#: By name, what it does: a request that is none, or a run that is none.
ODDITIES = {
    "a deep request": "head -c 60000 /dev/zero | tr '\\0' '[' > $relay/a; mv $relay/a $relay/a.request; sleep 60",
    "a link with a name that is no text": "ln -s /etc/passwd \"$relay/$(printf '\\377\\376').request\"; sleep 60",
    "a folder as request": "mkdir $relay/d.request; sleep 60",
    "a large request": "truncate -s 900M $relay/a; mv $relay/a $relay/a.request; sleep 60",
    "a folder as records": "mkdir $out/records.jsonl",
    "newlines": "yes '' | head -c 200M > $out/records.jsonl",
    "folders in one another": "cd $out; for i in $(seq 1500); do mkdir d; cd d; done",
    "a closed folder": "chmod 0 $out",
    "a closed relay": "chmod 0 $relay; sleep 5",
}


def built(started: Started, tag: str, oddity: str) -> None:
    """An image of ours with another mpirun."""
    script = f"#!/bin/bash\nout=/collbench/out relay=/collbench/relay\n{oddity}\n"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, text, mode in (("Dockerfile", DOCKERFILE, 0o644), ("mpirun", script, 0o755)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            tar.addfile(member, io.BytesIO(text.encode()))
    images.build_context(started.engine, context.getvalue(), "Dockerfile", tag, {}, False, {}, lambda line: None)


@pytest.mark.docker
@pytest.mark.parametrize("what", ODDITIES)
def test_an_odd_world_is_one_failed_record(clean: Started, launch: Launch, tmp_path: Path, what: str) -> None:
    tag = "collbench-test/odd:latest"
    built(clean, tag, ODDITIES[what])
    plan = LONG.format(image=tag, step="strict", launches=2).replace('"300s"', '"20s"').replace('"10s"', '"1s"')
    try:
        code, _, err = ended(launch(plan), 600)
        assert code == 1, err
        assert "Traceback" not in err
        records = read_run(tmp_path / "run").records
        assert [(record.launch, record.status) for record in records] == [(0, "failed"), (1, "failed")]
    finally:
        images.untag(clean.engine, tag)


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_driver_that_was_stopped(clean: Started, launch: Launch, tmp_path: Path, image: str) -> None:
    """Its launch is measured whole meanwhile: no failure, and no case twice."""
    plan = LONG.format(image=image, step="strict", launches=1).replace('"10s"', '"1s"').replace("10000000", "1000")
    process = launch(plan)
    try:
        wait_for(lambda: ranks_of(clean))
        process.send_signal(signal.SIGSTOP)
        time.sleep(60)  # longer than any of its limits
    finally:
        process.send_signal(signal.SIGCONT)
    code, _, err = ended(process)
    assert code == 0, err
    assert [record.status for record in read_run(tmp_path / "run").records] == ["ok"] * 6


# A network that is taken from under a world ---------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_world_without_its_network_is_one_failed_record(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    disturbed(clean, launch, tmp_path, image, remove_network)


# Launches through an engine of which every twentieth answer is spoiled ------------------------------------------------

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
    assert "interrupted" in err and "collbench launch --sweep" in err
