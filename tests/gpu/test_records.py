"""On a GPU: records, programs, what operations mean."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from collbench import collectives, workloads
from tests.gpu.jobs import DOUBLE, Gpus, measured, plan
from tests.mpi.jobs import finish

ALGORITHMS = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"}
PROTOCOLS = {"LL", "LL128", "SIMPLE"}


def one(gpus: Gpus, ranks: int, backend: str, *arguments: str) -> dict[str, Any]:
    """The only record of an all-reduce, with its samples behind a barrier."""
    plain = ("allreduce", "--backend", backend, "-n", "20", "--align", "barrier", "--style", "json")
    (record,) = measured(gpus.run(ranks, *plain, *gpus.share(ranks), *arguments))
    return record


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_bursts(gpus: Gpus, backend: str, ranks: int) -> None:
    record = one(gpus, ranks, backend, "-b", "1K", "-e", "1K", "--cadence", "streaming", "--burst", "7")
    assert (record["status"], record["cadence"], record["burst"]) == ("ok", "streaming", 7)


@pytest.mark.gpu
def test_what_is_complete_when_it_returns_has_no_bursts(gpus: Gpus) -> None:
    ended = gpus.run(1, "allreduce", "--backend", "mpi-staged", "-e", "8", "--cadence", "streaming")
    assert ended.code == 2
    assert "mpi-staged" in ended.messages[0] and "streaming" in ended.messages[0]


@pytest.mark.gpu
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_graphs(gpus: Gpus, ranks: int, driver: str) -> None:
    flags = ("-b", "1K", "-e", "1K", "--driver", driver)
    alone = one(gpus, ranks, "nccl", *flags, "-G", "1")
    assert (alone["status"], alone["driver"], alone["case"]["how"].get("graph", 0), alone["burst"]) == (
        "ok",
        driver,
        1,
        1,
    )
    chained = one(gpus, ranks, "nccl", *flags, "-G", "3", "--cadence", "streaming", "--burst", "5")
    assert (chained["status"], chained["case"]["how"].get("graph", 0), chained["burst"]) == ("ok", 5, 15)


@pytest.mark.gpu
@pytest.mark.parametrize(("number", "registration"), [("1", "local"), ("2", "symmetric")])
@pytest.mark.parametrize("ranks", [1, 2])
def test_registered_buffers(gpus: Gpus, ranks: int, number: str, registration: str) -> None:
    record = one(gpus, ranks, "nccl", "-b", "1M", "-e", "1M", "-R", number)
    assert record["case"]["how"]["registration"] == registration
    assert record["status"] in ("ok", "skipped"), record["reason"]


@pytest.mark.gpu
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_the_devices_own_time(gpus: Gpus, backend: str, driver: str) -> None:
    """A second look at the same operation: not far from the host's, and seldom above it."""
    if backend == "torch-nccl" and driver == "native":
        pytest.skip("torch has no native driver")
    record = one(gpus, gpus.count, backend, "-b", "64M", "-e", "64M", "--driver", driver)
    assert 0.2 <= record["device"]["p50"] / record["seconds"]["p50"] <= 1.5


@pytest.mark.gpu
def test_copies_are_legs(gpus: Gpus) -> None:
    record = one(gpus, 1, "mpi-staged", "-b", "16M", "-e", "16M")
    assert record["device"] is None
    assert list(record["legs"]) == ["device to host", "communication", "host to device"]
    together = sum(leg["p50"] for leg in record["legs"].values())
    assert 0.5 <= together / record["seconds"]["p50"] <= 1.5
    assert record["legs"]["device to host"]["p50"] > 16 * 2**20 / 1e12  # no link carries a terabyte a second


@pytest.mark.gpu
@pytest.mark.parametrize("staging", ["pageable", "pinned"])
def test_staging(gpus: Gpus, staging: str) -> None:
    assert (
        one(gpus, 1, "mpi-staged", "-b", "1M", "-e", "1M", "--staging", staging)["case"]["how"].get("staging")
        == staging
    )


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_what_nccl_tells(gpus: Gpus, backend: str) -> None:
    """Connections are always logged between two ranks. The choice of an algorithm is where the library can be asked."""
    record = one(gpus, 2, backend, "-b", "1M", "-e", "1M")
    if DOUBLE and backend == "torch-nccl":
        pytest.skip("the double's torch has gloo in NCCL's place, which tells nothing")
    assert record["transport"], "NCCL's log names no connection between two ranks"
    assert record["algorithm"] is None or set(record["algorithm"].split(", ")) <= ALGORITHMS
    assert record["protocol"] is None or set(record["protocol"].split(", ")) <= PROTOCOLS
    if record["algorithm"] is None:
        pytest.skip(f"the transport is {record['transport']}; this NCCL does not tell its choice of algorithm")


@pytest.mark.gpu
def test_gpus_are_named_with_their_state(gpus: Gpus) -> None:
    ended = gpus.run(1, "allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "5", "--style", "json")
    (record,) = measured(ended)
    (uuid,) = record["ranks"]["gpu"]
    assert uuid.startswith("GPU-")
    if DOUBLE:
        pytest.skip("the double has no state to read")
    (state,) = record["gpus"]
    assert state["before"]["uuid"] == state["after"]["uuid"] == uuid


@pytest.mark.gpu
def test_list_and_doctor_end(gpus: Gpus) -> None:
    if DOUBLE:
        pytest.skip("the double is no machine to look at")
    listed = finish([sys.executable, "-m", "collbench", "list"], env=gpus.environment())
    assert listed.code == 0, listed.err
    assert any(line.split()[:2] == ["yes", "nccl"] for line in listed.out.splitlines()), listed.out
    assert '"gpus"' in finish([sys.executable, "-m", "collbench", "doctor", "--json"], env=gpus.environment()).out


# Benchmarks of suite `gpu` on one GPU ---------------------------------------------------------------------------------

#: Sizes with which the whole result is checked, and some that are no multiple of a block.
SMALL = {
    "gpu_copy": ("size=1,65537", "memory=pinned,pageable"),
    "gpu_convolution": ("width=1,65,128",),
    "gpu_gemm": ("m=33", "n=65", "k=129"),
    "gpu_histogram": ("size=4,65540", "bins=64,256"),
    "gpu_transpose": ("order=16,64", "variant=all"),
    "gpu_launch": ("burst=100",),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", workloads.suites()["gpu"])
def test_right_results(gpus: Gpus, name: str) -> None:
    records = measured(gpus.run(1, "suite", name, *SMALL[name], "-n", "2", "--style", "json"))
    assert {(record["status"], record["reason"]) for record in records} == {("ok", None)}
    native = not any("driver python" in note for record in records for note in record["notes"])
    assert native == (name != "gpu_gemm")


@pytest.mark.gpu
def test_events_agree_with_the_clock(gpus: Gpus) -> None:
    if DOUBLE:
        pytest.skip("the double's times mean nothing")
    records = measured(gpus.run(1, "suite", "gpu_copy", "size=256M", "-n", "10", "--style", "json"))
    for record in records:
        device = record["check"]["figures"][f"{record['case']['what']['measure']} device_ns"] * 1e-9
        assert 0.3 <= device / record["seconds"]["p50"] <= 1.2


# Every collective on real GPUs ----------------------------------------------------------------------------------------

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


@pytest.mark.gpu
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


@pytest.mark.gpu
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


@pytest.mark.gpu
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


@pytest.mark.gpu
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


@pytest.mark.gpu
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


@pytest.mark.gpu
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
    assert "--share-gpu" in message
