"""torch-nccl with gloo and host memory in the place of NCCL and the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from collbench import collectives
from tests.mpi.double_jobs import one, run
from tests.mpi.jobs import Command, finish

TORCH = ("-m", "tests.double.torch_main")


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_case_of_torch_nccl(mpirun: Command, torchrun: object, tmp_path: Path, ranks: int) -> None:
    """With gloo in NCCL's place: groups, flows of the server, parts and reasons are the backend's own."""
    path = tmp_path / "plan.toml"
    sizes = '["0", "4100"]' if ranks == 2 else '["4100"]'
    path.write_text(
        f'collectives = {list(collectives.names())}\nbackends = ["torch-nccl"]\niters = 2\nwarmup = 0\n'
        'gate = "barrier"\n'
        f'dtypes = ["int8", "bfloat16", "uint64"]\nsizes = {sizes}\nroots = {sorted({0, ranks - 1})}\n'
        'in_place = [false, true]\nstaging = ["pinned", "pageable"]\n'
    )
    records = run(mpirun(ranks, "run", str(path), program=TORCH), tmp_path)
    skipped = {record["reason"] for record in records if record["status"] == "skipped"}
    assert {reason.partition("(")[0] for reason in skipped if "in-place" not in reason} == {
        "torch passes no uint64 to NCCL "
    }
    measured = [record for record in records if record["status"] == "ok"]
    assert {record["case"]["workload"] for record in measured} == set(collectives.names())
    assert all(record["check"]["wrong"] in (0, None) and record["driver"] == "python" for record in measured)
    served = [record for record in measured if record["case"]["workload"] == "ps_gather"]
    assert all(list(record["legs"]) == ["gpus", "server link"] for record in served)


@pytest.mark.mpi
@pytest.mark.torch
def test_torch_nccl_streams(mpirun: Command, torchrun: object) -> None:
    arguments = (
        "allreduce",
        "--backend",
        "torch-nccl",
        "-z",
        "0",
        "-b",
        "64",
        "-e",
        "64",
        "-n",
        "4",
        "--gate",
        "barrier",
    )
    record = one(finish(mpirun(2, *arguments, "--style", "json", program=TORCH)))
    assert (record["status"], record["cadence"], record["burst"]) == ("ok", "streaming", 20)
    assert record["device"]["p50"] > 0
    assert record["ranks"]["gpu"] == ["GPU-0", "GPU-1"]


@pytest.mark.mpi
@pytest.mark.torch
def test_torch_nccl_with_a_server_and_one_gpu(mpirun: Command, torchrun: object) -> None:
    arguments = (
        "ps_bcast",
        "--backend",
        "torch-nccl",
        "-b",
        "64",
        "-e",
        "64",
        "-n",
        "4",
        "--gate",
        "barrier",
        "--style",
        "json",
    )
    record = one(finish(mpirun(2, *arguments, program=TORCH), env={"DOUBLE_GPUS": "1"}))
    assert record["status"] == "ok"
    assert record["ranks"]["gpu"] == [None, "GPU-0"]


@pytest.mark.mpi
@pytest.mark.torch
def test_another_backend_of_torch_follows_one_that_was_refused(
    mpirun: Command, torchrun: object, tmp_path: Path
) -> None:
    """It is refused when the ranks have met, in torch's only default group."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["torch-nccl", "torch-gloo"]\nsizes = ["8"]\niters = 2\n'
        'gate = "barrier"\nunusable = "skip"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=TORCH), env={"DOUBLE_GPUS": "1"})
    assert ended.code == 0, ended.err
    assert {record["case"]["how"]["backend"]: record["status"] for record in ended.records} == {
        "torch-gloo": "ok", "torch-nccl": "skipped",
    }  # fmt: skip


@pytest.mark.mpi
@pytest.mark.torch
def test_torch_gives_its_memory_back(mpirun: Command, torchrun: object) -> None:
    """Its allocator keeps what was freed; NCCL would miss it in the next case, and another backend in this process."""
    arguments = ("allreduce", "--backend", "torch-nccl", "-b", "8", "-e", "8", "-n", "2", "--gate", "barrier")
    ended = finish(mpirun(1, *arguments, program=TORCH), env={"DOUBLE_SAYS_MEMORY": "1"})
    assert ended.code == 0, ended.err
    before_trying, before_measuring, at_the_end = 1, 1, 1
    assert ended.err.count("torch gave its memory back") == before_trying + before_measuring + at_the_end


@pytest.mark.mpi
@pytest.mark.torch
def test_what_does_not_fit_into_torchs_memory_fails_alone(mpirun: Command, torchrun: object, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["torch-nccl"]\nsizes = ["8", "4M", "64"]\niters = 2\n'
        'gate = "barrier"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=TORCH), env={"DOUBLE_MEMORY": str(1 << 20)})
    assert ended.code == 1, ended.err
    assert [record["status"] for record in ended.records] == ["ok", "failed", "ok"]
    reason = ended.records[1]["reason"]
    assert reason.startswith("rank 0: out of memory (CUDA out of memory. Tried to allocate 4194304 bytes")


@pytest.mark.mpi
@pytest.mark.torch
def test_what_torch_cannot_page_lock_fails_alone(mpirun: Command, torchrun: object, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["ps_bcast"]\nbackends = ["torch-nccl"]\nsizes = ["1M"]\niters = 2\ngate = "barrier"\n'
        'staging = ["pinned", "pageable"]\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=TORCH), env={"DOUBLE_PINNED": "4096"})
    assert ended.code == 1, ended.err
    by_staging = {record["case"]["how"].get("staging"): record for record in ended.records}
    assert by_staging["pageable"]["status"] == "ok"
    reason = by_staging["pinned"]["reason"]
    assert reason.endswith("1.00 MiB of host memory cannot be page-locked: CUDA error: out of memory)")
