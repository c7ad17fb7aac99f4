"""GPU backends on a device that is not host memory (tests/double): every case, every mistake, every fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collbench import collectives
from tests.mpi.jobs import Command, Ended, finish

DOUBLE = ("-m", "tests.double.main")
ALL, FEW = '["all"]', '["int8", "float32"]'


def plan(tmp_path: Path, backend: str, more: str) -> str:
    path = tmp_path / "device.toml"
    path.write_text(
        f'collectives = {list(collectives.names())}\nbackends = ["{backend}"]\niters = 1\nwarmup = 0\n'
        f'gate = "barrier"\ndrivers = ["native", "python"]\ntimeout = "60s"\n{more}\n'
    )
    return str(path)


def breadth(ranks: int) -> str:
    """One rank: every size, place and op. Two: every dtype. Three, which few cores bear badly: another root."""
    if ranks == 2:
        return f'dtypes = {ALL}\nops = ["all"]\nsizes = ["4100"]\nroots = [1]\n'
    if ranks == 3:
        return 'dtypes = ["float32"]\nops = ["sum", "max"]\nsizes = ["4100"]\nroots = [2]\nin_place = [false, true]\n'
    return f'dtypes = {FEW}\nops = ["all"]\nsizes = ["0", "4100"]\nin_place = [false, true]\n'


def run(command: list[str], tmp_path: Path, **variables: str) -> list[dict[str, Any]]:
    """The records of a job that must end well, by way of a file: mpirun may lose the end of a long output."""
    kept = tmp_path / "records.json"
    ended = finish([*command, "-J", str(kept)], env=variables)
    assert ended.code == 0, ended.err
    records: list[dict[str, Any]] = json.loads(kept.read_text())["records"]
    return records


def reasons(records: list[dict[str, Any]]) -> set[str]:
    """Reasons of what was not measured; every measured case must be right, by the driver that was asked for."""
    for record in records:
        assert record["status"] in ("ok", "skipped"), record
        if record["status"] == "ok":
            assert record["check"]["wrong"] == 0
            assert record["driver"] == record["case"]["driver"]
    return {record["reason"] for record in records if record["status"] == "skipped"}


def one(ended: Ended) -> dict[str, Any]:
    (record,) = ended.records
    return record


def measure(mpirun: Command, ranks: int, *arguments: str, **variables: str) -> Ended:
    command = mpirun(ranks, *arguments, "--gate", "barrier", "-T", "30s", "--style", "json", program=DOUBLE)
    return finish(command, env=variables)


SERVER = {f"{name} needs 2 ranks or more" for name in ("ps_bcast", "ps_gather")}
NO_IN_PLACE = "NCCL's sends and receives have no in-place form"
NO_SUCH = "NCCL has no {} (it has int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16)"


@pytest.mark.mpi
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
    staged = {record["case"]["staging"] for record in records if record["case"]["collective"] != "barrier"}
    assert staged == ({"pinned"} if ranks == 2 else {"pinned", "pageable"})


@pytest.mark.mpi
def test_every_case_of_an_mpi_that_takes_device_memory(mpirun: Command, tmp_path: Path) -> None:
    """It may read and write the double's memory here, at the addresses that it is given."""
    path = plan(tmp_path, "mpi-cuda", f'dtypes = {FEW}\nops = ["sum"]\nsizes = ["4100"]\nroots = [1]\n')
    records = run(mpirun(2, "run", path, program=DOUBLE), tmp_path, DOUBLE_CUDA_AWARE="1")
    assert reasons(records) == set()
    measured = {record["case"]["collective"] for record in records if record["status"] == "ok"}
    assert measured == set(collectives.names())


@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        ("no copy to host", "mpi-staged"),
        ("no copy to device", "mpi-staged"),
        ("no wait after copies", "mpi-staged"),
        ("result stays on the host", "mpi-staged"),
        ("no completion", "nccl"),
    ],
)
def test_a_mistake_is_noticed(mpirun: Command, kind: str, backend: str, driver: str) -> None:
    arguments = ("allreduce", "--backend", backend, "--driver", driver, "-b", "64", "-e", "64", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_SPOIL=kind)
    assert ended.code == 1
    assert one(ended)["reason"].startswith("wrong result before timing")


@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
def test_a_group_that_stays_open_is_noticed(mpirun: Command, driver: str) -> None:
    arguments = ("sendrecv", "--backend", "nccl", "--driver", driver, "-b", "64", "-e", "64", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_SPOIL="leaves groups open")
    assert ended.code == 1
    assert one(ended)["reason"].startswith("wrong result before timing")


