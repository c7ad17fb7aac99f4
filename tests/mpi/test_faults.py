"""Faults of real ranks: a rank that raises, dies, is killed or returns a wrong result."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.jobs import Command, Ended, environment, finish, mpi_vendor
from tests.processes import LIMIT, wait_for
from tests.runs import read_run

#: 80 samples a size and some 37 operations around them: the fault falls into the second size.
SWEEP = ("allreduce", "-b", "8", "-e", "64", "-n", "80", "--align", "barrier", "--driver", "python")


def sizes_on_disk(where: Path) -> list[int]:
    return [record.case["size"] for record in read_run(where).records]


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises(mpirun: Command, tmp_path: Path, rank: int) -> None:
    ended = finish(mpirun(2, *SWEEP, "--out", str(tmp_path / "run"), fault=("raise", rank, 120)))
    assert ended.code == 1
    assert len(ended.messages) == 1
    assert f"rank {rank}: allreduce 16 B on mpi: RuntimeError: " in ended.messages[0]
    assert str(tmp_path / "run") in ended.messages[0]
    assert sizes_on_disk(tmp_path / "run") == [8]


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs(mpirun: Command, tmp_path: Path, rank: int, left_with: Callable[[int], set[int]]) -> None:
    ended = finish(mpirun(2, *SWEEP, "-T", "8", "--out", str(tmp_path / "run"), fault=("hang", rank, 120)))
    assert ended.code in left_with(3)
    assert len(ended.messages) == 1
    assert "8 s in allreduce 16 B on mpi" in ended.messages[0]
    assert sizes_on_disk(tmp_path / "run") == [8]


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["die", "exit"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies(
    mpirun: Command, vendor: str, left_with: Callable[[int], set[int]], tmp_path: Path, rank: int, kind: str
) -> None:
    """mpirun notices first, ends the job and reports with its own code; what was measured is on disk."""
    ended = finish(mpirun(2, *SWEEP, "--out", str(tmp_path / "run"), fault=(kind, rank, 120)))
    killed = {"openmpi": 128 + signal.SIGKILL, "mpich": int(signal.SIGKILL)}[vendor]
    assert ended.code in ({killed} if kind == "die" else left_with(7))
    assert len(ended.messages) <= 1
    assert sizes_on_disk(tmp_path / "run") == [8]


@pytest.mark.mpi
def test_a_wrong_result_fails_the_case_and_the_process(mpirun: Command) -> None:
    ended = finish(mpirun(2, *SWEEP, "--style", "json", fault=("corrupt", 1, 120)))
    assert ended.code == 1
    status = [record["status"] for record in ended.records]
    assert status == ["ok", "failed", "failed", "failed"]
    reasons = [record["reason"] for record in ended.records[1:]]
    assert reasons[0].endswith("rank 1: 1 of 4 elements") and all("rank 1: " in reason for reason in reasons)
    assert all(record["check"]["wrong"] > 0 for record in ended.records[1:])


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["raise", "hang", "die"])
def test_gloo_faults(torchrun: Command, tmp_path: Path, kind: str) -> None:
    """torchrun answers every failure with its own exit code 1, and names the rank's."""
    command = torchrun(2, *SWEEP, "-T", "15", "--out", str(tmp_path / "run"), fault=(kind, 1, 120))
    ended = finish(command)
    assert ended.code != 0
    assert sizes_on_disk(tmp_path / "run") == [8]
    (message,) = ended.messages
    expected = {"raise": "RuntimeError: ", "hang": " 15 s in allreduce", "die": "is gone|SIGTERM"}[kind]
    assert any(part in message for part in expected.split("|")), message


def wait_for_records(where: Path, many: int) -> None:
    """Until so many are on disk."""
    records = where / "records.jsonl"
    wait_for(lambda: records.exists() and records.read_bytes().count(b"\n") >= many)


