"""Backend `mpi-cuda`: data on GPUs, device pointers passed to MPI. Refused where MPI is not CUDA-aware."""

from __future__ import annotations

from typing import Any

from collbench.bindings.calls import binder_of, make_call
from collbench.bindings.gpu.device import CudaMpiArguments, device_buffers
from collbench.bindings.gpu.device_session import DeviceMpiBackend, DeviceMpiSession
from collbench.bindings.mpi import cuda_aware
from collbench.bindings.mpi.arguments import MpiSymbols
from collbench.bindings.mpi.cuda_aware import LEVELS, YES_NO
from collbench.bindings.mpi.loading import library_path, load_mpi, version_line
from collbench.bindings.spec import Operation, Options, Session, allgather
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable
from collbench.schema.axes import ThreadLevel


class CudaSession(DeviceMpiSession):
    """One rank, with a GPU or as parameter server without one."""

    def __init__(self, backend: DeviceMpiBackend, mpi: Any, level: ThreadLevel, options: Options) -> None:
        super().__init__(backend, mpi, level, options)
        reasons = allgather(self.world, None if self.gpu is None else refusal(mpi, self.gpu.uuid))
        for rank, reason in enumerate(reasons):
            if reason is not None:
                raise BackendUnavailable(f"backend {backend.name}: rank {rank}: {reason}")

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Device memory, and the row's MPI call on it. MPI returns when the data is where it belongs."""
        self.taken.refuse(row)
        arguments = CudaMpiArguments(self._mpi, case, row, count, self.device)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        call = make_call(prepared, MpiSymbols(self._mpi), (arguments,))
        return Operation(*device_buffers(prepared), call, prepared.in_place, arguments.blocks_held)


def refusal(mpi: Any, gpu: str) -> str | None:
    """Why this MPI is not given device pointers: it would crash on them, or copy them to the host unnoticed.

    Of three levels the last one decides: built with CUDA, claims to take device pointers, and a device buffer sent and
    checked, in a child process, because a library that cannot do it may crash.
    """
    levels = cuda_aware.levels(mpi.Get_library_version(), library_path(), gpu)
    if levels.works:
        return None
    answers = ", ".join(f"{level}: {YES_NO[getattr(levels, level)]}" for level in LEVELS)
    return (
        f"{version_line(load_mpi())} ({library_path()}) is not CUDA-aware ({answers}; {levels.why}). Use an MPI built "
        "with CUDA (the image openmpi-cuda), or --backend mpi-staged"
    )


class MpiCudaBackend(DeviceMpiBackend):
    """See the module."""

    name = "mpi-cuda"
    summary = "CUDA-aware MPI on device buffers"

    def session(self, mpi: Any, level: ThreadLevel, options: Options) -> Session:
        return CudaSession(self, mpi, level, options)


BACKEND = MpiCudaBackend()
