"""A world of real ranks: what rank 0 prints, drivers, alignment, the control plane, plans, the native form of calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import collbench
from collbench import collectives
from collbench.run.cases import cases_of
from collbench.schema.axes import THREAD_LEVELS
from collbench.schema.case import ALIGNMENTS
from collbench.schema.plan import Plan
from collbench.timing.loop import native_loop
from tests.mpi.jobs import Command, environment, finish
from tests.processes import LIMIT
from tests.runs import read_run


@pytest.mark.mpi
def test_rank_0_prints_once_and_stdout_is_clean(mpirun: Command) -> None:
    ended = finish(mpirun(2, "allreduce", "-e", "64", "-n", "20", "--style", "csv"))
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["status", "ok", "ok", "ok", "ok"]
    assert not ended.messages


@pytest.mark.mpi
def test_help_and_version_appear_once(mpirun: Command) -> None:
    assert finish(mpirun(2, "--help")).out.count("Usage:") == 1
    assert finish(mpirun(2, "--version")).out.count("collbench") == 1


@pytest.mark.mpi
def test_a_wrong_request_gives_one_message_and_code_2(mpirun: Command) -> None:
    ended = finish(mpirun(2, "allreduce", "-d", "float33"))
    assert ended.code == 2
    assert len(ended.messages) == 1
    assert "float33" in ended.messages[0] and "float32?" in ended.messages[0]


@pytest.mark.mpi
def test_too_much_memory_is_refused_before_it_is_allocated(mpirun: Command) -> None:
    ended = finish(mpirun(2, "allreduce", "-b", "4T", "-e", "4T"))
    assert ended.code == 2
    (message,) = ended.messages
    assert "16.00 TiB" in message


@pytest.mark.mpi
@pytest.mark.parametrize("level", THREAD_LEVELS)
def test_thread_level_is_requested_and_what_was_granted_is_recorded(
    mpirun: Command, level: str, tmp_path: Path
) -> None:
    ended = finish(mpirun(2, "bcast", "-e", "8", "-n", "5", "--thread-level", level, "--out", str(tmp_path / "run")))
    assert ended.code == 0, ended.err
    run = read_run(tmp_path / "run")
    assert run.manifest.thread_level["requested"] == level
    assert run.manifest.thread_level["granted"] in THREAD_LEVELS
    assert all(record.case["thread_level"] == level for record in run.records)


@pytest.mark.mpi
def test_the_native_loop_is_built_here() -> None:
    assert native_loop() is not None, "the test environment needs a C compiler and Python.h"


@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_driver_and_alignment_are_what_was_asked_for(mpirun: Command, align: str, driver: str) -> None:
    ended = finish(
        mpirun(2, "allreduce", "-e", "8", "-n", "40", "--align", align, "--driver", driver, "--style", "json")
    )
    (record,) = ended.records
    assert (record["driver"], record["align"], record["clock"]) == (driver, align, "common")
    if record["status"] == "failed":  # a crowded machine may make every sample late; then it must say so
        assert align == "roundtime"
        assert "late" in record["reason"]
        pytest.skip(f"nothing was measured on this crowded machine: {record['reason']}")
    assert record["samples"]["n"] == 40
    assert len(record["ranks"]["p50"]) == 2
    if align != "roundtime":
        assert record["samples"]["invalid"] == 0


@pytest.mark.mpi
def test_a_run_on_disk_is_whole_and_shows_without_mpi(mpirun: Command, tmp_path: Path) -> None:
    where = tmp_path / "run"
    ended = finish(mpirun(2, "gather", "-b", "64", "-e", "256", "-n", "30", "--out", str(where)))
    assert ended.code == 0, ended.err
    run = read_run(where)
    assert [record.case["size"] for record in run.records] == [64, 128, 256]
    for record in run.records:
        samples = run.samples(record)
        assert samples is not None
        assert samples.shape == (2, 30)
    assert run.manifest.libraries[0].sha256 is not None
    assert run.manifest.hosts[0].ranks == (0, 1)
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "collbench", "show", str(where)],
        capture_output=True, text=True, timeout=LIMIT, env=environment(), check=True,
    )  # fmt: skip
    assert shown.stdout == ended.out
    assert not any(name in shown.stderr for name in ("mpi4py", "| torch", "collbench.backends.mpi"))


@pytest.mark.mpi
def test_more_ranks_than_cores_is_said(mpirun: Command) -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    ended = finish(mpirun(ranks, "allreduce", "-e", "8", "-n", "10", "--style", "json"))
    (record,) = ended.records
    assert record["oversubscribed"] is True
    assert record["align"] == "barrier"


@pytest.mark.mpi
def test_a_foreign_launcher_is_refused_and_not_measured(vendor: str) -> None:
    """As if the other MPI's mpiexec had started four of us: each would be a world of size 1."""
    foreign = {"openmpi": ("PMI_RANK", "PMI_SIZE"), "mpich": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}[vendor]
    for rank in range(2):
        env = {foreign[0]: str(rank), foreign[1]: "4"}
        ended = finish([sys.executable, "-m", "collbench", "allreduce", "-e", "8"], env=env)
        assert ended.code == 2
        assert ended.out == ""
        assert len(ended.messages) == (1 if rank == 0 else 0)
        if rank == 0:
            assert re.search(r"\b4 .*\b1\b", ended.messages[0])