def interrupted(command: list[str], number: int, where: Path) -> Ended:
    """Send a signal to the launcher once two records are on disk."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    wait_for_records(where, 2)
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Ended(process.returncode, out.decode().replace("\0", ""), err.decode().replace("\0", ""))


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm(mpirun: Command, vendor: str, tmp_path: Path, number: int) -> None:
    where = tmp_path / "run"
    ended = interrupted(mpirun(2, "allreduce", "-e", "1G", "--budget", "1s", "--out", str(where)), number, where)
    if vendor == "mpich":
        assert ended.code == 130
        assert len(ended.messages) == 1
    else:  # Open MPI's mpirun answers with 1 and drops what the ranks still say
        assert ended.code != 0
    assert len(sizes_on_disk(where)) >= 2


@pytest.mark.mpi
@pytest.mark.parametrize("what", ["records.jsonl", "."])
def test_a_run_that_is_removed_while_it_is_written(mpirun: Command, tmp_path: Path, what: str) -> None:
    where = tmp_path / "run"
    command = mpirun(2, "allreduce", "-e", "1G", "--budget", "1s", "--align", "barrier", "--out", str(where))
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    try:
        wait_for_records(where, 2)
        subprocess.run(["rm", "-rf", "--", str(where if what == "." else where / what)], check=True)
        _, err = process.communicate(timeout=60)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 1
    (message,) = [line for line in err.decode().replace("\0", "").splitlines() if line.startswith("collbench: ")]
    assert f"{where}" in message and f"({os.strerror(errno.ENOENT)})" in message


@pytest.mark.mpi
def test_a_full_disk(mpirun: Command, tmp_path: Path) -> None:
    """208 KiB of disk hold three samples files of 64 KB and not a fourth."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=208k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        command = mpirun(2, "allreduce", "-e", "64", "-n", "8000", "--align", "barrier", "--out", str(disk / "run"))
        ended = finish(command)
        assert ended.code == 1
        assert len(ended.messages) == 1
        assert os.strerror(errno.ENOSPC) in ended.messages[0]
        assert sizes_on_disk(disk / "run") == [8, 16, 32]
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.mpi
def test_nobody_reads(mpirun: Command, tmp_path: Path) -> None:
    command = " ".join(mpirun(2, "allreduce", "-e", "4K", "-n", "50", "--style", "csv", "--out", str(tmp_path / "run")))
    process = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1"], capture_output=True, env=environment(), timeout=LIMIT, check=False
    )
    assert process.stdout.startswith(b"status,")
    assert len(sizes_on_disk(tmp_path / "run")) >= 1


@pytest.mark.mpi
def test_a_rank_that_never_comes(mpirun: Command, left_with: Callable[[int], set[int]]) -> None:
    """The second process of the job is no collbench and joins no world: the first must not wait for it for ever."""
    stranger = [sys.executable, "-c", "import time; time.sleep(3600)"]
    ended = finish([*mpirun(1, "allreduce", "-e", "8", "-T", "4"), ":", "-n", "1", *stranger])
    assert ended.code in left_with(3)
    (message,) = ended.messages
    assert " 4 s " in message and "-T" in message


# Ranks that die at their start ----------------------------------------------------------------------------------------

#: A time-out that no test waits for.
PLAN = """
collectives = ["bcast"]
sizes = ["8"]
iters = 20
policies = ["host"]
images = ["{vendor}"]
environments = {{ {vendor} = "{environment}" }}
ranks = [2]
oversubscribe = true
launches = {launches}
timeout = "1h"
"""

#: What Python imports first. A rank stops whoever has started it, which thus notices nothing, and dies.
DIES = """
import os, signal
rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
if rank is not None and rank in os.environ["DYING_RANKS"].split(","):
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(14)
"""


def launch(folder: Path, launches: int, **environment: str) -> Ended:
    """How an experiment with two ranks ended; its run is in the folder."""
    plan = PLAN.format(vendor=mpi_vendor(), environment=sys.prefix, launches=launches)
    (folder / "plan.toml").write_text(plan)
    command = [sys.executable, "-m", "collbench", "launch", str(folder / "plan.toml"), "--out", str(folder / "run")]
    return finish(command, env=environment)


@pytest.mark.mpi
@pytest.mark.parametrize(("dying", "how"), [("0,1", "all ranks have ended"), ("1", "a rank ended with exit code 14")])
def test_a_launcher_that_hangs_is_not_waited_for(tmp_path: Path, dying: str, how: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ended = launch(tmp_path, 1, PYTHONPATH=path, DYING_RANKS=dying)
    assert ended.code == 1, ended.err
    (record,) = read_run(tmp_path / "run").records
    assert record.status == "failed"
    assert (record.reason or "").startswith(f"{how}, and mp"), record.reason
    assert " 10 s " in (record.reason or "")
    assert f"failed: {how}" in ended.messages[0]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_what_open_mpi_does_not_find_ends_every_launch(tmp_path: Path) -> None:
    """Its prterun ends by itself, or waits for ever: each happens in about half of the launches (5.0.11)."""
    if mpi_vendor() != "openmpi":
        pytest.skip("the parameter is Open MPI's")
    ended = launch(tmp_path, 3, OMPI_MCA_pml="nonexistent")
    assert ended.code == 1, ended.err
    reasons = [record.reason or "" for record in read_run(tmp_path / "run").records]
    assert len(reasons) == 3
    for number, reason in enumerate(reasons):
        assert reason.startswith(("all ranks have ended, and mpirun did not end", "ended with exit code ")), reason
        assert "A requested component was not found" in reason or "An error occurred in MPI_Init" in reason, reason
        same = [earlier for earlier in range(number) if reasons[earlier] == reason]
        said = f"ended as launch {same[0]} (openmpi host, 2 ranks) did" if same else "failed: "
        assert ended.messages[number].startswith(f"collbench: launch {number} (openmpi host, 2 ranks) {said}")
