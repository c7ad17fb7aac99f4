"""Programs in the place of a workload's own, run as a plan's only case; and processes that should be gone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.processes import LIMIT

from collbench import workloads
from collbench.machine.facts import rank_facts
from collbench.run.cases import program_cases
from collbench.run.failures import Unwatched, Watch
from collbench.run.program import AloneSession, measure_program
from collbench.run.sampling import choose_method
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads.program import Program

PLAN = Plan(benchmarks=({"name": "stream", "arrays": "any", "size": "80"},), warmup=1, iters=3)
GOOD = json.dumps(
    {
        "ns": {name: [9, 10, 20, 30] for name in ("copy", "scale", "add", "triad")},
        "wrong": 0,
        "notes": ["kernels compiled by C"],
    }
)


def printing(text: str) -> Callable[[Any, int], Sequence[str]]:
    return lambda case, times: (sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", text)


def shell(script: str) -> Callable[[Any, int], Sequence[str]]:
    return lambda case, times: ("sh", "-c", script)


def script(folder: Path, name: str, lines: str) -> str:
    """A program in the place of another."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def replace_benchmark(plan: Plan, benchmark: dict[str, Any]) -> Plan:
    """The plan with another benchmark."""
    return msgspec.structs.replace(plan, benchmarks=(benchmark,))


def run_row(
    monkeypatch: pytest.MonkeyPatch, row: Program, plan: Plan = PLAN, watch: Watch | None = None
) -> list[tuple[Record, Any]]:
    """What the only case of a plan gives with this row in the place of stream's."""
    monkeypatch.setattr(workloads, "get", lambda name: row)
    (case,) = program_cases(plan, 1)
    method = choose_method(plan, (rank_facts(None),), simulated=False)
    return list(measure_program(case, plan, AloneSession("single"), method, watch or Unwatched()))


def row_with(argv: Callable[[Any, int], Sequence[str]]) -> Program:
    return replace(workloads.get("stream"), argv=argv, needs=lambda: None)


def gone(pid: int) -> bool:
    """Within the limit: no process, or one that nobody has reaped yet."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def written(path: Path) -> int:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text(encoding="utf-8")).endswith("\n"):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")
