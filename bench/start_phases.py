"""What a rank does until it can measure, step by step; rank 0 prints seconds as JSON. Run it with mpirun."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any


def load_mpi() -> Any:
    """mpi4py.MPI, not initialised."""
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    return import_module("mpi4py.MPI")


def load_collbench() -> None:
    for name in ("cli.measure", "run.experiment", "backends.mpi", "report.styles"):
        import_module(f"collbench.{name}")


def main() -> None:
    taken: dict[str, float] = {}

    def step(name: str, action: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = action()
        taken[name] = time.perf_counter() - began
        return result

    for package in ("numpy", "click", "msgspec", "tabulate"):
        step(f"import {package}", partial(import_module, package))
    mpi = step("import mpi4py.MPI", load_mpi)
    step("import the rest of collbench", load_collbench)
    step("MPI_Init_thread, single", lambda: mpi.Init_thread(mpi.THREAD_SINGLE))
    world = mpi.COMM_WORLD
    rank = world.rank
    step("MPI_Comm_dup", world.Dup)
    step("MPI_Barrier, the first", world.Barrier)
    step("MPI_Finalize", mpi.Finalize)
    if rank == 0:
        print(json.dumps(taken))


if __name__ == "__main__":
    main()
