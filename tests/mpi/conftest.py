"""Fixtures: how to start collbench under mpirun and torchrun of the environment that runs the tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable

import pytest

from tests.mpi.jobs import BIN, FAULTY, Command, mpi_vendor, skip_or_fail


@pytest.fixture(scope="session")
def vendor() -> str:
    return mpi_vendor()


@pytest.fixture(scope="session")
def left_with(vendor: str) -> Callable[[int], set[int]]:
    """`left_with(code)`: the exit codes that mpirun may have when a rank leaves with `code` while others live.

    MPICH's mpiexec kills the others by SIGKILL, and reports the end that it hears of last.
    """
    return lambda code: {code, int(signal.SIGKILL)} if vendor == "mpich" else {code}


@pytest.fixture(scope="session")
def mpirun(vendor: str) -> Command:
    """`mpirun(ranks, *arguments)`: the command. `program` takes collbench's place; `fault` is faulty.py's request."""

    def command(
        ranks: int, *arguments: str, fault: tuple[str, int, int] | None = None, program: tuple[str, ...] = ()
    ) -> list[str]:
        crowded = ranks > len(os.sched_getaffinity(0))
        flags = ["--map-by", ":OVERSUBSCRIBE"] if vendor == "openmpi" and crowded else []
        kind = [str(FAULTY), *map(str, fault)] if fault else [*program] or ["-m", "collbench"]
        return [str(BIN / "mpirun"), *flags, "-n", str(ranks), sys.executable, *kind, *arguments]

    return command


@pytest.fixture(scope="session")
def torchrun() -> Command:
    """`torchrun(ranks, *arguments)`: the command."""
    if importlib.util.find_spec("torch") is None or shutil.which(BIN / "torchrun") is None:
        skip_or_fail("torch", "torch is not installed in this environment")

    def command(ranks: int, *arguments: str, fault: tuple[str, int, int] | None = None) -> list[str]:
        program = [str(FAULTY), *map(str, fault)] if fault else ["-m", "collbench"]
        return [str(BIN / "torchrun"), "--nproc-per-node", str(ranks), "--standalone", *program, *arguments]

    return command
