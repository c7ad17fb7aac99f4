"""What every backend has in common whose data is on GPUs and whose ranks are started by MPI."""

from __future__ import annotations

from typing import Any, Literal

from collbench.bindings.gpu.device import Device
from collbench.bindings.gpu.runtime import on_all, runtime, take_seats
from collbench.bindings.mpi.backend import MpiBackend
from collbench.bindings.mpi.session import MpiSession
from collbench.bindings.spec import Options
from collbench.machine import launcher
from collbench.schema.axes import ThreadLevel


class DeviceMpiSession(MpiSession):
    """One rank of an MPI world, with a GPU or as parameter server without one. A subclass names its backend."""

    backend: str

    def __init__(self, mpi: Any, level: ThreadLevel, options: Options) -> None:
        super().__init__(mpi, level)
        self.taken = take_seats(self.backend, self.world, options, runtime().missing(), runtime().visible)
        gpu = self.taken.gpu
        self.device: Device | None = on_all(
            self.world, self.backend, lambda: None if gpu is None else runtime().open(gpu)
        )
        self.gpu = None if self.device is None else self.device.facts


class DeviceMpiBackend(MpiBackend):
    """A backend over MPI that needs GPUs."""

    device: Literal["cpu", "gpu"] = "gpu"

    def missing(self) -> str | None:
        """Whether there is an MPI that belongs to our mpiexec, and a GPU that this process may use.

        A rank of a larger world may be a parameter server, which needs none: then `take_seats` refuses, when the ranks
        have met, and knows who it is.
        """
        return super().missing() or (runtime().missing() if launcher.detect().size == 1 else None)
