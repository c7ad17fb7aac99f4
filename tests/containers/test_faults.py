"""What goes wrong in a launch, each fault on a real engine: nothing hangs, nothing is left, the message helps."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.engines.docker import images, look
from collbench.launch.engines.docker.spec import RUN_LABEL
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.worlds import LONG, disturbed, kill_container, kill_rank, ranks_of
from tests.processes import LIMIT, wait_for


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
    base = look.inspect(clean.engine, "collbench/openmpi")["Config"]["Labels"]["collbench.base"].split()[0]
    code, _, err = ended(launch(LONG.format(image=base, step="strict", launches=1)))
    assert code == 2
    assert f"image {base}: " in err
    assert "python" in err or "does not hold collbench" in err
    assert "not on this engine" not in err


@pytest.mark.docker
@pytest.mark.parametrize("disturb", [kill_container, kill_rank])
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_world_that_is_disturbed_is_one_failed_record(
    clean: Started, launch: Launch, tmp_path: Path, image: str, disturb: Callable[[Started], None]
) -> None:
    disturbed(clean, launch, tmp_path, image, disturb)


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_and_resumed(clean: Started, launch: Launch, tmp_path: Path, number: int) -> None:
    plan = LONG.format(image="mpich", step="strict", launches=2).replace('"10s"', '"0.2s"')
    process = launch(plan)
    wait_for(lambda: (tmp_path / "run" / "records.jsonl").exists()
             and (tmp_path / "run" / "records.jsonl").read_bytes().count(b"\n") >= 6)  # fmt: skip
    process.send_signal(number)
    code, _, err = ended(process)
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
FROM collbench/{image}
USER root
RUN printf '#!/bin/sh\\nln -s /etc/passwd /collbench/out/records.jsonl\\nln -s / /collbench/out/samples\\n\\
ln -s /etc/shadow /collbench/relay/1.request\\necho x >> /collbench/plan.json\\necho x > /collbench/else\\nid >&2\\n' \\
  > /opt/collbench/bin/collbench
USER collbench
"""


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_hostile_image_gets_nowhere(clean: Started, launch: Launch, tmp_path: Path, image: str) -> None:
    tag = "collbench-test/hostile:latest"
    dockerfile = HOSTILE.replace("{image}", image).encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(dockerfile)
        tar.addfile(member, io.BytesIO(dockerfile))
    images.build_context(clean.engine, context.getvalue(), "Dockerfile", tag, {}, False, {}, lambda line: None)
    try:
        before = Path("/etc/passwd").read_bytes()
        code, _, _ = ended(launch(LONG.format(image=tag, step="strict", launches=1)))
        assert code == 1
        (record,) = read_run(tmp_path / "run").records
        assert record.status == "failed"
        assert "records.jsonl" in (record.reason or "") or "exit code" in (record.reason or "")
        assert "root:" not in (tmp_path / "run" / "records.jsonl").read_text()
        assert any("uid=" in note and "uid=0" not in note for note in record.notes), record.notes
        assert any("plan.json" in note for note in record.notes), record.notes  # it could not write there
        assert Path("/etc/passwd").read_bytes() == before
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
            "manifest.json",
            "records.jsonl",
            "samples",
            "yardsticks.jsonl",
        ]
    finally:
        images.untag(clean.engine, tag)