@pytest.mark.mpi
def test_a_pair_that_does_not_agree_is_noticed(mpirun: Command) -> None:
    arguments = ("sendrecv", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_SPOIL="receives as another type")
    assert ended.code != 0
    assert "double: 16 elements were sent, and 16 are received as int8" in ended.err


@pytest.mark.mpi
def test_what_nccl_chose_is_read_from_its_log(mpirun: Command) -> None:
    record = one(measure(mpirun, 2, "allreduce", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2"))
    assert (record["transport"], record["algorithm"], record["protocol"]) == ("P2P/DOUBLE", "RING", "LL")
    record = one(measure(mpirun, 2, "sendrecv", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2"))
    assert (record["transport"], record["algorithm"], record["protocol"]) == ("P2P/DOUBLE", None, None)


@pytest.mark.mpi
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
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize(
    ("flags", "burst", "graph"),
    [((), 1, 0), (("-z", "0"), 20, 0), (("-z", "0", "--burst", "7"), 7, 0), (("-G", "1"), 1, 1),
     (("-z", "0", "-G", "3", "--burst", "5"), 15, 5)],
)  # fmt: skip
def test_cadences_and_graphs(mpirun: Command, driver: str, flags: tuple[str, ...], burst: int, graph: int) -> None:
    arguments = ("allreduce", "--backend", "nccl", "--driver", driver, "-b", "64", "-e", "64", "-n", "4")
    record = one(measure(mpirun, 2, *arguments, *flags))
    assert (record["status"], record["burst"], record["case"]["graph"]) == ("ok", burst, graph)
    assert record["cadence"] == ("streaming" if "-z" in flags else "isolated")
    assert record["device"]["p50"] > 0
    assert not record["legs"]


@pytest.mark.mpi
def test_registered_buffers(mpirun: Command) -> None:
    record = one(measure(mpirun, 2, "allreduce", "--backend", "nccl", "-R", "1", "-b", "64", "-e", "64", "-n", "2"))
    assert record["status"] == "ok"
    assert record["case"]["registered"]


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
    assert record["case"]["staging"] == "pinned"


@pytest.mark.mpi
def test_the_mapping_is_printed(mpirun: Command) -> None:
    ended = finish(mpirun(2, "bcast", "--backend", "nccl", "-e", "8", "-n", "2", "--gate", "barrier", program=DOUBLE))
    assert "# rank 0: GPU-0 (Double, 0000:00:00.0)\n# rank 1: GPU-1 (Double, 0000:00:00.0)\n" in ended.out
    assert "say nothing" not in ended.out


@pytest.mark.mpi
def test_a_shared_gpu_is_refused_or_marked(mpirun: Command) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_GPUS="1")
    assert ended.code == 2
    (message,) = ended.messages
    assert "ranks 0 and 1" in message and "would use one GPU (GPU-0): 2 ranks and 1 GPU." in message
    assert "--share-gpu" in message
    ended = measure(mpirun, 2, *arguments, "--share-gpu", DOUBLE_GPUS="1")
    assert one(ended)["shared_gpu"]


@pytest.mark.mpi
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
@pytest.mark.parametrize("unusable", ["refuse", "skip"])
def test_a_backend_that_is_not_usable(mpirun: Command, tmp_path: Path, unusable: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["mpi-cuda", "mpi-staged"]\nsizes = ["8"]\niters = 2\n'
        f'gate = "barrier"\nunusable = "{unusable}"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE))
    assert "is not CUDA-aware (built: no" in (ended.err if unusable == "refuse" else ended.out)
    assert ended.code == (2 if unusable == "refuse" else 0)
    if unusable == "skip":
        assert {record["case"]["backend"]: record["status"] for record in ended.records} == {
            "mpi-staged": "ok", "mpi-cuda": "skipped",
        }  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["nccl", "mpi-staged"])
def test_out_of_memory_says_how_much(mpirun: Command, backend: str) -> None:
    arguments = ("allreduce", "--backend", backend, "-b", "1M", "-e", "1M", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_MEMORY=str(1 << 20))
    assert ended.code == 1
    reason = one(ended)["reason"]
    assert "out of memory" in reason and "are asked for" in reason and "are free" in reason


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("variables", "code", "text"),
    [
        ({"DOUBLE_GPUS": "0"}, 2, "backend nccl: rank 0 on"),
        ({"DOUBLE_CANNOT_OPEN": "1"}, 2, "backend nccl: rank 1: double: the device is busy"),
        ({"DOUBLE_WITHOUT_NCCL": "1"}, 2, "backend nccl: rank 1: libnccl was not found"),
        ({"DOUBLE_OTHER_NCCL": "1"}, 2, "NCCL differs: rank 0 has 2.30.1 (/nowhere/libdouble.so), rank 1 has"),
        ({"DOUBLE_ASYNC_ERROR": "remote peer gone"}, 3, "NCCL: remote peer gone"),
    ],
)
def test_errors(mpirun: Command, variables: dict[str, str], code: int, text: str) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "2")
    ended = measure(mpirun, 2, *arguments, **variables)
    assert ended.code == code, ended.err
    assert len(ended.messages) == 1
    assert text in ended.messages[0]


@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("gate", ["none", "barrier"])
def test_a_rank_that_hangs_inside_a_call(mpirun: Command, gate: str, driver: str) -> None:
    """The other aborts its communicators. Its wait ends then, and what it waited with is freed: it must not go on."""
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "1000", "--gate", gate, "-T", "3s")
    command = mpirun(2, *arguments, "--driver", driver, program=DOUBLE)
    ended = finish(command, limit=60, env={"DOUBLE_LOST": "hang:1:20", "DOUBLE_SAYS_ABORT": "1"})
    assert ended.code == 3, ended.err
    assert "double: communicator aborted on rank 0" in ended.err
    (message,) = ended.messages
    assert "no progress for 3 s in allreduce 8 B on nccl" in message


