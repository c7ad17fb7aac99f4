"""Images whose mpirun leaves odd things, on a real engine: one failed record each, and the next launch begins."""

from __future__ import annotations

import io
import signal
import tarfile
import time
from pathlib import Path

import pytest
from tests.containers.conftest import Launch, Started, ended
from tests.containers.worlds import LONG, ranks_of, wait_for

from collbench.launch.engines.docker import images
from collbench.schema.store import read_run

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
