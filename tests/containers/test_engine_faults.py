"""An engine of our own that is restarted, stays away, or may not be used in the middle of a launch."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from collbench.launch.engines.docker.client import Docker
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended, skip_or_fail
from tests.containers.own_engine import OwnEngine, missing
from tests.containers.worlds import LONG, ranks_of
from tests.processes import LIMIT, wait_for


@pytest.fixture(scope="session")
def other(engine: Docker) -> Iterator[OwnEngine]:
    """An engine of the tests' own, with MPICH's image."""
    if (reason := missing()) is not None:
        skip_or_fail(reason)
    found = OwnEngine()
    try:
        found.start()
        found.load("collbench/mpich")
        yield found
    finally:
        found.end()


def on(other: OwnEngine, launches: int) -> str:
    return f'{LONG.format(image="mpich", step="strict", launches=launches)}docker_host = "{other.host}"\n'


def when_ranks_run(other: OwnEngine, process: subprocess.Popen[str]) -> None:
    with closing(Docker(other.host)) as engine:
        there = Started(engine)
        there.processes.append(process.pid)
        wait_for(lambda: ranks_of(there))


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_that_is_restarted_costs_one_launch(
    other: OwnEngine, launch: Launch, tmp_path: Path, number: signal.Signals
) -> None:
    process = launch(on(other, 2).replace('"10s"', '"1.5s"'))
    when_ranks_run(other, process)
    other.stop(number)
    other.start()
    code, out, err = ended(process)
    assert code == 1, (out, err)
    assert err.count("failed: ") == 1
    records = read_run(tmp_path / "run").records
    assert [record.launch for record in records if record.status == "failed"] == [0]
    assert len([record for record in records if record.launch == 1 and record.status == "ok"]) == 6
    with closing(Docker(other.host)) as engine:
        assert (engine.labelled(), engine.networks()) == ([], [])


@pytest.mark.docker
def test_an_engine_that_stays_away_ends_the_experiment(other: OwnEngine, launch: Launch, tmp_path: Path) -> None:
    process = launch(on(other, 50))
    when_ranks_run(other, process)
    other.stop()
    try:
        code, _, err = ended(process)
    finally:
        other.start()
    assert code == 2
    assert f"Docker Engine at {other.host}" in err
    assert "continue: collbench launch " in err and f" --resume {tmp_path / 'run'}" in err
    assert "collbench launch --sweep" in err
    assert len(read_run(tmp_path / "run").records) == 1


@pytest.mark.docker
def test_a_socket_that_we_may_not_use(other: OwnEngine, launch: Launch, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(on(other, 1))
    # Root without the capability to overlook permissions: a user like others.
    like_others = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    mode = other.socket.stat().st_mode
    other.socket.chmod(0)
    try:
        command = (*like_others, sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    finally:
        other.socket.chmod(mode)
    assert done.returncode == 2
    assert f"Docker Engine at {other.host}: permission denied. Add yourself to the group docker" in done.stderr
    assert not (tmp_path / "run").exists()
