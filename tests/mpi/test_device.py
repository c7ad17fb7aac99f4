"""GPU backends on a device that is not host memory (tests/double): every case, and what records say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collbench import collectives
from tests.mpi.double_jobs import DOUBLE, measure, one, run
from tests.mpi.jobs import Command, finish

ALL, FEW = '["all"]', '["int8", "float32"]'


def plan(tmp_path: Path, backend: str, more: str) -> str:
    path = tmp_path / "device.toml"
    path.write_text(
        f'collectives = {list(collectives.names())}\nbackends = ["{backend}"]\niters = 1\nwarmup = 0\n'
        f'gate = "barrier"\ndrivers = ["native", "python"]\n{more}\n'
    )
    return str(path)


def breadth(ranks: int) -> str:
    """One rank: every size, place and op. Two: every dtype. Three, which few cores bear badly: another root."""
    if ranks == 2:
        return f'dtypes = {ALL}\nops = ["all"]\nsizes = ["4100"]\nroots = [1]\n'
    if ranks == 3:
        return 'dtypes = ["float32"]\nops = ["sum", "max"]\nsizes = ["4100"]\nroots = [2]\nin_place = [false, true]\n'
    return f'dtypes = {FEW}\nops = ["all"]\nsizes = ["0", "4100"]\nin_place = [false, true]\n'


def reasons(records: list[dict[str, Any]]) -> set[str]:
    """Reasons of what was not measured; every measured case must be right, by the driver that was asked for."""
    for record in records:
        assert record["status"] in ("ok", "skipped"), record
        if record["status"] == "ok":
            assert record["check"]["wrong"] == 0
            assert record["driver"] == record["case"]["how"]["driver"]
    return {record["reason"] for record in records if record["status"] == "skipped"}


SERVER = {f"{name} needs 2 ranks or more" for name in ("ps_bcast", "ps_gather")}
NO_IN_PLACE = "NCCL's sends and receives have no in-place form"
NO_SUCH = "NCCL has no {} (it has int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16)"


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_case_of_nccl(mpirun: Command, tmp_path: Path, ranks: int) -> None:
    path = plan(tmp_path, "nccl", breadth(ranks))
    records = run(mpirun(ranks, "run", path, program=DOUBLE), tmp_path)
    expected = (
        {"barrier has no NCCL form"} | (set() if ranks == 2 else {NO_IN_PLACE}) | (SERVER if ranks == 1 else set())
    )
    assert reasons(records) == expected


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_case_of_staged_mpi(mpirun: Command, tmp_path: Path, ranks: int) -> None:
    kinds = '"pinned"' if ranks == 2 else '"pinned", "pageable"'
    path = plan(tmp_path, "mpi-staged", breadth(ranks) + f"staging = [{kinds}]\n")
    records = run(mpirun(ranks, "run", path, program=DOUBLE), tmp_path)
    assert reasons(records) == (SERVER if ranks == 1 else set())
    staged = {record["case"]["how"].get("staging") for record in records if record["case"]["workload"] != "barrier"}
    assert staged == ({"pinned"} if ranks == 2 else {"pinned", "pageable"})


@pytest.mark.mpi
def test_every_case_of_an_mpi_that_takes_device_memory(mpirun: Command, tmp_path: Path) -> None:
    """It may read and write the double's memory here, at the addresses that it is given."""
    path = plan(tmp_path, "mpi-cuda", f'dtypes = {FEW}\nops = ["sum"]\nsizes = ["4100"]\nroots = [1]\n')
    records = run(mpirun(2, "run", path, program=DOUBLE), tmp_path, DOUBLE_CUDA_AWARE="1")
    assert reasons(records) == set()
    measured = {record["case"]["workload"] for record in records if record["status"] == "ok"}
    assert measured == set(collectives.names())


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_what_nccl_chose_is_read_from_its_log(mpirun: Command) -> None:
    record = one(measure(mpirun, 2, "allreduce", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2"))
    assert (record["transport"], record["algorithm"], record["protocol"]) == ("P2P/DOUBLE", "RING", "LL")
    record = one(measure(mpirun, 2, "sendrecv", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2"))
    assert (record["transport"], record["algorithm"], record["protocol"]) == ("P2P/DOUBLE", None, None)


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("version", ["2.28.9", "2.30.1"])
def test_ranks_that_share_a_gpu_say_so_as_each_version_asks(mpirun: Command, version: str) -> None:
    """Before 2.30 they must seem to be on different hosts, from then on a variable allows it."""
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "2", "--share-gpu")
    variables = {"DOUBLE_GPUS": "1", "DOUBLE_NCCL_VERSION": version}
    ended = measure(mpirun, 2, *arguments, **variables)
    assert one(ended)["status"] == "ok"
    assert not [name for name in json.loads(ended.out)["manifest"]["environment"] if name.startswith("NCCL_")]
    refused = measure(mpirun, 2, *arguments, **variables, DOUBLE_SPOIL="does not say that GPUs are shared")
    assert refused.code == 1
    assert "no communicator of 2 ranks" in one(refused)["reason"] and "Duplicate GPU" in one(refused)["reason"]


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize(
    ("flags", "burst", "graph"),
    [((), 1, 0), (("-z", "0"), 20, 0), (("-z", "0", "--burst", "7"), 7, 0), (("-G", "1"), 1, 1),
     (("-z", "0", "-G", "3", "--burst", "5"), 15, 5)],
)  # fmt: skip
def test_cadences_and_graphs(mpirun: Command, driver: str, flags: tuple[str, ...], burst: int, graph: int) -> None:
    arguments = ("allreduce", "--backend", "nccl", "--driver", driver, "-b", "64", "-e", "64", "-n", "4")
    record = one(measure(mpirun, 2, *arguments, *flags))
    assert (record["status"], record["burst"], record["case"]["how"].get("graph", 0)) == ("ok", burst, graph)
    assert record["cadence"] == ("streaming" if "-z" in flags else "isolated")
    assert record["device"]["p50"] > 0
    assert not record["legs"]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_registered_buffers(mpirun: Command) -> None:
    record = one(measure(mpirun, 2, "allreduce", "--backend", "nccl", "-R", "1", "-b", "64", "-e", "64", "-n", "2"))
    assert record["status"] == "ok"
    assert record["case"]["how"].get("registered", False)


@pytest.mark.mpi
def test_legs_add_up_to_the_sample(mpirun: Command) -> None:
    record = one(measure(mpirun, 2, "allreduce", "--backend", "mpi-staged", "-b", "1M", "-e", "1M", "-n", "9"))
    assert list(record["legs"]) == ["device to host", "communication", "host to device"]
    means = [leg["mean"] for leg in record["legs"].values()]
    assert sum(means) == pytest.approx(record["seconds"]["mean"], rel=1e-3)
    assert record["device"] is None


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("collective", "legs"), [("ps_bcast", ["server link", "gpus"]), ("ps_gather", ["gpus", "server link"])]
)
def test_a_server_has_no_gpu(mpirun: Command, collective: str, legs: list[str]) -> None:
    ended = measure(mpirun, 3, collective, "--backend", "nccl", "-r", "1", "-b", "64", "-e", "64", "-n", "3")
    record = one(ended)
    assert record["status"] == "ok"
    assert record["ranks"]["gpu"] == ["GPU-0", None, "GPU-1"]
    assert list(record["legs"]) == legs
    assert record["case"]["how"].get("staging") == "pinned"


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_the_mapping_is_printed(mpirun: Command) -> None:
    ended = finish(mpirun(2, "bcast", "--backend", "nccl", "-e", "8", "-n", "2", "--gate", "barrier", program=DOUBLE))
    assert "# rank 0: GPU-0 (Double, 0000:00:00.0)\n# rank 1: GPU-1 (Double, 0000:00:00.0)\n" in ended.out
    assert "say nothing" not in ended.out


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_plan_for_more_ranks_than_gpus_measures_what_it_can(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["ps_bcast", "allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\ngate = "barrier"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE), env={"DOUBLE_GPUS": "1"})
    assert ended.code == 0
    assert [record["status"] for record in ended.records] == ["ok", "skipped"]
    assert "would use one GPU" in ended.records[1]["reason"]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_algorithms_and_protocols_are_told_to_the_library(mpirun: Command, tmp_path: Path) -> None:
    """Each pair gets a communicator of its own, made with these settings; they do not outlive it."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["nccl"]\nsizes = ["8", "64"]\niters = 2\ngate = "barrier"\n'
        'algorithms = ["", "Ring"]\nprotocols = ["", "LL128"]\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_SAYS_SETTINGS": "1", "NCCL_ALGO": "Tree"})
    said = [line for line in ended.err.splitlines() if line.startswith("double: 0: ")]
    assert said == ["double: 0: Tree None", "double: 0: Tree LL128", "double: 0: Ring None", "double: 0: Ring LL128"]
    asked = [record["case"]["how"] for record in ended.records[::2]]
    assert [(how.get("algorithm"), how.get("protocol")) for how in asked] == [
        (None, None), (None, "LL128"), ("Ring", None), ("Ring", "LL128"),
    ]  # fmt: skip
