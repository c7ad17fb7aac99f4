"""The programs of bench/, which are no package: they import each other from their own folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def bench(name: str) -> Any:
    """A module of bench/."""
    if str(BENCH) not in sys.path:
        sys.path.append(str(BENCH))
    return importlib.import_module(name)


def results_in(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What programs write on the way, and their pages, go there."""
    for name in ("gpu_installation", "gpu_programs", "gpu_peer", "gpu_floor"):
        monkeypatch.setattr(bench(name), "OUT", where)
    monkeypatch.setattr(bench("results"), "HERE", where)


def installation(where: Path, name: str = "openmpi", ranks: int = 1, mpirun: str = "") -> Any:
    """An environment whose mpirun is a shell script, in which `$last` is the last argument: the file of -J."""
    (where / "bin").mkdir(exist_ok=True)
    program = where / "bin" / "mpirun"
    program.write_text(f"#!/bin/sh\nfor last; do :; done\n{mpirun}\n")
    program.chmod(0o755)
    return bench("gpu_installation").GpuInstallation(where, name, sys.executable, "collbench", ranks)