@pytest.mark.mpi
def test_the_other_mpirun_is_refused(mpirun: Command) -> None:
    other = os.environ.get("COLLBENCH_OTHER_MPIRUN")
    if not other:
        pytest.skip("COLLBENCH_OTHER_MPIRUN does not name the mpirun of the other MPI")
    ended = finish([other, "-n", "2", sys.executable, "-m", "collbench", "allreduce", "-e", "8"])
    assert ended.code == 2
    assert len(ended.messages) == 1
    assert re.search(r"\b2 .*\b1\b", ended.messages[0])


@pytest.mark.mpi
def test_ranks_with_different_requests_are_refused(vendor: str, mpirun: Command) -> None:
    same = mpirun(1, "allreduce", "-e", "8")
    ended = finish([*same, ":", "-n", "1", sys.executable, "-m", "collbench", "allreduce", "-e", "64"])
    assert ended.code == 2
    assert len(ended.messages) == 1
    assert "different requests" in ended.messages[0]


#: collbench of another version.
OTHER = "import collbench; collbench.__version__ = '0.0.1'; from collbench.cli import main; main()"


@pytest.mark.mpi
def test_a_rank_with_another_collbench_is_refused(mpirun: Command) -> None:
    same = mpirun(1, "allreduce", "-e", "8")
    ended = finish([*same, ":", "-n", "1", sys.executable, "-c", OTHER, "allreduce", "-e", "8"])
    assert ended.code == 2
    assert len(ended.messages) == 1
    assert f"rank 0 has collbench {collbench.__version__}, rank 1 has 0.0.1" in ended.messages[0]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("allreduce", "-e", "8", "--no-such-flag"), "No such option"), (("run", "nowhere.toml"), "plan nowhere.toml")],
)
def test_an_error_of_one_rank_alone_is_said_by_it(
    vendor: str, mpirun: Command, arguments: tuple[str, ...], said: str
) -> None:
    same = mpirun(1, "allreduce", "-e", "8", "-T", "12")
    ended = finish([*same, ":", "-n", "1", sys.executable, "-m", "collbench", *arguments])
    first, *others = ended.messages
    assert first.startswith("collbench: rank 1: ")
    assert said in first
    if vendor == "openmpi":
        assert (ended.code, others) == (2, [])
    else:  # MPICH's mpiexec does not end the ranks that wait for one that never came
        assert ended.code == 3
        assert " 12 s " in others[0]


@pytest.mark.mpi
def test_a_plan_measures_many_cases_in_one_world(mpirun: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'title = "two"\ncollectives = ["bcast", "all_reduce"]\ndrivers = ["native", "python"]\n'
        'sizes = ["8", "1K"]\niters = 10\n'
    )
    ended = finish(mpirun(2, "run", str(path), "--style", "json", "-J", str(tmp_path / "copy.json")))
    assert ended.code == 0, ended.err
    seen = [(r["case"]["workload"], r["case"]["how"]["driver"], r["case"]["what"]["size"]) for r in ended.records]
    assert len(seen) == len(set(seen)) == 8
    assert json.loads((tmp_path / "copy.json").read_text()) == json.loads(ended.out)


@pytest.mark.mpi
def test_demo_is_real_under_mpirun(mpirun: Command) -> None:
    ended = finish(mpirun(2, "demo"))
    assert ended.code == 0, ended.err
    assert "SIMULATED" not in ended.out
    assert ended.out.count("allreduce sum float32") == 2


