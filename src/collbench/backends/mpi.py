"""Backend `mpi`: host memory, called from C or through mpi4py, on whichever MPI started us."""

from __future__ import annotations

from typing import Any

from collbench.bindings.mpi import MpiBackend, MpiSession
from collbench.bindings.spec import Session, WorldSettings
from collbench.schema.axes import ThreadLevel


class HostMpiBackend(MpiBackend):
    """See the module."""

    name = "mpi"
    summary = "MPI on host memory: the library's C functions, or mpi4py"

    def session(self, mpi: Any, level: ThreadLevel, options: WorldSettings) -> Session:
        return MpiSession(self, mpi, level)


BACKEND = HostMpiBackend()
