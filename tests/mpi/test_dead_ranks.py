"""Ranks that die at their start: a launch ends soon, says why, and the next one follows, though a launcher may hang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from collbench.schema.store import read_run
from tests.mpi.jobs import Ended, finish, mpi_vendor

pytestmark = [pytest.mark.mpi]

#: A time-out that no test waits for.
PLAN = """
collectives = ["bcast"]
sizes = ["8"]
iters = 20
policies = ["host"]
images = ["{vendor}"]
environments = {{ {vendor} = "{environment}" }}
ranks = [2]
oversubscribe = true
launches = {launches}
timeout = "1h"
"""

#: What Python imports first. A rank stops whoever has started it, which thus notices nothing, and dies.
DIES = """
import os, signal
rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
if rank is not None and rank in os.environ["DYING_RANKS"].split(","):
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(14)
"""


def launch(folder: Path, launches: int, **environment: str) -> Ended:
    """How an experiment with two ranks ended; its run is in the folder."""
    plan = PLAN.format(vendor=mpi_vendor(), environment=sys.prefix, launches=launches)
    (folder / "plan.toml").write_text(plan)
    command = [sys.executable, "-m", "collbench", "launch", str(folder / "plan.toml"), "--out", str(folder / "run")]
    return finish(command, env=environment)


@pytest.mark.parametrize(("dying", "how"), [("0,1", "all ranks have ended"), ("1", "a rank ended with exit code 14")])
def test_a_launcher_that_hangs_is_not_waited_for(tmp_path: Path, dying: str, how: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ended = launch(tmp_path, 1, PYTHONPATH=path, DYING_RANKS=dying)
    assert ended.code == 1, ended.err
    (record,) = read_run(tmp_path / "run").records
    assert record.status == "failed"
    assert (record.reason or "").startswith(f"{how}, and mp"), record.reason
    assert "did not end within 10 s of it" in (record.reason or "")
    assert f"failed: {how}" in ended.messages[0]


@pytest.mark.one_mpi
def test_what_open_mpi_does_not_find_ends_every_launch(tmp_path: Path) -> None:
    """Its prterun ends by itself, or waits for ever: each happens in about half of the launches (5.0.11)."""
    if mpi_vendor() != "openmpi":
        pytest.skip("the parameter is Open MPI's")
    ended = launch(tmp_path, 3, OMPI_MCA_pml="nonexistent")
    assert ended.code == 1, ended.err
    reasons = [record.reason or "" for record in read_run(tmp_path / "run").records]
    assert len(reasons) == 3
    for number, reason in enumerate(reasons):
        assert reason.startswith(("all ranks have ended, and mpirun did not end", "ended with exit code ")), reason
        assert "A requested component was not found" in reason or "An error occurred in MPI_Init" in reason, reason
        same = [earlier for earlier in range(number) if reasons[earlier] == reason]
        said = f"ended as launch {same[0]} (openmpi host, 2 ranks) did" if same else "failed: "
        assert ended.messages[number].startswith(f"collbench: launch {number} (openmpi host, 2 ranks) {said}")
