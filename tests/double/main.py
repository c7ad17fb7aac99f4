"""collbench on the double: `python -m tests.double.main collbench-arguments...`.

Variables: DOUBLE_GPUS (how many every rank sees), DOUBLE_MEMORY (bytes of each), DOUBLE_FULL=RANK:BYTES (one has
no more), DOUBLE_PINNED (bytes that can be page-locked), DOUBLE_FAILS=FUNCTION:CODE[:RANK[:N]] (from the N-th call on),
DOUBLE_ASYNC_ERROR=TEXT, DOUBLE_LOST=hang|die:RANK:N, DOUBLE_OTHER_NCCL=RANK (has another library),
DOUBLE_NCCL_VERSION=2.30.1, DOUBLE_COMM_MEMORY and DOUBLE_CONNECT_MEMORY (bytes that a communicator takes when it is
made, and in its first call), DOUBLE_SPOIL=KIND (see `spoil`),
DOUBLE_SAYS_SETTINGS, DOUBLE_SAYS_ABORT, DOUBLE_ABORT_HANGS, DOUBLE_CANNOT_OPEN=RANK, DOUBLE_WITHOUT_NCCL=RANK|all,
DOUBLE_REFUSES=ALGORITHM (no communicator), DOUBLE_RESETS=FUNCTION,... (those that make the log read its settings),
DOUBLE_CUDA_AWARE (the MPI may read and write device memory, and is believed to). Programs of suite `gpu` are started by
`gpu_program`, which has more variables.
"""

from __future__ import annotations

import os
import sys

from collbench.backends import mpi_cuda
from collbench.bindings.gpu.assignment import DeviceMpiBackend, GpuRuntime
from collbench.cli import main
from collbench.errors import BackendUnavailable
from collbench.machine import launcher
from collbench.run import experiment
from collbench.run.failures import StartLimit
from collbench.workloads import protocol
from collbench.workloads.gpu import suite as gpu
from tests.double.device import READABLE, DoubleDevice
from tests.double.nccl import DoubleNccl
from tests.double.spoil import spoil


class DoubleRuntime(GpuRuntime):
    """The double in place of CuPy."""

    def __init__(self) -> None:
        self.device: DoubleDevice | None = None
        self._nccl = DoubleNccl(lambda: self.device)

    def missing(self) -> str | None:
        return None if self.visible() else "no CUDA device is visible (the double has none)"

    def visible(self) -> tuple[str, ...]:
        return tuple(f"GPU-{number}" for number in range(int(os.environ.get("DOUBLE_GPUS", "8"))))

    def open(self, uuid: str) -> DoubleDevice:
        if os.environ.get("DOUBLE_CANNOT_OPEN") == str(launcher.detect().rank):
            raise RuntimeError("double: the device is busy")
        self.device = self.device or DoubleDevice(uuid)
        return self.device

    def nccl(self) -> DoubleNccl:
        if os.environ.get("DOUBLE_WITHOUT_NCCL") in (str(launcher.detect().rank), "all"):
            raise BackendUnavailable("libnccl was not found")
        return self._nccl


if __name__ == "__main__":
    # What a test limits by -T is what comes later; on a busy machine ranks start far apart.
    vars(experiment)["StartLimit"] = lambda limit, backend: StartLimit(3600.0, backend)
    DeviceMpiBackend.runtime = DoubleRuntime()
    if READABLE:
        vars(mpi_cuda).update(built=lambda version: True, refusal=lambda *_: None)
    spoil(os.environ.get("DOUBLE_SPOIL", ""))
    vars(gpu)["started"] = lambda program, *words, **flags: (
        sys.executable, "-m", "tests.double.gpu_program", *protocol.started(program, *words, **flags)[2:]
    )  # fmt: skip
    sys.argv[0] = "collbench"
    main()