@pytest.mark.mpi
def test_a_rank_that_dies_inside_a_call(mpirun: Command) -> None:
    """mpirun may hear of it before the others do."""
    command = mpirun(2, "allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-T", "3s", program=DOUBLE)
    assert finish(command, limit=60, env={"DOUBLE_LOST": "die:1:20"}).code != 0


TORCH = ("-m", "tests.double.torch_main")


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_case_of_torch_nccl(mpirun: Command, torchrun: object, tmp_path: Path, ranks: int) -> None:
    """With gloo in NCCL's place: groups, flows of the server, parts and reasons are the backend's own."""
    path = tmp_path / "plan.toml"
    path.write_text(
        f'collectives = {list(collectives.names())}\nbackends = ["torch-nccl"]\niters = 2\nwarmup = 0\n'
        'gate = "barrier"\n'
        f'dtypes = ["int8", "bfloat16", "uint64"]\nsizes = ["0", "4100"]\nroots = {sorted({0, ranks - 1})}\n'
        'in_place = [false, true]\nstaging = ["pinned", "pageable"]\n'
    )
    records = run(mpirun(ranks, "run", str(path), program=TORCH), tmp_path)
    skipped = {record["reason"] for record in records if record["status"] == "skipped"}
    assert {reason.partition("(")[0] for reason in skipped if "in-place" not in reason} == {
        "torch hands no uint64 to NCCL "
    }
    measured = [record for record in records if record["status"] == "ok"]
    assert {record["case"]["collective"] for record in measured} == set(collectives.names())
    assert all(record["check"]["wrong"] in (0, None) and record["driver"] == "python" for record in measured)
    served = [record for record in measured if record["case"]["collective"] == "ps_gather"]
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
    assert {record["case"]["backend"]: record["status"] for record in ended.records} == {
        "torch-gloo": "ok", "torch-nccl": "skipped",
    }  # fmt: skip


@pytest.mark.mpi
@pytest.mark.torch
def test_torch_gives_its_memory_back(mpirun: Command, torchrun: object) -> None:
    """Its allocator keeps what was freed; another backend in this process would miss it."""
    arguments = ("allreduce", "--backend", "torch-nccl", "-b", "8", "-e", "8", "-n", "2", "--gate", "barrier")
    ended = finish(mpirun(1, *arguments, program=TORCH), env={"DOUBLE_SAYS_MEMORY": "1"})
    assert ended.code == 0, ended.err
    assert "double: torch gave its memory back" in ended.err


@pytest.mark.mpi
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
    assert [(record["case"]["algorithm"], record["case"]["protocol"]) for record in ended.records[::2]] == [
        (None, None), (None, "LL128"), ("Ring", None), ("Ring", "LL128"),
    ]  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize("more", ["registered = [true]", "cudagraph = 1"])
