"""What every backend has in common whose data is on GPUs and whose ranks are started by MPI."""

from __future__ import annotations

from typing import Any, Literal

from collbench.bindings.gpu.device import Device
from collbench.bindings.gpu.runtime import CUDA_VARIABLES, CUPY_PACKAGES, CupyRuntime, Runtime, on_all, take_seats
from collbench.bindings.mpi.backend import MpiBackend
from collbench.bindings.mpi.session import MpiSession
from collbench.bindings.spec import Options
from collbench.machine import launcher
from collbench.schema.axes import ThreadLevel


class DeviceMpiSession(MpiSession):
    """One rank of an MPI world, with a GPU or as parameter server without one."""

    def __init__(self, backend: DeviceMpiBackend, mpi: Any, level: ThreadLevel, options: Options) -> None:
        super().__init__(backend, mpi, level)
        self.runtime = runtime = backend.runtime
        self.taken = take_seats(backend.name, self.world, options, runtime.missing(), runtime.visible)
        gpu = self.taken.gpu
        self.device: Device | None = on_all(
            self.world, backend.name, lambda: None if gpu is None else runtime.open(gpu)
        )
        self.gpu = None if self.device is None else self.device.facts


class DeviceMpiBackend(MpiBackend):
    """A backend over MPI that needs GPUs."""

    device: Literal["cpu", "gpu"] = "gpu"
    runtime: Runtime = CupyRuntime()
    variables: tuple[str, ...] = (*MpiBackend.variables, *CUDA_VARIABLES)
    packages: tuple[str, ...] = (*MpiBackend.packages, *CUPY_PACKAGES)

    def missing(self) -> str | None:
        """Whether there is an MPI that belongs to our mpiexec, and a GPU that this process may use.

        A rank of a larger world may be a parameter server, which needs none: then `take_seats` refuses, when the ranks
        have exchanged what they see.
        """
        return super().missing() or (self.runtime.missing() if launcher.detect().size == 1 else None)
