"""A simulated GPU beneath real MPI: every case, staging, memory, torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench import collectives
from collbench.bindings.gpu.nccl import DATATYPE, UNKNOWN_CHOICE
from collbench.schema.manifest import read_manifest
from tests.mpi.double_jobs import DOUBLE, measure, one, run
from tests.mpi.jobs import Command, Ended, finish
from tests.runs import read_run

ALL, FEW = '["all"]', '["int8", "float32"]'


def plan(tmp_path: Path, backend: str, more: str) -> str:
    path = tmp_path / "device.toml"
    path.write_text(
        f'collectives = {list(collectives.names())}\nbackends = ["{backend}"]\niters = 1\nwarmup = 0\n'
        f'align = "barrier"\ndrivers = ["native", "python"]\n{more}\n'
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
NO_IN_PLACE = {f"NCCL's {calls} no in-place form" for calls in ("sends and receives have", "all-to-all has")}
NO_AVERAGE = {f"an average of {dtype} cannot be checked: a correct one may be off by a quarter"
              for dtype in ("fp8_e4m3", "fp8_e5m2")}  # fmt: skip
NO_SUCH = f"NCCL has no {{}} (it has {', '.join(DATATYPE)})"


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_case_of_nccl(mpirun: Command, tmp_path: Path, ranks: int) -> None:
    path = plan(tmp_path, "nccl", breadth(ranks))
    version = "2.27.3" if ranks == 2 else "2.28.9"  # from which on alltoall, gather and scatter are functions
    records = run(mpirun(ranks, "run", path, program=DOUBLE), tmp_path, DOUBLE_NCCL_VERSION=version)
    assert reasons(records) == (
        {"barrier has no NCCL form"} | (NO_AVERAGE if ranks == 2 else NO_IN_PLACE) | (SERVER if ranks == 1 else set())
    )


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize(("version", "function"), [("2.27.3", "ncclSend"), ("2.28.9", "ncclAlltoAll")])
def test_the_record_says_which_of_two_functions_it_was(mpirun: Command, version: str, function: str) -> None:
    arguments = ("alltoall", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2")
    record = one(measure(mpirun, 2, *arguments, DOUBLE_NCCL_VERSION=version))
    assert record["status"] == "ok"
    assert [note for note in record["notes"] if function in note]


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("has", ["ncclResetDebugInitInternal", "none"])
def test_the_record_says_why_nothing_is_known_of_the_choice(mpirun: Command, has: str) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2")
    record = one(measure(mpirun, 2, *arguments, DOUBLE_RESETS=has))
    assert record["status"] == "ok"
    assert (record["algorithm"] is None, UNKNOWN_CHOICE in record["notes"]) == ((has == "none"),) * 2


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_the_manifest_has_the_settings_of_nccl(mpirun: Command, tmp_path: Path) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2", "--out", str(tmp_path / "run"))
    ended = finish(mpirun(2, *arguments, program=DOUBLE), env={"DOUBLE_NCCL_VERSION": "2.30.7"})
    assert ended.code == 0, ended.err
    settings = {library.name: library.settings for library in read_manifest(tmp_path / "run").libraries}
    assert settings == dict.fromkeys(settings, ()) | {"NCCL": ("NCCL_SET_THREAD_NAME=FALSE",)}


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
    assert "Duplicate GPU" in one(refused)["reason"]


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
@pytest.mark.parametrize(("number", "registration"), [("1", "local"), ("2", "symmetric")])
@pytest.mark.parametrize("more", [(), ("--in-place",), ("-G", "1")])
def test_registered_buffers(mpirun: Command, number: str, registration: str, more: tuple[str, ...]) -> None:
    flags = ("-R", number, *more, "-b", "64", "-e", "64", "-n", "2")
    record = one(measure(mpirun, 2, "allreduce", "--backend", "nccl", *flags))
    assert record["status"] == "ok"
    assert record["case"]["how"]["registration"] == registration


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize(
    ("collective", "version"), [("gather", "2.30.1"), ("ps_bcast", "2.30.1"), ("allreduce", "2.26.5")]
)
def test_windows_that_cannot_be(mpirun: Command, collective: str, version: str) -> None:
    """Of several sizes, of workers alone, or of a library that has none."""
    flags = ("--registration", "2", "-b", "64", "-e", "64", "-n", "2")
    record = one(measure(mpirun, 2, collective, "--backend", "nccl", *flags, DOUBLE_NCCL_VERSION=version))
    assert record["status"] == "skipped"


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
    ended = finish(mpirun(2, "bcast", "--backend", "nccl", "-e", "8", "-n", "2", "--align", "barrier", program=DOUBLE))
    assert "# rank 0: GPU-0 (Double, 0000:00:00.0)\n# rank 1: GPU-1 (Double, 0000:00:00.0)\n" in ended.out
    assert "say nothing" not in ended.out


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_plan_for_more_ranks_than_gpus_measures_what_it_can(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["ps_bcast", "allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\nalign = "barrier"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE), env={"DOUBLE_GPUS": "1"})
    assert ended.code == 0
    assert [record["status"] for record in ended.records] == ["ok", "skipped"]
    assert all(part in ended.records[1]["reason"] for part in ("ranks 0 and 1", "(GPU-0)"))


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_algorithms_and_protocols_are_told_to_the_library(mpirun: Command, tmp_path: Path) -> None:
    """Each pair gets a communicator of its own, made with these settings; they do not outlive it."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["nccl"]\nsizes = ["8", "64"]\niters = 2\nalign = "barrier"\n'
        'algorithms = ["", "Ring"]\nprotocols = ["", "LL128"]\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_SAYS_SETTINGS": "1", "NCCL_ALGO": "Tree"})
    said = [line for line in ended.err.splitlines() if line.startswith("double: 0: ")]
    settings = ("Tree None", "Tree LL128", "Ring None", "Ring LL128")
    assert said == [f"double: 0: {one} default" for one in settings]
    asked = [record["case"]["how"] for record in ended.records[::2]]
    assert [(how.get("algorithm"), how.get("protocol")) for how in asked] == [
        (None, None), (None, "LL128"), ("Ring", None), ("Ring", "LL128"),
    ]  # fmt: skip


