"""Backend `mpi`: host memory, called from C or through mpi4py, on whichever MPI started us."""

from __future__ import annotations

from collbench.bindings.mpi import MpiBackend


class HostMpiBackend(MpiBackend):
    """See the module."""

    name = "mpi"
    summary = "MPI on host memory: the library's C functions, or mpi4py"


BACKEND = HostMpiBackend()
