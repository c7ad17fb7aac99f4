"""The plan that a launch gives to its world, under a real mpirun."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from collbench.run.expand import cases_of
from collbench.schema.plan import Plan
from collbench.schema.store import read_run
from tests.mpi.jobs import Command, finish

pytestmark = pytest.mark.mpi


def test_ranks_measure_what_is_asked_and_execute_the_rest_of_it_briefly(mpirun: Command, tmp_path: Path) -> None:
    plan = Plan(
        collectives=("allreduce", "bcast"), sizes=("8", "1K", "64K"), backends=("mpi",), iters=20, gate="barrier"
    )
    cases = [case.identity for case in cases_of(plan, "mpi", 2)]
    some = plan.of_world([cases[4], cases[1]], [cases[2]])
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(some))
    ended = finish(mpirun(2, "run", str(tmp_path / "plan.json"), "--out", str(tmp_path / "run")))
    assert ended.code == 0, ended.err
    run = read_run(tmp_path / "run")
    assert [record.case for record in run.records] == [cases[1], cases[4]]
    assert [record.samples.n for record in run.records if record.samples] == [20, 20]
