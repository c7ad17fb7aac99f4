"""Launches on a real engine: every step of the ladder, what the ranks see of it, and what goes wrong."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import ImageMissing
from collbench.schema.record import Record
from collbench.schema.store import Run, read_run
from tests.containers.conftest import ROOT, Launch, Started, ended

LADDER = """
collectives = ["allreduce"]
sizes = ["8", "128K"]
images = ["{image}"]
policies = [{policies}]
isolation = ["strict", "limits", "ipc", "net", "visible"]
launches = 1
iters = 20
gate = "barrier"
timeout = "40s"
"""

#: One world that measures for a minute, so that there is time to disturb it.
LONG = """
collectives = ["allreduce"]
sizes = ["8", "16", "32", "64", "128", "256"]
images = ["{image}"]
policies = ["single"]
isolation = ["{step}"]
launches = {launches}
budget = "10s"
cap = 10000000
gate = "barrier"
timeout = "15s"
"""


def by_step(run: Run) -> dict[tuple[str, str | None], list[Record]]:
    found: dict[tuple[str, str | None], list[Record]] = {}
    for record in run.records:
        found.setdefault((record.case.policy, record.case.isolation), []).append(record)
    return found


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_every_step_measures_and_shares_what_it_says(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    code, out, err = ended(launch(LADDER.format(image=image, policies='"multi", "single"')))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert len(found) == 3 + 5
    for (policy, step), records in found.items():
        assert [record.status for record in records] == ["ok", "ok"]
        for record in records:
            assert record.ranks is not None and record.check is not None
            assert record.check.wrong == 0
            assert record.ranks.binding == ("0", "1")
            assert record.ranks.container == (("c0", "c0") if policy == "multi" else ("c0", "c1"))
            assert record.transport is not None
            _assert_confined(record, policy, step)
    assert "over" in out


def _assert_confined(record: Record, policy: str, step: str | None) -> None:
    """Seen from inside."""
    assert step is not None
    steps = ("strict", "limits", "ipc", "net", "visible")
    height = steps.index(step)
    spaces = [one.namespaces for one in record.confinement]
    shared = {name for name in spaces[0] if len({space[name] for space in spaces}) == 1}
    if policy == "single":
        expected = {"ipc": height >= 2, "pid": height >= 2, "net": height >= 3, "mnt": False}
        assert {name: name in shared for name in expected} == expected
    for one in record.confinement:
        assert one.shm == (64 << 20 if height == 0 else 1 << 30)
        assert ("SYS_PTRACE" in one.capabilities) == (height >= 2)
        assert set(one.capabilities) <= {"SYS_NICE", "SYS_PTRACE"}
        assert one.seccomp and one.no_new_privileges


@pytest.mark.docker
def test_host_and_container_in_one_run(clean: Started, launch: Launch, tmp_path: Path) -> None:
    if not (ROOT / ".venvs" / "openmpi").exists() and "OMPI" not in os.environ.get("COLLBENCH_HOST_MPI", ""):
        pytest.skip("no environment .venvs/openmpi beside the image (make test makes one)")
    plan = LADDER.format(image="openmpi", policies='"host", "multi"').replace('"limits", "ipc", "net", "visible"', "")
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    run = read_run(tmp_path / "run")
    assert set(by_step(run)) == {("host", None), ("multi", "strict")}
    experiment = run.manifest.experiment
    assert experiment is not None
    sides = [experiment.images[0].libraries[0], experiment.environments[0].libraries[0]]
    assert all(side.sha256 for side in sides)
    assert experiment.images[0].id is not None


@pytest.mark.docker
def test_torch_in_containers(clean: Started, launch: Launch, tmp_path: Path) -> None:
    try:
        clean.engine.image("collbench/torch")
    except ImageMissing as error:
        pytest.skip(f"{error} It needs a CPU build of torch for the base's Python: make images does not build it")
    plan = LADDER.format(image="torch", policies='"multi", "single"').replace(
        '"limits", "ipc", "net", "visible"', '"net"'
    )
    code, out, err = ended(launch('backends = ["torch-gloo"]\n' + plan))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert set(found) == {("multi", "strict"), ("multi", "ipc"), ("single", "strict"), ("single", "net")}
    assert {record.transport for records in found.values() for record in records} == {"tcp"}


def test_no_engine(launch: Launch) -> None:
    plan = LONG.format(image="openmpi", step="strict", launches=1) + 'docker_host = "unix:///nowhere/docker.sock"\n'
    code, _, err = ended(launch(plan))
    assert code == 2
    assert err.startswith("collbench: Docker Engine at unix:///nowhere/docker.sock: not running. Start it")
    assert len(err.splitlines()) == 1


@pytest.mark.docker
def test_an_image_that_is_not_there(clean: Started, launch: Launch, tmp_path: Path) -> None:
    code, _, err = ended(launch(LONG.format(image="nosuch", step="strict", launches=1)))
    assert code == 2
    assert "image collbench/nosuch: not on this engine" in err
    assert "collbench image build nosuch" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.docker
def test_an_image_without_collbench(clean: Started, launch: Launch) -> None:
    bases = [tag for found in clean.engine.images("collbench.image") for tag in found.get("RepoTags") or []]
    assert bases
    code, _, err = ended(launch(LONG.format(image="debian:bookworm-slim", step="strict", launches=1)))
    assert code == 2
    assert "image debian:bookworm-slim: " in err


@pytest.mark.docker
def test_more_cores_than_there_are(clean: Started, launch: Launch) -> None:
    code, _, err = ended(launch(LONG.format(image="openmpi", step="strict", launches=1) + "ranks = [200]\n"))
    assert code == 2
    assert "200 ranks with 1 cores each want 200 cores" in err


def wait_for(what: Callable[[], Any], limit: float = 40.0) -> Any:
    until = time.monotonic() + limit
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


def ranks_of(started: Started) -> list[dict[str, Any]]:
    """Containers in which collbench runs."""
    api = started.engine._client.api
    names = [found for found in started.containers() if found["Names"][0].endswith(("c0", "c1"))]
    busy = [found for found in names if any("collbench" in " ".join(p) and "run" in p for p in _processes(api, found))]
    return busy if len(busy) == 2 else []


def _processes(api: Any, found: dict[str, Any]) -> list[list[str]]:
    try:
        return [" ".join(row).split() for row in api.top(found["Id"])["Processes"]]
    except Exception:
        return []


def kill_container(started: Started) -> None:
    started.engine._client.api.kill(wait_for(lambda: ranks_of(started))[0]["Id"])


def remove_network(started: Started) -> None:
    there = wait_for(lambda: ranks_of(started))
    (network,) = started.networks()
    for container in there:
        started.engine._client.api.disconnect_container_from_network(container["Id"], network["Id"], force=True)


def kill_rank(started: Started) -> None:
    container = wait_for(lambda: ranks_of(started))[-1]
    api = started.engine._client.api
    api.exec_start(api.exec_create(container["Id"], ["sh", "-c", KILL])["Id"])


#: Kills the process whose command is `collbench run`; there is no pkill in the image.
KILL = (
    "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q 'bin/collbench run' && "
    "kill -9 ${p#/proc/}; done; true"
)


@pytest.mark.docker
@pytest.mark.parametrize("disturb", [kill_container, kill_rank, remove_network])
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_world_that_is_disturbed_is_one_failed_record(
    clean: Started, launch: Launch, tmp_path: Path, image: str, disturb: Callable[[Started], None]
) -> None:
    process = launch(LONG.format(image=image, step="strict", launches=1))
    try:
        disturb(clean)
        code, _, err = ended(process)
    finally:
        process.kill()
        process.communicate()
    assert code == 1, err
    failed = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    assert len(failed) == 1
    assert failed[0].reason
    assert f"collbench: launch 0 ({image} single strict, 2 ranks) failed:" in err


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_and_resumed(clean: Started, launch: Launch, tmp_path: Path, number: int) -> None:
    plan = LONG.format(image="mpich", step="strict", launches=2).replace('"10s"', '"0.2s"')
    process = launch(plan)
    wait_for(lambda: (tmp_path / "run" / "records.jsonl").exists()
             and (tmp_path / "run" / "records.jsonl").read_bytes().count(b"\n") >= 6)  # fmt: skip
    process.send_signal(number)
    code, _, err = ended(process, 30)
    assert code == 130
    assert "interrupted" in err
    assert f"--resume {tmp_path / 'run'}" in err
    assert clean.containers() == []
    code, out, err = ended(launch(plan, "--resume", str(tmp_path / "run")))
    assert code == 0, (out, err)
    records = read_run(tmp_path / "run").records
    assert len(records) == 12
    assert len({(record.case, record.launch) for record in records}) == 12


@pytest.mark.docker
def test_two_launches_at_once(clean: Started, launch: Launch, tmp_path: Path) -> None:
    plan = LONG.format(image="mpich", step="strict", launches=1).replace('"10s"', '"0.1s"')
    first, second = launch(plan), launch(plan, "--out", str(tmp_path / "other"))
    for process, where in ((first, "run"), (second, "other")):
        code, out, err = ended(process)
        assert code == 0, (out, err)
        assert len(read_run(tmp_path / where).records) == 6


#: Instead of measuring it makes links out of its folder, and tries to write wherever it can.
HOSTILE = """\
FROM collbench/mpich
USER root
RUN printf '#!/bin/sh\\nln -s /etc/passwd /collbench/out/records.jsonl\\nln -s / /collbench/out/samples\\n\\
ln -s /etc/shadow /collbench/relay/1.request\\necho x >> /collbench/plan.json\\necho x > /collbench/else\\nid >&2\\n' \\
  > /opt/collbench/bin/collbench
