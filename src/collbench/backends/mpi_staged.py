"""Backend `mpi-staged`: data on GPUs, copied to host memory, communicated by any MPI, and copied back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from collbench.bindings.gpu.assignment import DeviceMpiBackend, DeviceMpiSession
from collbench.bindings.gpu.device import StagedArguments, buffers_of, staged_parts
from collbench.bindings.mpi import MpiSymbols
from collbench.bindings.operations import AllOf, binder_of, make_call
from collbench.bindings.spec import Operation, Options, Session
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.schema.axes import ThreadLevel


class StagedSession(DeviceMpiSession):
    """One rank, with a GPU or as parameter server without one."""

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Host buffers, each with a twin on the device; the row's MPI call between copies."""
        self.assigned.refuse(row)
        device = self.device
        arguments = StagedArguments(self._mpi, case, row, count, device)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        if row.moves_data:
            prepared = replace(prepared, parts=staged_parts(prepared, arguments, device))
        call = make_call(prepared, AllOf(MpiSymbols(self._mpi), device), (arguments,))
        buffers = buffers_of(prepared, arguments, device)
        return Operation(*buffers, call, prepared.in_place, arguments.blocks_held)


class MpiStagedBackend(DeviceMpiBackend):
    """See the module."""

    name = "mpi-staged"
    summary = "MPI on host memory, with copies from and to the GPUs"
    axes: frozenset[str] = frozenset({"staging"})

    def session(self, mpi: Any, level: ThreadLevel, options: Options) -> Session:
        return StagedSession(self, mpi, level, options)


BACKEND = MpiStagedBackend()
