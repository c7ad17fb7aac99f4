"""One rank of an MPI world: control plane, gates, and cases on host memory."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from collbench.bindings.calls import binder_of, make_call
from collbench.bindings.host_buffers import HostBuffer, as_parts, on_host
from collbench.bindings.mpi.arguments import HostMpiArguments, MpiSymbols, error_text, to_words
from collbench.bindings.mpi.loading import MpiWorld
from collbench.bindings.spec import Backend, HostSession, Operation, World
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.schema.axes import ThreadLevel
from collbench.timing.call import Messages, Signals

#: Of messages that compare clocks.
CLOCK_TAG = 11


class MpiSession(HostSession):
    """One rank of MPI_COMM_WORLD."""

    clock = staticmethod(time.monotonic_ns)
    transport: str | None = None

    def __init__(self, backend: Backend, mpi: Any, thread_level: ThreadLevel) -> None:
        self.backend = backend
        self._mpi = mpi
        self.thread_level = thread_level
        self.world: World = MpiWorld(mpi)
        self.signals = signals_of(mpi)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Buffers in NumPy, the call from the row's mpi dialect."""
        arguments = HostMpiArguments(self._mpi, case, row, count)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        call = make_call(prepared, MpiSymbols(self._mpi), (arguments,))
        received = tuple(HostBuffer(part) for part in as_parts(prepared.output))
        return Operation(on_host(prepared.input), received, call, prepared.in_place, arguments.blocks_held)

    def is_lost_rank(self, error: BaseException) -> bool:
        """Never: mpirun ends the job before a call returns an error."""
        return False

    def abort(self, code: int) -> None:
        self._mpi.COMM_WORLD.Abort(code)


def signals_of(mpi: Any) -> Signals:
    """Barrier and announcement over MPI_COMM_WORLD, for Python and for the C loop."""
    comm = mpi.COMM_WORLD
    start = np.zeros(1, np.int64)
    return Signals(
        barrier=comm.Barrier,
        announce=lambda: comm.Bcast([start, mpi.INT64_T], 0),
        start=start,
        announces=comm.rank == 0,
        native_barrier=to_words(mpi, "MPI_Barrier", (comm,)),
        native_announce=to_words(mpi, "MPI_Bcast", (start, 1, mpi.INT64_T, 0, comm)),
        explain=partial(error_text, mpi),
        messages=messages_of(mpi),
    )


def messages_of(mpi: Any) -> Messages:
    """Messages of 8 bytes over MPI_COMM_WORLD."""
    comm, cell, status, one = mpi.COMM_WORLD, np.zeros(1, np.int64), mpi.Status(), mpi.INT64_T
    return Messages(
        cell=cell,
        send=lambda rank: comm.Send([cell, one], rank, CLOCK_TAG),
        receive=lambda rank: comm.Recv([cell, one], rank, CLOCK_TAG, status),
        native_send=lambda rank: to_words(mpi, "MPI_Send", (cell, 1, one, rank, CLOCK_TAG, comm)),
        native_receive=lambda rank: to_words(mpi, "MPI_Recv", (cell, 1, one, rank, CLOCK_TAG, comm, status)),
        explain=partial(error_text, mpi),
        keep=status,
    )