def test_few_communicators_at_a_time_hold_memory(mpirun: Command, more: str, tmp_path: Path) -> None:
    """One for each pair of settings would not fit; what a case registered or captured is gone before its own is."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\ngate = "barrier"\n'
        f'algorithms = ["", "Ring", "Tree"]\nprotocols = ["", "LL"]\n{more}\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_MEMORY": str(5 << 20), "DOUBLE_COMM_MEMORY": str(1 << 20)})
    assert ended.code == 0, ended.err
    assert [record["status"] for record in ended.records] == ["ok"] * 6


@pytest.mark.mpi
def test_an_asynchronous_error_ends_a_long_case_before_its_end(mpirun: Command) -> None:
    """The watchdog asks the library while the loop is in C."""
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "1000000", "-z", "0", "--burst", "1000")
    ended = measure(mpirun, 2, *arguments, DOUBLE_ASYNC_ERROR="remote peer gone")
    assert ended.code == 3, ended.err
    (message,) = ended.messages
    assert "NCCL: remote peer gone. Another rank may be gone; the job ends here." in message


@pytest.mark.mpi
def test_an_abort_that_hangs_keeps_nobody(mpirun: Command) -> None:
    command = mpirun(2, "allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-T", "3s", program=DOUBLE)
    ended = finish(command, limit=60, env={"DOUBLE_LOST": "hang:1:20", "DOUBLE_ABORT_HANGS": "1"})
    assert ended.code == 3, ended.err
    assert len(ended.messages) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("driver", ["native", "python"])
def test_what_the_library_refuses_fails_its_case_alone(
    mpirun: Command, driver: str, graph: int, tmp_path: Path
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce", "bcast"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\ngate = "barrier"\n'
        f'drivers = ["{driver}"]\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_FAILS": "ncclAllReduce:5"})
    assert ended.code == 1
    assert [record["status"] for record in ended.records] == ["failed", "ok"]
    assert "error 5" in ended.records[0]["reason"]


@pytest.mark.mpi
def test_an_algorithm_that_the_library_does_not_have(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\ngate = "barrier"\n'
        'algorithms = ["NVLS", "Ring"]\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE), env={"DOUBLE_REFUSES": "NVLS"})
    assert ended.code == 1
    assert [record["status"] for record in ended.records] == ["failed", "ok"]
    assert "no communicator of 2 ranks: double: no such algorithm" in ended.records[0]["reason"]


@pytest.mark.mpi
def test_a_backend_without_its_library_is_skipped_where_the_plan_says_so(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["mpi-staged", "nccl"]\nsizes = ["8"]\niters = 2\n'
        'gate = "barrier"\nunusable = "skip"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE), env={"DOUBLE_WITHOUT_NCCL": "all"})
    assert ended.code == 0, ended.err
    assert [record["status"] for record in ended.records] == ["ok", "skipped"]


@pytest.mark.mpi
def test_registered_memory_that_does_not_fit_says_how_much(mpirun: Command) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-R", "1", "-b", "1M", "-e", "1M", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_MEMORY=str(1 << 20))
    assert ended.code == 1
    assert "are asked for" in one(ended)["reason"]


@pytest.mark.mpi
def test_a_graph_that_does_not_fit_on_one_rank_fails_on_all(mpirun: Command) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-G", "1", "-b", "1M", "-e", "1M", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_MEMORY=str(1 << 20))
    assert ended.code == 1
    assert "are asked for" in one(ended)["reason"]


@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("graph", [0, 1])
def test_a_call_that_fails_inside_a_group_leaves_no_group_open(
    mpirun: Command, driver: str, graph: int, tmp_path: Path
) -> None:
    """In an open group the next case's calls would be collected, and never be launched."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["sendrecv", "allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\ngate = "barrier"\n'
        f'drivers = ["{driver}"]\ncudagraph = {graph}\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_FAILS": "ncclRecv:5"})
    assert ended.code == 1, ended.err
    assert [record["status"] for record in ended.records] == ["failed", "ok"]
    assert "error 5" in ended.records[0]["reason"]


@pytest.mark.mpi
def test_list_goes_on_where_a_library_cannot_be_loaded(mpirun: Command) -> None:
    ended = finish(mpirun(1, "list", program=DOUBLE), env={"DOUBLE_WITHOUT_NCCL": "all"})
    assert ended.code == 0, ended.err
    listed = {
        line.split()[1]: line.split()[0]
        for line in ended.out.splitlines()
        if line.startswith("  ") and len(line.split()) > 1
    }
    assert (listed["nccl"], listed["mpi-staged"]) == ("no", "yes")
    assert "libnccl was not found" in ended.out
    assert "collectives" in ended.out
