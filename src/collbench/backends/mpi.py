"""Backend `mpi`: host memory, called from C or through mpi4py, on whichever MPI started us."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from collbench.backends.parts import launcher
from collbench.backends.parts.host_buffers import as_parts
from collbench.backends.parts.interface import Operation, Options, Session, World
from collbench.backends.parts.mpi_arguments import HostMpiArguments, datatype, make_call, to_words
from collbench.backends.parts.mpi_loading import (
    MpiWorld,
    initialise,
    library_path,
    load_mpi,
    refuse_foreign_launcher,
    version_line,
)
from collbench.collectives.row import Collective
from collbench.errors import RequestError, Unsupported
from collbench.schema.case import DTYPES, Case, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.gates import Signals


class MpiSession:
    """One rank of MPI_COMM_WORLD."""

    clock = staticmethod(time.monotonic_ns)
    transport: str | None = None

    def __init__(self, mpi: Any, thread_level: ThreadLevel) -> None:
        self._mpi = mpi
        self.thread_level = thread_level
        self.world: World = MpiWorld(mpi)
        self.signals = _signals(mpi)

    def prepare(self, case: Case, row: Collective, count: int) -> Operation:
        """Buffers in NumPy, the call from the row's mpi dialect."""
        if "mpi" not in row.dialects:
            raise Unsupported(f"{row.name} has no MPI form")
        arguments = HostMpiArguments(self._mpi, case, row, count)
        prepared = row.dialects["mpi"](arguments)
        call = make_call(self._mpi, prepared, (arguments,))
        return Operation(prepared.input, as_parts(prepared.output), call, prepared.in_place, arguments.blocks_held)

    def is_lost_rank(self, error: BaseException) -> bool:
        """Never: mpirun ends the job before a call returns with an error."""
        return False

    def abort(self, code: int) -> None:
        """MPI_Abort."""
        self._mpi.COMM_WORLD.Abort(code)


def _signals(mpi: Any) -> Signals:
    comm = mpi.COMM_WORLD
    start = np.zeros(1, np.int64)
    return Signals(
        barrier=comm.Barrier,
        announce=lambda: comm.Bcast([start, mpi.INT64_T], 0),
        start=start,
        announces=comm.rank == 0,
        native_barrier=to_words(mpi, "MPI_Barrier", (comm,)),
        native_announce=to_words(mpi, "MPI_Bcast", (start, 1, mpi.INT64_T, 0, comm)),
    )


class MpiBackend:
    """See the module."""

    name = "mpi"
    summary = "MPI on host memory: the library's C functions, or mpi4py"
    simulated = False

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
        """MPI_Init_thread and the body; MPI_Finalize follows at exit."""
        mpi = load_mpi()
        granted = initialise(mpi, launcher.detect(), options.thread_level)
        body(MpiSession(mpi, granted))


def _has(mpi: Any, dtype: str) -> bool:
    try:
        datatype(mpi, dtype)
    except Unsupported:
        return False
    return True


BACKEND = MpiBackend()
