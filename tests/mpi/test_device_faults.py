"""What goes wrong on GPUs, on the double: every mistake is noticed, every fault ends with a message."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.double_jobs import DOUBLE, measure, one
from tests.mpi.jobs import Command, finish

#: What a reason says of memory: as much as was requested, what is free, and of how much.
AMOUNTS = re.compile(r"[\d.]+ (?:bytes|\w*B) .*\b[\d.]+ (?:\w*B )?of [\d.]+")


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
    assert one(ended)["check"]["wrong"] > 0 and one(ended)["seconds"] is None


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("driver", ["native", "python"])
def test_a_group_that_stays_open_is_noticed(mpirun: Command, driver: str) -> None:
    arguments = ("sendrecv", "--backend", "nccl", "--driver", driver, "-b", "64", "-e", "64", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_SPOIL="leaves groups open")
    assert ended.code == 1
    assert one(ended)["check"]["wrong"] > 0 and one(ended)["seconds"] is None


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_pair_that_does_not_agree_is_noticed(mpirun: Command) -> None:
    arguments = ("sendrecv", "--backend", "nccl", "-b", "64", "-e", "64", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_SPOIL="receives as another type")
    assert ended.code != 0
    assert "double: 16 elements were sent, and 16 are received as int8" in ended.err


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_shared_gpu_is_refused_or_marked(mpirun: Command) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_GPUS="1")
    assert ended.code == 2
    (message,) = ended.messages
    assert all(part in message for part in ("ranks 0 and 1", "GPU-0", "2 ranks and 1 GPU", "--share-gpu"))
    ended = measure(mpirun, 2, *arguments, "--share-gpu", DOUBLE_GPUS="1")
    assert one(ended)["shared_gpu"]


@pytest.mark.mpi
@pytest.mark.parametrize("unusable", ["refuse", "skip"])
def test_a_backend_that_is_not_usable(mpirun: Command, tmp_path: Path, unusable: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["mpi-cuda", "mpi-staged"]\nsizes = ["8"]\niters = 2\n'
        f'align = "barrier"\nunusable = "{unusable}"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE))
    if unusable == "refuse":
        assert re.search(r"mpi-cuda: .* without CUDA\b", ended.err), ended.err
    assert ended.code == (2 if unusable == "refuse" else 0)
    if unusable == "skip":
        assert {record["case"]["how"]["backend"]: record["status"] for record in ended.records} == {
            "mpi-staged": "ok", "mpi-cuda": "skipped",
        }  # fmt: skip
        assert all("without CUDA" in record["reason"] for record in ended.records if record["status"] == "skipped")


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["nccl", "mpi-staged"])
def test_out_of_memory_says_how_much(mpirun: Command, backend: str) -> None:
    arguments = ("allreduce", "--backend", backend, "-b", "1M", "-e", "1M", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_MEMORY=str(1 << 20))
    assert ended.code == 1
    reason = one(ended)["reason"]
    assert AMOUNTS.search(reason)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("variables", "code", "text"),
    [
        ({"DOUBLE_GPUS": "0"}, 2, "backend nccl: rank 0 on"),
        ({"DOUBLE_CANNOT_OPEN": "1"}, 2, "backend nccl: rank 1: double: the device is busy"),
        ({"DOUBLE_WITHOUT_NCCL": "1"}, 2, "backend nccl: rank 1: libnccl"),
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
@pytest.mark.parametrize("align", ["none", "barrier"])
def test_a_rank_that_hangs_inside_a_call(
    mpirun: Command, align: str, driver: str, left_with: Callable[[int], set[int]]
) -> None:
    """The other aborts its communicators. Its wait ends then, and what it waited with is freed: it must not go on."""
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "1000", "--align", align, "-T", "8s")
    command = mpirun(2, *arguments, "--driver", driver, program=DOUBLE)
    ended = finish(command, env={"DOUBLE_LOST": "hang:1:20", "DOUBLE_SAYS_ABORT": "1"})
    assert ended.code in left_with(3), ended.err
    assert "double: communicator aborted on rank 0" in ended.err
    (message,) = ended.messages
    assert "8 s in allreduce 8 B on nccl" in message


@pytest.mark.mpi
def test_a_rank_that_dies_inside_a_call(mpirun: Command) -> None:
    """mpirun may hear of it before the others do."""
    command = mpirun(2, "allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-T", "8s", program=DOUBLE)
    assert finish(command, env={"DOUBLE_LOST": "die:1:20"}).code != 0


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("more", ["registration = ['local']", "registration = ['symmetric']", "cudagraph = 1"])
def test_few_communicators_at_a_time_hold_memory(mpirun: Command, more: str, tmp_path: Path) -> None:
    """One for each pair of settings would not fit; what a case registered or captured is gone before its own is."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\nalign = "barrier"\n'
        f'algorithms = ["", "Ring", "Tree"]\nprotocols = ["", "LL"]\n{more}\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_MEMORY": str(5 << 20), "DOUBLE_COMM_MEMORY": str(1 << 20)})
    assert ended.code == 0, ended.err
    assert [record["status"] for record in ended.records] == ["ok"] * 6


