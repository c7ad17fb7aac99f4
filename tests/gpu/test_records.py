"""What a record of a GPU says: bursts, graphs, registered buffers, the device's own time, what NCCL tells."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.gpu.jobs import DOUBLE, Gpus, measured
from tests.mpi.jobs import finish

pytestmark = pytest.mark.gpu

ALGORITHMS = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"}
PROTOCOLS = {"LL", "LL128", "SIMPLE"}


def one(gpus: Gpus, ranks: int, backend: str, *arguments: str) -> dict[str, Any]:
    """The only record of an all-reduce, with its samples behind a barrier."""
    plain = ("allreduce", "--backend", backend, "-n", "20", "--gate", "barrier", "--style", "json")
    (record,) = measured(gpus.run(ranks, *plain, *gpus.share(ranks), *arguments))
    return record


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_bursts(gpus: Gpus, backend: str, ranks: int) -> None:
    record = one(gpus, ranks, backend, "-b", "1K", "-e", "1K", "--cadence", "streaming", "--burst", "7")
    assert (record["status"], record["cadence"], record["burst"]) == ("ok", "streaming", 7)


def test_what_is_complete_when_it_returns_has_no_bursts(gpus: Gpus) -> None:
    ended = gpus.run(1, "allreduce", "--backend", "mpi-staged", "-e", "8", "--cadence", "streaming")
    assert ended.code == 2
    assert "mpi-staged completes every call" in ended.messages[0]


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


@pytest.mark.parametrize("ranks", [1, 2])
def test_registered_buffers(gpus: Gpus, ranks: int) -> None:
    record = one(gpus, ranks, "nccl", "-b", "1M", "-e", "1M", "-R", "1")
    assert record["case"]["how"].get("registered", False) is True
    assert record["status"] == "ok" or "registers no buffers" in record["reason"]


@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("backend", ["nccl", "torch-nccl"], indirect=True)
def test_the_devices_own_time(gpus: Gpus, backend: str, driver: str) -> None:
    """A second look at the same operation: not far from the host's, and seldom above it."""
    if backend == "torch-nccl" and driver == "native":
        pytest.skip("torch has no native driver")
    record = one(gpus, gpus.count, backend, "-b", "64M", "-e", "64M", "--driver", driver)
    assert 0.2 <= record["device"]["p50"] / record["seconds"]["p50"] <= 1.5


def test_copies_are_legs(gpus: Gpus) -> None:
    record = one(gpus, 1, "mpi-staged", "-b", "16M", "-e", "16M")
    assert record["device"] is None
    assert list(record["legs"]) == ["device to host", "communication", "host to device"]
    together = sum(leg["p50"] for leg in record["legs"].values())
    assert 0.5 <= together / record["seconds"]["p50"] <= 1.5
    assert record["legs"]["device to host"]["p50"] > 16 * 2**20 / 1e12  # no link carries a terabyte a second


@pytest.mark.parametrize("staging", ["pageable", "pinned"])
def test_staging(gpus: Gpus, staging: str) -> None:
    assert (
        one(gpus, 1, "mpi-staged", "-b", "1M", "-e", "1M", "--staging", staging)["case"]["how"].get("staging")
        == staging
    )


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


def test_gpus_are_named_with_their_state(gpus: Gpus) -> None:
    ended = gpus.run(1, "allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "5", "--style", "json")
    (record,) = measured(ended)
    (uuid,) = record["ranks"]["gpu"]
    assert uuid.startswith("GPU-")
    if DOUBLE:
        pytest.skip("the double has no state to read")
    (state,) = record["gpus"]
    assert state["before"]["uuid"] == state["after"]["uuid"] == uuid


def test_list_and_doctor_end(gpus: Gpus) -> None:
    if DOUBLE:
        pytest.skip("the double is no machine to look at")
    listed = finish([sys.executable, "-m", "collbench", "list"])
    assert listed.code == 0, listed.err
    assert any(line.split()[:2] == ["yes", "nccl"] for line in listed.out.splitlines()), listed.out
    assert '"gpus"' in finish([sys.executable, "-m", "collbench", "doctor", "--json"]).out