USER collbench
"""


@pytest.mark.docker
def test_a_hostile_image_gets_nowhere(clean: Started, launch: Launch, tmp_path: Path) -> None:
    tag = "collbench-test/hostile:latest"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(HOSTILE)
        tar.addfile(member, io.BytesIO(HOSTILE.encode()))
    clean.engine.build(context.getvalue(), "Dockerfile", tag, {}, False, {}, lambda line: None)
    try:
        before = Path("/etc/passwd").read_bytes()
        code, _, _ = ended(launch(LONG.format(image=tag, step="strict", launches=1)))
        assert code == 1
        (record,) = read_run(tmp_path / "run").records
        assert record.status == "failed"
        assert "records.jsonl" in (record.reason or "") or "exit code" in (record.reason or "")
        assert "root:" not in (tmp_path / "run" / "records.jsonl").read_text()
        assert any("uid=" in note and "uid=0" not in note for note in record.notes), record.notes
        assert Path("/etc/passwd").read_bytes() == before
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
            "manifest.json",
            "records.jsonl",
            "samples",
        ]
    finally:
        clean.engine.untag(tag)


@pytest.mark.docker
@pytest.mark.parametrize("policy", ["single", "multi"])
def test_doctor_looks_into_an_image(clean: Started, policy: str) -> None:
    command = [sys.executable, "-m", "collbench", "doctor", "--image", "mpich", "--policy", policy, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    findings = {row["check"]: row for row in json.loads(done.stdout)["findings"]}
    assert findings["mpi"]["status"] == "ok"
    assert findings["shm"]["status"] == "warn"
    assert "MPICH 5" in findings["mpi"]["seen"]


@pytest.mark.docker
def test_a_killed_driver_is_swept_and_nothing_else(started: Started, launch: Launch, tmp_path: Path) -> None:
    engine = started.engine
    mine = engine._client.api.create_container("debian:bookworm-slim", ["sleep", "60"], name="not-of-collbench")
    process = launch(LONG.format(image="mpich", step="ipc", launches=1))
    try:
        wait_for(lambda: ranks_of(started))
        sweep = [sys.executable, "-m", "collbench", "launch", "--sweep"]
        alive = subprocess.run(sweep, capture_output=True, text=True, timeout=60, check=True).stdout
        names = [found["Names"][0].lstrip("/") for found in started.containers()]
        assert len(names) == 3
        assert "whose launch may still run: " in alive
        assert all(name in alive.partition("may still run")[2] for name in names)
        process.kill()
        process.communicate()
        swept = subprocess.run(sweep, capture_output=True, text=True, timeout=60, check=True).stdout
        assert swept.startswith("removed ")
        assert all(name in swept.splitlines()[0] for name in names)
        assert started.containers() == [] and started.networks() == []
        assert engine._client.api.inspect_container(mine["Id"])
    finally:
        process.kill()
        process.communicate()
        engine._client.api.remove_container(mine["Id"], force=True)