@pytest.mark.mpi
def test_an_asynchronous_error_ends_a_long_case_before_its_end(
    mpirun: Command, left_with: Callable[[int], set[int]]
) -> None:
    """The watchdog asks the library while the loop is in C."""
    arguments = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "1000000", "-z", "0", "--burst", "1000")
    ended = measure(mpirun, 2, *arguments, DOUBLE_ASYNC_ERROR="remote peer gone")
    assert ended.code in left_with(3), ended.err
    (message,) = ended.messages
    assert "NCCL: remote peer gone." in message


@pytest.mark.mpi
def test_an_abort_that_hangs_keeps_nobody(mpirun: Command, left_with: Callable[[int], set[int]]) -> None:
    command = mpirun(2, "allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-T", "8s", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_LOST": "hang:1:20", "DOUBLE_ABORT_HANGS": "1"})
    assert ended.code in left_with(3), ended.err
    assert len(ended.messages) == 1


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("more", ["", "cudagraph = 1", "registration = ['local']", "registration = ['symmetric']"])
@pytest.mark.parametrize("driver", ["native", "python"])
def test_what_the_library_refuses_fails_its_case_alone(mpirun: Command, driver: str, more: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce", "bcast"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\nalign = "barrier"\n'
        f'drivers = ["{driver}"]\n{more}\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_FAILS": "ncclAllReduce:5"})
    assert ended.code == 1
    assert [record["status"] for record in ended.records] == ["failed", "ok"]
    assert re.search(r"error.*\b5\b", ended.records[0]["reason"])


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_an_algorithm_that_the_library_does_not_have(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\nalign = "barrier"\n'
        'algorithms = ["NVLS", "Ring"]\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE), env={"DOUBLE_REFUSES": "NVLS"})
    assert ended.code == 1
    assert [record["status"] for record in ended.records] == ["failed", "ok"]
    assert ended.records[0]["reason"].endswith(": double: no such algorithm")


@pytest.mark.mpi
def test_a_backend_without_its_library_is_skipped_where_the_plan_says_so(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["allreduce"]\nbackends = ["mpi-staged", "nccl"]\nsizes = ["8"]\niters = 2\n'
        'align = "barrier"\nunusable = "skip"\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", program=DOUBLE), env={"DOUBLE_WITHOUT_NCCL": "all"})
    assert ended.code == 0, ended.err
    assert [record["status"] for record in ended.records] == ["ok", "skipped"]


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("number", ["1", "2"])
def test_registered_memory_that_does_not_fit_says_how_much(mpirun: Command, number: str) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-R", number, "-b", "1M", "-e", "1M", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_MEMORY=str(1 << 20))
    assert ended.code == 1
    assert AMOUNTS.search(one(ended)["reason"])


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_graph_that_does_not_fit_on_one_rank_fails_on_all(mpirun: Command) -> None:
    arguments = ("allreduce", "--backend", "nccl", "-G", "1", "-b", "1M", "-e", "1M", "-n", "2")
    ended = measure(mpirun, 2, *arguments, DOUBLE_MEMORY=str(1 << 20))
    assert ended.code == 1
    assert AMOUNTS.search(one(ended)["reason"])


@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("graph", [0, 1])
def test_a_call_that_fails_inside_a_group_leaves_no_group_open(
    mpirun: Command, driver: str, graph: int, tmp_path: Path
) -> None:
    """In an open group the next case's calls would be collected, and never be launched."""
    path = tmp_path / "plan.toml"
    path.write_text(
        'collectives = ["sendrecv", "allreduce"]\nbackends = ["nccl"]\nsizes = ["8"]\niters = 2\nalign = "barrier"\n'
        f'drivers = ["{driver}"]\ncudagraph = {graph}\n'
    )
    command = mpirun(2, "run", str(path), "--style", "json", program=DOUBLE)
    ended = finish(command, env={"DOUBLE_FAILS": "ncclRecv:5"})
    assert ended.code == 1, ended.err
    assert [record["status"] for record in ended.records] == ["failed", "ok"]
    assert re.search(r"error.*\b5\b", ended.records[0]["reason"])


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_list_goes_on_where_a_library_cannot_be_loaded(mpirun: Command) -> None:
    ended = finish(mpirun(1, "list", program=DOUBLE), env={"DOUBLE_WITHOUT_NCCL": "all"})
    assert ended.code == 0, ended.err
    listed = {
        line.split()[1]: line.split()[0]
        for line in ended.out.splitlines()
        if line.startswith("  ") and len(line.split()) > 1
    }
    assert (listed["nccl"], listed["mpi-staged"]) == ("no", "yes")
    assert "libnccl" in ended.out
    assert "collectives" in ended.out
