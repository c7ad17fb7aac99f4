"""Memory that runs out, on the double: in a case, in the library, on one rank or on all; one message, nothing lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.schema.store import read_run
from tests.mpi.double_jobs import DOUBLE, measure, one
from tests.mpi.jobs import Command, Ended, finish

pytestmark = pytest.mark.mpi
DRIVERS = pytest.mark.parametrize("driver", ["native", "python"])
MIB = 1 << 20


def job(mpirun: Command, where: Path, plan: dict[str, str], **variables: str) -> Ended:
    """Two ranks with a plan; the run is kept in `where`/run."""
    usual = {"collectives": '["allreduce"]', "sizes": '["8"]', "iters": "2", "gate": '"barrier"'}
    path = where / "plan.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in (usual | plan).items()))
    flags = ("-T", "8s", "--out", str(where / "run"))
    return finish(mpirun(2, "run", str(path), *flags, program=DOUBLE), env=variables)


def kept(where: Path) -> list[tuple[str, str, str | None]]:
    """Backend, status and reason of the records on disk."""
    records = read_run(where / "run").records
    return [(str(record.case.how["backend"]), record.status, record.reason) for record in records]


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
    assert reason.startswith("rank 1: out of memory (Double: 1048576 bytes are asked for, ")


def test_what_cannot_be_page_locked_fails_alone(mpirun: Command, tmp_path: Path) -> None:
    plan = {"backends": '["mpi-staged"]', "staging": '["pinned", "pageable"]', "sizes": '["1M"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_PINNED=str(MIB))
    assert ended.code == 1, ended.err
    found = sorted(kept(tmp_path), key=lambda record: record[1])
    assert [status for _, status, _ in found] == ["failed", "ok"]
    assert "out of memory (1048576 bytes of host memory cannot be page-locked)" in (found[0][2] or "")


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


@DRIVERS
@pytest.mark.one_mpi
def test_a_case_that_fits_follows_one_whose_first_call_did_not(mpirun: Command, tmp_path: Path, driver: str) -> None:
    """The buffers of the large one leave no room for what NCCL takes when it connects."""
    plan = {"backends": '["nccl"]', "drivers": f'["{driver}"]', "sizes": '["3M", "8"]'}
    ended = job(mpirun, tmp_path, plan, DOUBLE_MEMORY=str(7 * MIB), DOUBLE_CONNECT_MEMORY=str(2 * MIB))
    assert ended.code == 1, ended.err
    assert [status for _, status, _ in kept(tmp_path)] == ["failed", "ok"]


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
    assert "Cuda failure 2 'out of memory'" in message and "The other ranks wait in this call" in message
    assert kept(tmp_path) == [("mpi-staged", "ok", None)]


@DRIVERS
def test_memory_that_ends_between_two_samples_ends_the_job_with_the_case(
    mpirun: Command, tmp_path: Path, driver: str, left_with: Callable[[int], set[int]]
) -> None:
    plan = {"backends": '["nccl"]', "drivers": f'["{driver}"]', "sizes": '["8", "64"]', "iters": "100"}
    ended = job(mpirun, tmp_path, plan | {"warmup": "0"}, DOUBLE_FAILS="ncclAllReduce:1:1:200")
    assert ended.code in left_with(1), ended.err
    (message,) = ended.messages
    assert message.startswith("collbench: rank 1: allreduce 64 B on nccl: ") and re.search(r"error.*\b1\b", message)
    assert message.endswith(f"What was measured before is in {tmp_path / 'run'}.")
    assert kept(tmp_path) == [("nccl", "ok", None)]


@pytest.mark.one_mpi
def test_a_backend_leaves_its_memory_to_the_next(mpirun: Command, tmp_path: Path) -> None:
    """The communicator and the buffers do not fit together; without the communicator they do."""
    plan = {"backends": '["nccl", "mpi-staged"]', "sizes": '["3M"]'}
    variables = {"DOUBLE_MEMORY": str(8 * MIB), "DOUBLE_COMM_MEMORY": str(4 * MIB)}
    ended = job(mpirun, tmp_path, plan, **variables)
    assert ended.code == 1, ended.err
    assert [(backend, status) for backend, status, _ in kept(tmp_path)] == [("nccl", "failed"), ("mpi-staged", "ok")]


@pytest.mark.one_mpi
def test_a_warning_about_another_case_is_no_reason(mpirun: Command, tmp_path: Path) -> None:
    """Of two algorithms the first one has no room, and the second one is refused for another reason."""
    plan = {"backends": '["nccl"]', "algorithms": '["Ring", "Tree"]'}
    variables = {"DOUBLE_MEMORY": str(MIB), "DOUBLE_COMM_MEMORY": str(2 * MIB), "DOUBLE_REFUSES": "Tree"}
    assert job(mpirun, tmp_path, plan, **variables).code == 1
    reasons = sorted(reason or "" for _, _, reason in kept(tmp_path))
    assert ["out of memory" in reason for reason in reasons] == [True, False], reasons
    assert reasons[1].endswith("no communicator of 2 ranks: double: no such algorithm")


@pytest.mark.one_mpi
def test_at_the_end_no_graph_uses_a_communicator(mpirun: Command) -> None:
    """It would be waited for when the communicator is freed."""
    arguments = ("allreduce", "--backend", "nccl", "-G", "1", "-b", "8", "-e", "8", "-n", "2")
    assert one(measure(mpirun, 2, *arguments))["status"] == "ok"
