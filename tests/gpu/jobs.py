"""Jobs of the tests in this folder: collbench under mpirun on the GPUs of this machine, or on the double.

For machines without a GPU: COLLBENCH_GPU_TEST_MODULE=tests.double.main runs that module as collbench, and DOUBLE_GPUS
says how many GPUs it has (1). What the double has not (torch, a real libnccl) is skipped then. With
tests.double.torch_main and `-k torch-nccl` it is the other way round.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mpi.jobs import BIN, Ended, environment, finish

MODULE = os.environ.get("COLLBENCH_GPU_TEST_MODULE", "collbench")
DOUBLE = MODULE.startswith("tests.double")
LIMIT = 150.0

_LOOK = """
import json
from collbench.bindings.gpu import cupy_device
why = cupy_device.missing()
print(json.dumps([why, [] if why else cupy_device.visible()]))
"""
_TORCH = "from collbench.backends import torch_nccl; print(torch_nccl.missing_gpu() or '')"


def double_gpus() -> int:
    """GPUs of the double."""
    return int(os.environ.get("DOUBLE_GPUS", "1"))


def look() -> tuple[str | None, int]:
    """Why no GPU can be used here, or None; and how many can."""
    if DOUBLE:
        return None, double_gpus()
    done = run_python(_LOOK)
    if done.returncode != 0:
        return f"looking for one failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", 0
    why, uuids = json.loads(done.stdout.splitlines()[-1])
    return why, len(uuids)


def why_no_torch() -> str | None:
    """Why torch-nccl cannot be used here."""
    if DOUBLE:
        return None if MODULE.endswith("torch_main") else "the double has no torch"
    done = run_python(_TORCH)
    if done.returncode != 0:
        return f"torch cannot be asked: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return done.stdout.strip() or None


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: neither CuPy nor torch is to be in this one."""
    argv = (sys.executable, "-c", program)
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=environment(), check=False)


def mpirun() -> Path | None:
    """Beside this Python, else on the PATH."""
    found = shutil.which("mpirun", path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


@dataclass(frozen=True)
class Gpus:
    """How many GPUs there are, and how to start collbench on them."""

    count: int
    program: Path
    openmpi: bool

    def command(self, ranks: int, *arguments: str, program: tuple[str, ...] = ("-m", MODULE)) -> list[str]:
        """So many ranks of collbench, or of another Python program, free to use every core.

        NCCL and torch have threads of their own, which on one core would wait for the rank that waits for them.
        """
        crowded = ranks > len(os.sched_getaffinity(0))
        mapping = ["--map-by", ":OVERSUBSCRIBE"] if self.openmpi and crowded else []
        binding = ["--bind-to" if self.openmpi else "-bind-to", "none"]
        return [str(self.program), *mapping, *binding, "-n", str(ranks), sys.executable, *program, *arguments]

    def run(self, ranks: int, *arguments: str, env: dict[str, str] | None = None, limit: float = LIMIT) -> Ended:
        """To the end, within the limit."""
        return finish(self.command(ranks, *arguments), limit, self.environment(env))

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """What a job gets beside what is there: a machine without ssh tells Open MPI so by a parameter."""
        parameters = {name: value for name, value in os.environ.items() if name.startswith("OMPI_MCA_")}
        return parameters | {"DOUBLE_GPUS": str(self.count)} | (more or {})

    def share(self, ranks: int) -> tuple[str, ...]:
        """The flag by which so many ranks may use these GPUs, where it takes one."""
        return ("--share-gpu",) if ranks > self.count else ()


def measured(ended: Ended) -> list[dict[str, Any]]:
    """The records of a job that went well; each that was measured has a right result."""
    assert ended.code == 0, ended.err + ended.out
    for record in ended.records:
        assert record["status"] in ("ok", "skipped"), record
        assert record["status"] == "skipped" or record["check"]["wrong"] == 0, record
    return ended.records


def plan(where: Path, **keys: object) -> str:
    """A plan file with one sample a case, unless the keys say otherwise (None: left out); returns its path."""
    short: dict[str, object] = {"iters": 1, "warmup": 0, "align": "barrier"}
    given = {key: value for key, value in (short | keys).items() if value is not None}
    path = where / "plan.toml"
    # JSON's lists, strings, numbers and truth values are TOML's
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
    return str(path)
