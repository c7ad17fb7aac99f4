"""Faults of engines, images and ranks on a real engine: nothing hangs, nothing is left, the message helps."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import allowed_calls, find
from collbench.launch.engines.docker.spec import RUN_LABEL
from collbench.schema.record import Record
from tests.containers.conftest import Launch, Started, ended, skip_or_fail
from tests.containers.own_engine import OwnEngine, missing
from tests.containers.worlds import KILL, LADDER, LONG, disturbed, kill_container, kill_rank, ranks_of
from tests.processes import LIMIT, wait_for
from tests.runs import read_run

#: The command that builds an image.
BUILD = ("collbench", "image", "build")


def test_no_engine(launch: Launch) -> None:
    plan = LONG.format(image="openmpi", step="strict", launches=1) + 'docker_host = "unix:///nowhere/docker.sock"\n'
    code, _, err = ended(launch(plan))
    assert code == 2
    assert err.startswith("collbench: Docker Engine at unix:///nowhere/docker.sock: ")
    assert len(err.splitlines()) == 1


@pytest.mark.docker
def test_an_image_that_is_not_there(clean: Started, launch: Launch, tmp_path: Path) -> None:
    code, _, err = ended(launch(LONG.format(image="nosuch", step="strict", launches=1)))
    assert code == 2
    assert "collbench/nosuch: " in err and " ".join((*BUILD, "NAME", "--as", "nosuch")) in err
    assert not (tmp_path / "run").exists()


@pytest.mark.docker
def test_an_image_without_collbench(clean: Started, launch: Launch) -> None:
    base = images.inspect(clean.engine, "collbench/openmpi")["Config"]["Labels"]["collbench.base"].split()[0]
    code, _, err = ended(launch(LONG.format(image=base, step="strict", launches=1)))
    assert code == 2
    assert f"image {base}: " in err
    assert " ".join(BUILD) not in err  # it is on the engine


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
        assert all(name in alive.splitlines()[1] for name in names), alive
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
    parts = ("32 ranks of mpich", "166.40 MiB", "at the step strict", "64.00 MiB", "step limits")
    assert all(part in err for part in parts), err
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
    assert err.startswith(f"collbench: {tmp_path / 'run'}: ") and len(err.splitlines()) == 1
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
    assert re.search(r"failed: .*: backend mpi: .* 1 ms", err), err
    said = " ".join(out.split())  # a reason that is longer, where mpirun hangs, goes on in the next line
    assert re.search(r"\* failed: .*: backend mpi: .* 1 ms", said), out


# A rank that dies in a container whose launcher hangs -----------------------------------------------------------------

#: What starts ranks in a container stops.
STOP = 'for p in /proc/[0-9]*; do case "$(cat $p/comm)" in prte*|hydra*) kill -STOP ${p#/proc/};; esac; done; '


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_launcher_in_a_container_that_hangs_is_not_waited_for(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    process = launch(LONG.format(image=image, step="strict", launches=1).replace('"300s"', '"1h"'))
    try:
        wait_for(lambda: list(Path(tempfile.gettempdir()).glob("collbench-*/out/manifest.json")))
        api, container = clean.engine.api, wait_for(lambda: ranks_of(clean))[-1]
        api.exec_start(api.exec_create(container["Id"], ["sh", "-c", STOP + KILL])["Id"])
        code, _, err = ended(process)
    finally:
        process.kill()
        process.communicate()
    assert code == 1, err
    (record,) = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    said = (
        "a rank was ended by signal 9 (Killed), and mp",
        "all ranks have ended, and mp",
    )  # Open MPI's other rank sees it
    assert (record.reason or "").startswith(said), record.reason
    assert f"collbench: launch 0 ({image} single strict, 2 ranks) failed: {record.reason}" in err


# An engine of our own that is restarted, stays away, or may not be used in the middle of a launch ---------------------


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
    assert "collbench launch " in err and f" --resume {tmp_path / 'run'}" in err
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
    assert f"Docker Engine at {other.host}: " in done.stderr and "group docker" in done.stderr
    assert not (tmp_path / "run").exists()


# What is known to go wrong with MPI in containers ---------------------------------------------------------------------


def records_of(launch: Launch, folder: Path, plan: str) -> tuple[Record, ...]:
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    return read_run(folder / "run").records


def findings_of(*arguments: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "collbench", "doctor", "--image", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return {row["check"]: row for row in json.loads(done.stdout)["findings"]}


@pytest.mark.docker
def test_containers_never_share_a_core(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """Else every MPI binds its first rank to the same one."""
    for record in records_of(launch, tmp_path, LADDER.format(image="mpich", policies='"single"')):
        assert record.ranks is not None
        assert len(set(record.ranks.binding)) == 2, record.case.where.isolation


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_ranks_that_may_not_read_each_others_memory(clean: Started, launch: Launch, tmp_path: Path, image: str) -> None:
    """MPICH would abort from 64 KiB on, Open MPI copies twice in silence: the record says it, and so does doctor."""
    plan = LADDER.format(image=image, policies='"multi"').replace('"limits", "ipc", "net", "visible"', '"ipc"')
    found = {
        (record.case.where.isolation, record.case["size"]): record for record in records_of(launch, tmp_path, plan)
    }
    assert len(found) == 4
    needed = {"process_vm_readv"} if image == "mpich" else {"process_vm_readv", "kcmp"}
    refused = bool(needed - allowed_calls(clean.engine, find(clean.engine, f"collbench/{image}")))
    said = {key: any("refused at this step" in note for note in record.notes) for key, record in found.items()}
    assert said == {(step, size): refused and step == "strict" for step in ("strict", "ipc") for size in (8, 131072)}
    off = {
        any("MPIR_CVAR_CH4_CMA_ENABLE=0" in note for note in record.notes) for key, record in found.items() if said[key]
    }
    assert off == ({image == "mpich"} if refused else set())
    assert findings_of(image, "--policy", "multi")["cma"]["status"] == ("warn" if refused else "ok")
    assert findings_of(image, "--policy", "multi", "--isolation", "ipc")["cma"]["status"] == "ok"


@pytest.mark.docker
def test_shared_memory_is_not_taken_for_granted(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """Open MPI uses it inside one container only, whatever is shared: the transport is in the record."""
    plan = LADDER.format(image="openmpi", policies='"multi", "single"')
    found = {(one.case.where.policy, one.case.where.isolation): one for one in records_of(launch, tmp_path, plan)}
    assert {place: record.transport for place, record in found.items()} == {
        (policy, step): "ob1: sm" if policy == "multi" else "ob1: tcp" for policy, step in found
    }
    hung = [one for one in found.values() if any("OMPI_MCA_coll=^han" in note for note in one.notes)]
    assert {one.case.where.isolation for one in hung} == {"net", "visible"}  # containers of one hostname


@pytest.mark.docker
def test_ucx_gets_shared_memory_back_with_the_ipc_namespace(clean: Started, launch: Launch, tmp_path: Path) -> None:
    found = records_of(launch, tmp_path, LADDER.format(image="mpich", policies='"single"'))
    lanes = {record.case.where.isolation: record.transport or "" for record in found}
    assert all(lanes[step].startswith("ucx inter-node tcp/") for step in ("strict", "limits")), lanes
    assert all(lanes[step].startswith("ucx intra-node sysv/memory") for step in ("ipc", "net", "visible")), lanes


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_more_ranks_than_cores_take_a_word_and_are_marked(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    ranks = 2 * len(os.sched_getaffinity(0))
    plan = LADDER.format(image=image, policies='"multi", "single"').replace(
        '"limits", "ipc", "net", "visible"', '"net"'
    )
    plan = plan.replace("iters = 20", f"iters = 3\nranks = [{ranks}]")
    code, _, err = ended(launch(plan))
    assert code == 2
    assert "set oversubscribe = true" in err
    found = records_of(launch, tmp_path, plan + "oversubscribe = true\n")
    assert len(found) == 8
    assert all(record.status == "ok" and record.oversubscribed for record in found)


@pytest.mark.docker
def test_a_quota_is_seen_although_nproc_does_not_show_it(engine: Docker) -> None:
    """The quota comes down once ranks have started: to less than a busy machine leaves them."""
    quota = ("docker", "run", "--rm", "--cpus", "0.5")
    name = f"collbench-tests-quota-{os.getpid()}"
    measure = ("mpirun", "--bind-to", "none", "-n", "2", "collbench", "allreduce", "-b", "1M", "-e", "1M", "--align",
               "barrier", "--budget", "4s", "-J", "/dev/stderr")  # fmt: skip
    command = (*quota, "--name", name, "collbench/openmpi", *measure)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("# collbench")
        subprocess.run(("docker", "update", "--cpus", "0.05", name), capture_output=True, timeout=LIMIT, check=True)
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    (record,) = json.loads(said)["records"]
    assert record["contended"] is True
    assert any("CPU quota" in note for note in record["notes"]), record["notes"]
    done = subprocess.run(
        (*quota, "collbench/openmpi", "collbench", "doctor", "--json"),
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    cores = next(row for row in json.loads(done.stdout)["findings"] if row["check"] == "cores")
    assert cores["status"] == "warn"
    assert "0.5" in json.dumps(cores)


@pytest.mark.docker
@pytest.mark.parametrize("policy", ["single", "multi"])
def test_doctor_looks_into_an_image(clean: Started, policy: str) -> None:
    findings = findings_of("mpich", "--policy", policy)
    assert findings["mpi"]["status"] == "ok"
    assert findings["shm"]["status"] == "warn"
    assert "MPICH 5" in findings["mpi"]["seen"]