@pytest.mark.mpi
def test_sizes_are_rounded_as_nccl_tests_does_and_shown(mpirun: Command) -> None:
    ended = finish(mpirun(3, "allgather", "-b", "1000", "-e", "1000", "-n", "5", "--style", "nccl-tests"))
    assert ended.code == 0, ended.err
    (row,) = [line for line in ended.out.splitlines() if not line.startswith("#")]
    # 1000 B are 250 floats; 250 // 3 = 83, down to a multiple of 16 B: 80 floats a rank, 960 B together
    assert row.split()[:2] == ["960", "80"]


# The plan that a launch gives to its world, under a real mpirun -------------------------------------------------------


@pytest.mark.mpi
def test_ranks_measure_what_is_asked_and_execute_the_rest_of_it_briefly(mpirun: Command, tmp_path: Path) -> None:
    plan = Plan(
        collectives=("allreduce", "bcast"), sizes=("8", "1K", "64K"), backends=("mpi",), iters=20, align="barrier"
    )
    cases = [case.identity for case in cases_of(plan, "mpi", 2)]
    some = plan.of_world([cases[4], cases[1]], [cases[2]])
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(some.document))
    ended = finish(mpirun(2, "run", str(tmp_path / "plan.json"), "--out", str(tmp_path / "run")))
    assert ended.code == 0, ended.err
    run = read_run(tmp_path / "run")
    assert [record.case for record in run.records] == [cases[1], cases[4]]
    assert [record.samples.n for record in run.records if record.samples] == [20, 20]


# By what ranks agree, on real MPI and gloo ----------------------------------------------------------------------------

PROGRAM = Path(__file__).with_name("control_plane.py")
LARGE = 2**62 + 1


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["mpi", pytest.param("torch-gloo", marks=pytest.mark.torch)])
def test_every_rank_finds_the_same(mpirun: Command, request: pytest.FixtureRequest, backend: str) -> None:
    if backend == "torch-gloo":
        request.getfixturevalue("torchrun")  # says where torch is missing
    ended = finish(mpirun(3, backend, program=(str(PROGRAM),)))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "extremes": [[0, -2, LARGE - 2], [2, 0, LARGE]],
        "total": [3, 3 * (LARGE // 4), -3],
        "many": [49_999, 50_001, 3],
        "empty": [[], []],
        "told": ["of 0", "of 1", "of 2"],
    }


# The native call is what is checked -----------------------------------------------------------------------------------

WRONG = Path(__file__).with_name("wrong_c.py")

#: What a kind of `wrong_c.py` can spoil.
SPOILT = {
    "function": {"allreduce", "barrier"},
    "op": {name for name in collectives.names() if collectives.get(name).reduces},
    "count": set(collectives.names()) - {"barrier"},
}


def plan(where: Path, names: set[str], driver: str) -> str:
    path = where / "plan.toml"
    path.write_text(
        f'collectives = {sorted(names)}\ndrivers = ["{driver}"]\nsizes = ["64"]\niters = 1\nwarmup = 0\n'
        'dtypes = ["int32"]\nalign = "barrier"\n'
    )
    return str(path)


def spoilt(mpirun: Command, folder: Path, kind: str, driver: str) -> tuple[int, list[Any]]:
    """Exit code and records of collectives whose C form is wrong."""
    path = plan(folder, SPOILT[kind], driver)
    ended = finish(mpirun(2, "run", path, "--style", "json", program=(str(WRONG), kind)))
    assert {record["case"]["workload"] for record in ended.records} == SPOILT[kind]
    return ended.code, ended.records


@pytest.mark.mpi
@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_a_wrong_c_form_is_not_that_of_python(mpirun: Command, tmp_path: Path, kind: str) -> None:
    _, records = spoilt(mpirun, tmp_path, kind, "python")
    assert {record["status"] for record in records} == {"ok"}


@pytest.mark.mpi
@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_a_wrong_c_form(mpirun: Command, tmp_path: Path, kind: str) -> None:
    code, records = spoilt(mpirun, tmp_path, kind, "native")
    assert code == 1
    for record in records:
        assert record["status"] == "failed"
        assert record["check"]["wrong"] > 0 and record["seconds"] is None


@pytest.mark.mpi
def test_a_call_that_the_library_refuses(mpirun: Command, tmp_path: Path) -> None:
    path = plan(tmp_path, {"bcast"}, "native")
    ended = finish(mpirun(2, "run", path, program=(str(WRONG), "refused")))
    assert ended.code == 1
    (message,) = ended.messages
    assert "bcast 64 B on mpi: " in message
    assert "count" in message.lower()  # the library's own words
