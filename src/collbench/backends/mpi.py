"""Backend `mpi`: host memory, called from C or through mpi4py, on whichever MPI started us."""

from __future__ import annotations

from collbench.bindings.mpi import MpiBackend

BACKEND = MpiBackend()