@pytest.mark.docker
def test_a_killed_driver_is_swept_and_nothing_else(started: Started, launch: Launch, tmp_path: Path) -> None:
    engine = started.engine
    mine = engine.api.create_container("debian:bookworm-slim", ["sleep", "60"], name="not-of-collbench")
    process = launch(LONG.format(image="mpich", step="ipc", launches=1))
    try:
        wait_for(lambda: ranks_of(started))
        sweep = [sys.executable, "-m", "collbench", "launch", "--sweep"]
        alive = subprocess.run(sweep, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
        names = [found["Names"][0].lstrip("/") for found in started.containers()]
        assert len(names) == 3
        assert all(name in alive.partition("whose launch may still run")[2] for name in names)
        process.kill()
        process.communicate()
        swept = subprocess.run(sweep, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
        assert swept.startswith("removed ")
        assert all(name in swept.splitlines()[0] for name in names)
        assert started.containers() == [] and started.networks() == []
        assert engine.api.inspect_container(mine["Id"])
    finally:
        process.kill()
        process.communicate()
        engine.api.remove_container(mine["Id"], force=True)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('sizes = ["1T"]', "allreduce of 1.00 TiB needs 4.00 TiB of memory"),
        ('device = "gpu"\nranks = [64]', "64 workers need a GPU each, and this machine offers"),
        ("ranks = [250]", "250 ranks with 1 core each need 250 cores"),
        ('backends = ["torch-gloo"]', "image openmpi: backend torch-gloo: torch is not installed"),
    ],
)
def test_more_than_there_is(clean: Started, launch: Launch, tmp_path: Path, more: str, message: str) -> None:
    kept = [line for line in LONG.splitlines() if line.partition(" ")[0] != more.partition(" ")[0]]
    code, _, err = ended(launch("\n".join([*kept, more]).format(image="openmpi", step="strict", launches=1)))
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.docker
def test_a_shared_memory_that_is_too_small(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """MPICH takes 5 MiB of it for each rank, and dies of SIGBUS where it ends: the reason says why, and what helps.

    32 ranks: far beyond the 64 MiB, since how much of its share a rank touches differs from run to run.
    """
    plan = LONG.format(image="mpich", step="strict", launches=1).replace('"single"', '"multi"')
    plan = plan.replace('"8", "16", "32", "64", "128", "256"', '"1M"').replace("allreduce", "alltoall")
    code, _, err = ended(launch(plan + "ranks = [32]\noversubscribe = true\niters = 2\n"))
    assert code == 1
    assert (
        "32 ranks of mpich need about 166.40 MiB of shared memory, and /dev/shm at the step strict has 64.00 MiB" in err
    )
    assert "Use the step limits" in err
    assert [record.status for record in read_run(tmp_path / "run").records] == ["failed"]


#: How far a launch has come: images are being asked, there is a network, a container of the world, all ranks.
STAGES: dict[str, Callable[[Started], Any]] = {
    "asking": lambda started: started.containers(),
    "network": lambda started: started.networks(),
    "container": lambda started: [one for one in started.containers() if one["Labels"][RUN_LABEL] != "probe"],
    "ranks": ranks_of,
}


@pytest.mark.docker
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("step", ["strict", "net"])
def test_ctrl_c_at_every_stage(clean: Started, launch: Launch, stage: str, step: str) -> None:
    process = launch(LONG.format(image="openmpi", step=step, launches=1))
    wait_for(lambda: STAGES[stage](clean) or process.poll() is not None)
    assert process.poll() is None, stage
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err
    assert "interrupted" in err


@pytest.mark.docker
def test_two_that_resume_one_run_do_not_both_write(clean: Started, launch: Launch, tmp_path: Path) -> None:
    plan = LONG.format(image="mpich", step="strict", launches=100).replace('"10s"', '"0.1s"')
    records = tmp_path / "run" / "records.jsonl"
    process = launch(plan)
    wait_for(lambda: records.exists() and records.stat().st_size)
    code, _, err = ended(launch(plan, "--resume", str(tmp_path / "run")))
    assert code == 1
    assert "another program is writing this run" in err
    kept = records.read_bytes()
    wait_for(lambda: len(records.read_bytes()) > len(kept))
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert code == 130, (out, err)
    assert records.read_bytes().startswith(kept)
    assert {record.status for record in read_run(tmp_path / "run").records} == {"ok"}


@pytest.mark.docker
def test_ranks_on_the_host_end_with_a_killed_driver(clean: Started, launch: Launch, tmp_path: Path) -> None:
    plan = LONG.format(image="openmpi", step="strict", launches=1).replace('"single"', '"host"')
    plan = plan.replace('"10s"', '"3600s"').replace('"8", "16", "32", "64", "128", "256"', '"64M"')
    process = launch(f'{plan}environments = {{ openmpi = "{sys.prefix}" }}\n')
    try:
        theirs = wait_for(ranks_on_host)
        process.kill()
        process.communicate()
        wait_for(lambda: not any(Path(f"/proc/{number}").exists() for number in theirs))
    finally:
        process.kill()


def ranks_on_host() -> list[int]:
    """mpirun and two ranks of a launch on the host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"run" in words and any(b"collbench-" in word and word.endswith(b"plan.json") for word in words):
            found.append(int(path.parent.name))
    return found if len(found) >= 3 else []


def test_a_launch_that_fails_says_why_in_the_ranks_words(launch: Launch) -> None:
    """A limit that no machine keeps. When a rank leaves MPI_Init, mpirun ends with its code, crashes, or hangs."""
    plan = LONG.format(image="openmpi", step="strict", launches=1).replace('"single"', '"host"')
    plan = plan.replace('"300s"', '"0.001s"')
    code, out, err = ended(launch(f'{plan}environments = {{ openmpi = "{sys.prefix}" }}\n'))
    assert code == 1
    assert re.search(r"failed: .*: backend mpi: the ranks did not meet within 1 ms", err), err
    said = " ".join(out.split())  # a reason that is longer, where mpirun hangs, goes on in the next line
    assert re.search(r"\* failed: .*: backend mpi: the ranks did not meet", said), out
