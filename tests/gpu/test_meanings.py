"""Every collective on real GPUs: dtypes, reductions, places and odd sizes, by both drivers, on one rank and on more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collbench import collectives
from tests.gpu.jobs import Gpus, measured, plan

pytestmark = pytest.mark.gpu

BACKENDS = ("nccl", "torch-nccl", "mpi-staged")
SERVED = {"ps_bcast", "ps_gather"}
#: Parts of the reasons for which a case may be skipped.
ALLOWED = (
    "ranks or more", "no NCCL form", "no in-place form", "no torch.distributed form", "cannot send to its own rank",
    "torch passes no", "no datatype for", "MPI has no average",
)  # fmt: skip


def ok(records: list[dict[str, Any]]) -> set[str]:
    """Names of the collectives that were measured; what was skipped has a reason that is known."""
    for record in records:
        reason = record["reason"] or ""
        assert record["status"] == "ok" or any(part in reason for part in ALLOWED), record
    return {record["case"]["workload"] for record in records if record["status"] == "ok"}


def expected(backend: str, ranks: int) -> set[str]:
    """Collectives that a backend must have measured: a server beside one rank is none, NCCL has no barrier."""
    names = set(collectives.names()) - (SERVED if ranks == 1 else set())
    if backend == "nccl":
        names -= {"barrier"}
    return names - {"sendrecv"} if backend == "torch-nccl" and ranks == 1 else names


def drivers(backend: str) -> list[str]:
    return ["python"] if backend == "torch-nccl" else ["native", "python"]


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_one_rank(gpus: Gpus, backend: str, tmp_path: Path) -> None:
    path = plan(
        tmp_path, collectives=list(collectives.names()), backends=[backend], drivers=drivers(backend),
        in_place=[False, True], dtypes=["int8", "bfloat16", "float32"], ops=["sum", "avg"], sizes=["8", "4100"],
    )  # fmt: skip
    records = measured(gpus.run(1, "run", path, "--style", "json"))
    assert ok(records) >= expected(backend, 1)
    for record in records:
        if record["status"] == "ok":
            assert record["driver"] == record["case"]["how"]["driver"], record["notes"]


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_two_ranks(gpus: Gpus, backend: str, tmp_path: Path) -> None:
    """On one GPU they take turns, so there are fewer cases."""
    shared = gpus.count < 2
    dtype = "int32" if backend == "mpi-staged" else "bfloat16"
    path = plan(
        tmp_path, collectives=list(collectives.names()), backends=[backend], drivers=drivers(backend), share_gpu=shared,
        dtypes=[dtype] if shared else ["int8", dtype, "float64"], ops=["sum", "max", "avg"], sizes=["4100"],
    )  # fmt: skip
    records = measured(gpus.run(2, "run", path, "--style", "json"))
    assert ok(records) == expected(backend, 2)
    assert {record["shared_gpu"] for record in records if record["status"] == "ok"} == {shared}


@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_every_dtype_and_reduction(gpus: Gpus, backend: str, tmp_path: Path) -> None:
    path = plan(
        tmp_path, collectives=["allreduce"], backends=[backend], drivers=drivers(backend)[:1], dtypes=["all"],
        ops=["all"], sizes=["70000"], share_gpu=gpus.count < 2,
    )  # fmt: skip
    records = measured(gpus.run(2, "run", path, "--style", "json"))
    assert ok(records) == {"allreduce"}
    found = {(one["case"]["what"]["dtype"], one["case"]["what"].get("op")) for one in records if one["status"] == "ok"}
    assert len({dtype for dtype, _ in found}) >= 8
    assert {op for _, op in found} == {"sum", "prod", "min", "max", "avg"}


def test_algorithms_and_protocols(gpus: Gpus, tmp_path: Path) -> None:
    """Each has a communicator of its own, between two ranks."""
    path = plan(
        tmp_path, collectives=["allreduce"], backends=["nccl"], algorithms=["", "Ring", "Tree"],
        protocols=["LL", "Simple"], sizes=["4100"], share_gpu=gpus.count < 2,
    )  # fmt: skip
    records = measured(gpus.run(2, "run", path, "--style", "json"))
    asked = {(record["case"]["how"].get("algorithm"), record["case"]["how"].get("protocol")) for record in records}
    assert asked == {(algorithm, protocol) for algorithm in (None, "Ring", "Tree") for protocol in ("LL", "Simple")}
    assert [record["reason"] for record in records if record["status"] != "ok"] == []


@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_a_server_without_a_gpu(gpus: Gpus, backend: str, root: int, tmp_path: Path) -> None:
    """One rank more than GPUs, and no --share-gpu: the server needs none, whichever rank it is."""
    ranks = gpus.count + 1
    path = plan(
        tmp_path, collectives=sorted(SERVED), backends=[backend], drivers=drivers(backend), roots=[root],
        sizes=["1M"], iters=3,
    )  # fmt: skip
    records = measured(gpus.run(ranks, "run", path, "--style", "json"))
    assert ok(records) == SERVED
    copies = {"device to host", "communication", "host to device"}
    for record in records:
        assert [rank for rank, gpu in enumerate(record["ranks"]["gpu"]) if gpu is None] == [root]
        assert set(record["legs"]) == (copies if backend == "mpi-staged" else {"server link", "gpus"})
        assert all(leg["p50"] >= 0 for leg in record["legs"].values())


@pytest.mark.parametrize("backend", ["nccl", "mpi-staged"], indirect=True)
def test_where_every_rank_needs_a_gpu_one_too_few_is_said(gpus: Gpus, backend: str, tmp_path: Path) -> None:
    path = plan(tmp_path, collectives=["ps_bcast", "allreduce"], backends=[backend], sizes=["64"])
    records = measured(gpus.run(gpus.count + 1, "run", path, "--style", "json"))
    status = {record["case"]["workload"]: record for record in records}
    assert status["ps_bcast"]["status"] == "ok"
    assert status["allreduce"]["status"] == "skipped"
    assert "--share-gpu" in status["allreduce"]["reason"]
    refused = gpus.run(gpus.count + 1, "allreduce", "--backend", backend, "-e", "8")
    assert refused.code == 2
    (message,) = refused.messages
    assert "would use one GPU" in message
