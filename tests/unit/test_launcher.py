from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.processes import LIMIT

from collbench.machine.launcher import Launcher, detect

OPENMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
SLURM = {"SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "3"}


@pytest.mark.parametrize(
    ("environ", "expected", "title"),
    [
        ({}, Launcher("none", 0, 1, 0), "no launcher"),
        ({"PATH": "/bin"}, Launcher("none", 0, 1, 0), "no launcher"),
        (OPENMPI, Launcher("openmpi", 3, 8, 1), "Open MPI's mpirun"),
        (MPICH, Launcher("mpich", 2, 4, 2), "MPICH's mpiexec"),
        (TORCHRUN, Launcher("torchrun", 5, 6, 1), "torchrun"),
        (SLURM, Launcher("slurm", 7, 16, 3), "srun"),
    ],
)
def test_each_launcher_by_its_variables(environ: dict[str, str], expected: Launcher, title: str) -> None:
    assert detect(environ) == expected
    assert detect(environ).title == title


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        (SLURM | OPENMPI, "openmpi"),
        (SLURM | MPICH, "mpich"),
        (SLURM | TORCHRUN, "torchrun"),
        (MPICH | TORCHRUN, "torchrun"),
    ],
)
def test_the_innermost_launcher_counts(environ: dict[str, str], kind: str) -> None:
    assert detect(environ).kind == kind


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "0"},
        {"OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_RANK": "x", "PMI_SIZE": "2"},
        {"SLURM_PROCID": "0", "SLURM_JOB_ID": "12"},
    ],
)
def test_half_a_launcher_is_none(environ: dict[str, str]) -> None:
    assert detect(environ) == Launcher("none")


def test_a_local_rank_may_be_missing() -> None:
    assert detect({"PMI_RANK": "1", "PMI_SIZE": "2"}) == Launcher("mpich", 1, 2, 0)


@pytest.mark.parametrize(
    ("variables", "lives"), [({}, False), ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True), (OPENMPI, False)]
)
def test_rank_0_is_a_process_of_the_same_launcher(variables: dict[str, str], lives: bool) -> None:
    """Other children of our parent, a service for one, were started by no launcher at all."""
    asks = "from collbench.machine.launcher import *; print(rank_0_lives(detect()))"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "OMPI_", "PMIX_"))}
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE, env=bare | variables) as sibling:
        done = subprocess.run(
            (sys.executable, "-c", asks), env=bare | {"PMI_RANK": "1", "PMI_SIZE": "2"}, capture_output=True, text=True,
            check=True, timeout=LIMIT,
        )  # fmt: skip
        sibling.communicate(b"\n")
    assert done.stdout == f"{lives}\n"