# Memory that runs out, on the double ----------------------------------------------------------------------------------

DRIVERS = pytest.mark.parametrize("driver", ["native", "python"])
MIB = 1 << 20


def job(mpirun: Command, where: Path, plan: dict[str, str], **variables: str) -> Ended:
    """Two ranks with a plan; the run is kept in `where`/run."""
    usual = {"collectives": '["allreduce"]', "sizes": '["8"]', "iters": "2", "align": '"barrier"'}
    path = where / "plan.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in (usual | plan).items()))
    flags = ("-T", "8s", "--out", str(where / "run"))
    return finish(mpirun(2, "run", str(path), *flags, program=DOUBLE), env=variables)


def kept(where: Path) -> list[tuple[str, str, str | None]]:
    """Backend, status and reason of the records on disk."""
    records = read_run(where / "run").records
    return [(str(record.case.how["backend"]), record.status, record.reason) for record in records]


@pytest.mark.mpi
@DRIVERS
@pytest.mark.parametrize("backend", ["nccl", "mpi-staged"])
def test_a_case_that_does_not_fit_on_one_rank_fails_alone(
    mpirun: Command, tmp_path: Path, backend: str, driver: str
) -> None:
    plan = {"backends": f'["{backend}"]', "drivers": f'["{driver}"]', "sizes": '["8", "1M", "64"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_FULL=f"1:{MIB}")
    assert ended.code == 1, ended.err
    assert [status for _, status, _ in kept(tmp_path)] == ["ok", "failed", "ok"]
    reason = kept(tmp_path)[1][2] or ""
    assert reason.startswith("rank 1: ") and "Double GPU-1: 1.00 MiB " in reason


@pytest.mark.mpi
def test_what_cannot_be_page_locked_fails_alone(mpirun: Command, tmp_path: Path) -> None:
    plan = {"backends": '["mpi-staged"]', "staging": '["pinned", "pageable"]', "sizes": '["1M"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_PINNED=str(MIB))
    assert ended.code == 1, ended.err
    found = sorted(kept(tmp_path), key=lambda record: record[1])
    assert [status for _, status, _ in found] == ["failed", "ok"]
    assert f"{MIB} bytes" in (found[0][2] or "") and "page-locked" in (found[0][2] or "")


@pytest.mark.mpi
@DRIVERS
@pytest.mark.parametrize("when", ["COMM", "CONNECT"])
def test_memory_that_ends_inside_the_library_on_all_ranks_fails_the_case(
    mpirun: Command, tmp_path: Path, when: str, driver: str
) -> None:
    """Its code says no more than that CUDA failed; its log says why. The next case begins with a new communicator."""
    plan = {"backends": '["nccl", "mpi-staged"]', "drivers": f'["{driver}"]', "sizes": '["8", "64"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_MEMORY=str(MIB), **{f"DOUBLE_{when}_MEMORY": str(2 * MIB)})
    assert ended.code == 1, ended.err
    records = kept(tmp_path)
    assert [status for _, status, _ in records] == ["failed", "failed", "ok", "ok"]
    for _, _, reason in records[:2]:
        assert re.search(r"error.*\b1\b", reason or "") and "Cuda failure 2 'out of memory'" in (reason or "")


@pytest.mark.mpi
@DRIVERS
@pytest.mark.one_mpi
def test_a_case_that_fits_follows_one_whose_first_call_did_not(mpirun: Command, tmp_path: Path, driver: str) -> None:
    """The buffers of the large one leave no room for what NCCL takes when it connects."""
    plan = {"backends": '["nccl"]', "drivers": f'["{driver}"]', "sizes": '["3M", "8"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_MEMORY=str(7 * MIB), DOUBLE_CONNECT_MEMORY=str(2 * MIB))
    assert ended.code == 1, ended.err
    assert [status for _, status, _ in kept(tmp_path)] == ["failed", "ok"]


@pytest.mark.mpi
@DRIVERS
@pytest.mark.parametrize(
    ("when", "doing"),
    [("COMM", "trying allreduce on nccl with one element: no communicator"), ("CONNECT", "8 B on nccl: checking: ")],
)
def test_memory_that_ends_inside_the_library_on_one_rank_ends_the_job_with_the_reason(
    mpirun: Command, tmp_path: Path, when: str, doing: str, driver: str, left_with: Callable[[int], set[int]]
) -> None:
    """The other rank waits for it inside the call, and cannot be told."""
    plan = {"backends": '["mpi-staged", "nccl"]', "drivers": f'["{driver}"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_FULL=f"1:{MIB}", **{f"DOUBLE_{when}_MEMORY": str(2 * MIB)})
    assert ended.code in left_with(1), ended.err
    (message,) = ended.messages
    assert message.startswith("collbench: rank 1: ") and doing in message
    assert "Cuda failure 2 'out of memory'" in message
    assert kept(tmp_path) == [("mpi-staged", "ok", None)]


@pytest.mark.mpi
@DRIVERS
def test_memory_that_ends_between_two_samples_ends_the_job_with_the_case(
    mpirun: Command, tmp_path: Path, driver: str, left_with: Callable[[int], set[int]]
) -> None:
    plan = {"backends": '["nccl"]', "drivers": f'["{driver}"]', "sizes": '["8", "64"]', "iters": "100"}
    ended = job(mpirun, tmp_path, plan | {"warmup": "0"}, DOUBLE_FAILS="ncclAllReduce:1:1:200")
    assert ended.code in left_with(1), ended.err
    (message,) = ended.messages
    assert message.startswith("collbench: rank 1: allreduce 64 B on nccl: ") and re.search(r"error.*\b1\b", message)
    assert str(tmp_path / "run") in message
    assert kept(tmp_path) == [("nccl", "ok", None)]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_backend_leaves_its_memory_to_the_next(mpirun: Command, tmp_path: Path) -> None:
    """The communicator and the buffers do not fit together; without the communicator they do."""
    plan = {"backends": '["nccl", "mpi-staged"]', "sizes": '["3M"]'}
    variables = {"DOUBLE_MEMORY": str(8 * MIB), "DOUBLE_COMM_MEMORY": str(4 * MIB)}
    ended = job(mpirun, tmp_path, plan, **variables)
    assert ended.code == 1, ended.err
    assert [(backend, status) for backend, status, _ in kept(tmp_path)] == [("nccl", "failed"), ("mpi-staged", "ok")]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_warning_about_another_case_is_no_reason(mpirun: Command, tmp_path: Path) -> None:
    """Of two algorithms the first one has no room, and the second one is refused for another reason."""
    plan = {"backends": '["nccl"]', "algorithms": '["Ring", "Tree"]'}
    variables = {"DOUBLE_MEMORY": str(MIB), "DOUBLE_COMM_MEMORY": str(2 * MIB), "DOUBLE_REFUSES": "Tree"}
    assert job(mpirun, tmp_path, plan, **variables).code == 1
    reasons = sorted(reason or "" for _, _, reason in kept(tmp_path))
    assert ["Cuda failure 2" in reason for reason in reasons] == [True, False], reasons
    assert reasons[1].endswith(": double: no such algorithm")


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_at_the_end_no_graph_uses_a_communicator(mpirun: Command) -> None:
    """It would be waited for when the communicator is freed."""
    arguments = ("allreduce", "--backend", "nccl", "-G", "1", "-b", "8", "-e", "8", "-n", "2")
    assert one(measure(mpirun, 2, *arguments))["status"] == "ok"


# torch-nccl with gloo and host memory in the place of NCCL and the GPU ------------------------------------------------

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
        'align = "barrier"\n'
        f'dtypes = ["int8", "bfloat16", "uint64"]\nsizes = {sizes}\nroots = {sorted({0, ranks - 1})}\n'
        'in_place = [false, true]\nstaging = ["pinned", "pageable"]\n'
    )
    records = run(mpirun(ranks, "run", str(path), program=TORCH), tmp_path)
    skipped = {record["reason"] for record in records if record["status"] == "skipped"}
    assert all("uint64" in reason for reason in skipped if "in-place" not in reason)
    measured = [record for record in records if record["status"] == "ok"]
    assert {record["case"]["workload"] for record in measured} == set(collectives.names())
    assert all(record["check"]["wrong"] in (0, None) and record["driver"] == "python" for record in measured)
    served = [record for record in measured if record["case"]["workload"] == "ps_gather"]
    assert all(list(record["legs"]) == ["gpus", "server link"] for record in served)


@pytest.mark.mpi
@pytest.mark.torch
def test_torch_nccl_streams(mpirun: Command, torchrun: object) -> None:
    arguments = (
        "allreduce", "--backend", "torch-nccl", "-z", "0", "-b", "64", "-e", "64", "-n", "4", "--align", "barrier",
    )  # fmt: skip
    record = one(finish(mpirun(2, *arguments, "--style", "json", program=TORCH)))
    assert (record["status"], record["cadence"], record["burst"]) == ("ok", "streaming", 20)
    assert record["device"]["p50"] > 0
    assert record["ranks"]["gpu"] == ["GPU-0", "GPU-1"]


@pytest.mark.mpi
@pytest.mark.torch
def test_torch_nccl_with_a_server_and_one_gpu(mpirun: Command, torchrun: object) -> None:
    arguments = (
        "ps_bcast", "--backend", "torch-nccl", "-b", "64", "-e", "64", "-n", "4", "--align", "barrier", "--style",
        "json",
    )  # fmt: skip
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
        'align = "barrier"\nunusable = "skip"\n'
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
    arguments = ("allreduce", "--backend", "torch-nccl", "-b", "8", "-e", "8", "-n", "2", "--align", "barrier")
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
        'align = "barrier"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=TORCH), env={"DOUBLE_MEMORY": str(1 << 20)})
    assert ended.code == 1, ended.err
    assert [record["status"] for record in ended.records] == ["ok", "failed", "ok"]
    reason = ended.records[1]["reason"]
    assert reason.startswith("rank 0: ") and "Tried to allocate 4194304 bytes" in reason


@pytest.mark.mpi
@pytest.mark.torch
def test_what_torch_cannot_page_lock_fails_alone(mpirun: Command, torchrun: object, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["ps_bcast"]\nbackends = ["torch-nccl"]\nsizes = ["1M"]\niters = 2\nalign = "barrier"\n'
        'staging = ["pinned", "pageable"]\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=TORCH), env={"DOUBLE_PINNED": "4096"})
    assert ended.code == 1, ended.err
    by_staging = {record["case"]["how"].get("staging"): record for record in ended.records}
    assert by_staging["pageable"]["status"] == "ok"
    reason = by_staging["pinned"]["reason"]
    assert "1.00 MiB" in reason and "page-locked" in reason
