"""Benchmarks that work in files, measured in a folder of a test; and folders on file systems of other kinds."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.processes import LIMIT

from collbench.machine.facts import rank_facts
from collbench.run.cases import program_cases
from collbench.run.failures import Unwatched
from collbench.run.program import AloneSession, measure_program
from collbench.run.sampling import choose_method
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads.host.files import kind_of

OUTPUTS = Path(__file__).parents[1] / "data" / "outputs"


def stored(name: str) -> str:
    return (OUTPUTS / name).read_text(encoding="utf-8")


def case_of(name: str, **parameters: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({"name": name, **parameters},)), 1)
    return case.case


def measured(table: dict[str, Any], folder: Path, **plan: Any) -> list[Record]:
    """The records of the only case of a benchmark, by default of one sample without a warm-up, in this folder."""
    asked: dict[str, Any] = {"warmup": 0, "iters": 1, "timeout": f"{LIMIT:g}s", **plan}
    whole = Plan(benchmarks=(table,), folder=str(folder), **asked)
    (case,) = program_cases(whole, 1)
    method = choose_method(whole, (rank_facts(None),), simulated=False)
    return [record for record, _ in measure_program(case, whole, AloneSession("single"), method, Unwatched())]


@contextmanager
def in_memory() -> Iterator[Path]:
    """An empty folder on tmpfs. Skips the test where /dev/shm is none."""
    shm = "/dev/shm"  # noqa: S108 - for its file system
    if not Path(shm).is_dir() or kind_of(Path(shm)) != "tmpfs":
        pytest.skip("no tmpfs in /dev/shm")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)


@contextmanager
def mounted(folder: Path, kind: str, options: str) -> Iterator[Path]:
    """A file system on this folder. Skips the test where it cannot be mounted."""
    argv = ("mount", "-t", kind, "-o", options, kind, str(folder))
    done = subprocess.run(argv, capture_output=True, text=True, check=False) if os.geteuid() == 0 else None
    if done is None or done.returncode:
        pytest.skip(f"mounting {kind} needs root" if done is None else done.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(("umount", str(folder)), check=True)
