"""What goes wrong on GPUs: too little memory, an MPI that takes no device pointers, a lost rank, two libraries."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.gpu.jobs import DOUBLE, Gpus, measured, plan, run_python
from tests.mpi.jobs import environment, finish

pytestmark = pytest.mark.gpu

MARK = "COLLBENCH_GPU_TEST_JOB"
TIMEOUT = 10  # s, -T of the job that loses a rank


@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_more_memory_than_the_gpu_has(gpus: Gpus, backend: str, tmp_path: Path) -> None:
    """The case fails with the sizes; those before and after it are measured."""
    first = gpus.run(1, "allreduce", "--backend", backend, "-b", "8", "-e", "8", "-n", "2", "--style", "json")
    memory = json.loads(first.out)["manifest"]["hosts"][0]["gpus"][0]["memory"]
    path = plan(tmp_path, collectives=["allreduce"], backends=[backend], sizes=["8", 2 * memory, "64"])
    ended = gpus.run(1, "run", path, "--style", "json")
    assert ended.code == 1
    assert [record["status"] for record in ended.records] == ["ok", "failed", "ok"]
    reason = ended.records[1]["reason"]
    assert len(re.findall(r"\d+(?:\.\d+)? ?(?:[KMGT]i?B|bytes)", reason)) >= 2, reason


def test_device_pointers_are_taken_or_refused(gpus: Gpus) -> None:
    ended = gpus.run(1, "allreduce", "--backend", "mpi-cuda", "-b", "1M", "-e", "1M", "-n", "5", "--style", "json")
    if ended.code == 0:
        (record,) = measured(ended)
        assert record["status"] == "ok"
    else:
        assert ended.code == 2
        (message,) = ended.messages
        assert "mpi-cuda" in message and "mpi-staged" in message


def processes(mark: str) -> dict[int, str | None]:
    """Processes of the job with this mark, by process ID: the rank of each, None for the launcher's own."""
    found: dict[int, str | None] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            variables = dict(part.partition("=")[::2] for part in (place / "environ").read_text().split("\0"))
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, UnicodeDecodeError):
            continue
        if variables.get(MARK) == mark and state != "Z":
            found[int(place.name)] = variables.get("OMPI_COMM_WORLD_RANK") or variables.get("PMI_RANK")
    return found


@pytest.mark.parametrize("kind", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_a_lost_rank(gpus: Gpus, backend: str, kind: signal.Signals, tmp_path: Path) -> None:
    """The other waits for it inside NCCL. One that stands still is found by the watchdog (code 3); one that was killed
    mostly by mpirun first, which ends the job with a code of its own. Either way nothing is left running.
    """
    mark, where = uuid.uuid4().hex, tmp_path / "run"
    path = plan(tmp_path, collectives=["allreduce"], backends=[backend], sizes=["8", "1M"], iters=None, align="none",
                budget="60s", cap=10_000_000, cadence="streaming", share_gpu=gpus.count < 2)  # fmt: skip
    process = subprocess.Popen(
        gpus.command(2, "run", path, "-T", str(TIMEOUT), "--out", str(where)),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(**gpus.environment({MARK: mark})), start_new_session=True,
    )  # fmt: skip
    try:
        os.kill(rank_1_when_measuring(process, mark, where), kind)
        began = time.monotonic()
        _, err = process.communicate(timeout=TIMEOUT + 45)
        took = time.monotonic() - began
        left = nothing_left(mark)
    finally:
        for number in processes(mark):
            os.kill(number, signal.SIGKILL)
    assert left == {}
    assert took < TIMEOUT + 30
    assert process.returncode in ((3,) if kind == signal.SIGSTOP else (3, 9, 137)), err
    if kind == signal.SIGSTOP:
        assert f" {TIMEOUT} s " in err
        assert err.count("collbench: ") == 1


def nothing_left(mark: str) -> dict[int, str | None]:
    """What of the job is still there a little after its launcher has left: nothing."""
    until = time.monotonic() + 10
    while (found := processes(mark)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def rank_1_when_measuring(process: subprocess.Popen[str], mark: str, where: Path) -> int:
    """The process ID of rank 1, once the run is on disk and the ranks have had time to begin."""
    until = time.monotonic() + 90
    while not (where / "records.jsonl").exists() and not (where / "manifest.json").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(3)
    (found,) = (number for number, rank in processes(mark).items() if rank == "1")
    return found


_TWO = """
import ctypes, sys
for path in sys.argv.pop(1).split(":"):
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
sys.argv[0] = "collbench"
from collbench.cli import main
main()
"""


def test_two_libraries_are_refused(gpus: Gpus, tmp_path: Path) -> None:
    """The library and a copy of it elsewhere: nobody could say which one was measured."""
    if DOUBLE:
        pytest.skip("the double has no libnccl")
    told = run_python("from collbench.bindings.gpu.nccl import cupy_nccl; print(cupy_nccl().path)")
    assert told.returncode == 0, told.stderr
    path = Path(told.stdout.split()[-1])
    copy = tmp_path / path.name
    shutil.copyfile(path.resolve(), copy)
    try:
        argv = [sys.executable, "-c", _TWO, f"{path}:{copy}", "allreduce", "--backend", "nccl", "-e", "8", "-n", "2"]
        ended = finish(argv, env=gpus.environment())
    finally:
        copy.unlink()  # some hundred MB
    assert ended.code == 2
    (message,) = ended.messages
    assert "libnccl" in message and str(copy) in message
