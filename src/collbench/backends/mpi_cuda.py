"""Backend `mpi-cuda`: data on GPUs, device pointers passed to MPI. Refused where MPI is not CUDA-aware.

Whether an MPI is CUDA-aware: built for device pointers, claims to take them, and takes them. Only the third counts. The
last two are tried in a child process: they cost an MPI_Init, and a library whose claim is wrong may crash. The child is
a world of its own, whatever started this process.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from collbench.bindings.gpu.assignment import DeviceMpiBackend, DeviceMpiSession
from collbench.bindings.gpu.device import Device, DeviceBlocks, buffer_of
from collbench.bindings.mpi import HostMpiArguments, library_path, load_mpi, native_call, version_line
from collbench.bindings.spec import Operation, WorldSettings, allgather, binder_of, make_call, operation_of
from collbench.collectives.row import Collective, CollectiveCase
from collbench.errors import BackendUnavailable
from collbench.schema.axes import DTYPES, ThreadLevel

ANSWER = 30.0  # longest wait for a library to answer (s)
PROOF = 90.0

#: Between processes other code of the library runs (CUDA IPC, which a container may forbid, or RDMA).
NOT_TRIED = "from one rank to itself; between two ranks was not tried"

_CLAIM = """
import ctypes, sys
from mpi4py import MPI
sys.exit(100 + bool(ctypes.CDLL(sys.argv[1]).MPIX_Query_cuda_support()))
"""


#: Device memory to itself through MPI, and a look at what arrived.
_PROOF = """
import sys
import cupy
import numpy
from mpi4py import MPI
if len(sys.argv) > 1:
    cupy.cuda.Device(cupy.cuda.runtime.deviceGetByPCIBusId(sys.argv[1])).use()
values = numpy.arange(1 << 20, dtype=numpy.float32)
sent, received = cupy.empty(values.shape, values.dtype), cupy.empty(values.shape, values.dtype)
sent.set(values)
right = True
for send in (
    lambda: MPI.COMM_SELF.Sendrecv([sent, MPI.FLOAT], 0, 0, [received, MPI.FLOAT], 0, 0),
    lambda: MPI.COMM_SELF.Allreduce([sent, MPI.FLOAT], [received, MPI.FLOAT]),
):
    received.set(numpy.zeros_like(values))
    cupy.cuda.runtime.deviceSynchronize()
    send()
    right = right and bool((received.get() == values).all())
sys.exit(100 + right)
"""

_INSTEAD = "Use an MPI built with CUDA (the image openmpi-cuda), or --backend mpi-staged"

_LAUNCHERS = (
    "OMPI_COMM_WORLD_", "OMPI_MCA_ess", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "HYDI_", "MPI_LOCAL", "SLURM_",
)  # fmt: skip


#: Fields of `Levels`, and how their values are printed.
LEVELS = ("built", "claimed", "works")
YES_NO = {True: "yes", False: "no", None: "unknown"}


@dataclass(frozen=True)
class Levels:
    """What is known of an MPI; None is unknown. `why`: why a level was not tried, what failed, or what is left out."""

    built: bool | None
    claimed: bool | None = None
    works: bool | None = None
    why: str = ""


@cache
def levels(version: str, library: str | None, gpu: str) -> Levels:
    """All three, each tried only where the one before is not denied. `gpu`: the one to try it on."""
    compiled = built(version)
    if compiled is False:
        return Levels(False, why="it was built without CUDA")
    claim = claimed(library)
    if claim is False:
        return Levels(compiled, False, why="its CUDA component did not start")
    proven, why = works(gpu)
    return Levels(compiled, claim, proven, NOT_TRIED if proven else why)


def works(gpu: str) -> tuple[bool, str]:
    """Whether a device buffer arrives as it was sent, and if not, what happened.

    `gpu` is a UUID, or a bus address where the UUID is unknown: CUDA_VISIBLE_DEVICES takes no address.
    """
    named = gpu.startswith(("GPU-", "MIG-"))
    argv = (sys.executable, "-c", _PROOF, *(() if named else (gpu,)))
    done = _answer(argv, PROOF, alone() | ({"CUDA_VISIBLE_DEVICES": gpu} if named else {}))
    if isinstance(done, Exception):
        return False, f"sending a device buffer to itself did not end: {done}"
    if done.returncode == 101:
        return True, ""
    if done.returncode == 100:
        return False, "a device buffer did not arrive as it was sent"
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return False, f"sending a device buffer to itself ended with code {done.returncode}: {last}"


def _answer(
    argv: tuple[str, ...], limit: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str] | Exception:
    try:
        return subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=limit, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return error


def alone() -> dict[str, str]:
    """The environment without the launcher's variables: a child that calls MPI_Init is a world of its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}


def configure_line(version: str) -> str | None:
    """How the library was configured, from ompi_info (Open MPI) or the library's own version text (MPICH)."""
    if match := re.search(r"^MPICH configure:\s*(.*)$", version, re.MULTILINE):
        return match[1].strip("\0 ")
    if match := re.search(r"^config:cli:(.*)$", _ompi_info(), re.MULTILINE):
        return match[1].strip()
    return None


@cache
def built(version: str) -> bool | None:
    """Whether CUDA support was compiled in; None where the library does not say.

    `version` is the text of MPI_Get_library_version.
    """
    if "MPICH" in version:
        line = configure_line(version)
        return None if line is None else "--with-cuda" in line
    match = re.search(r"opal_built_with_cuda_support:value:(true|false)", _ompi_info())
    return None if match is None else match[1] == "true"


def claimed(library: str | None) -> bool | None:
    """What MPIX_Query_cuda_support says after MPI_Init; None where it is missing or gives no answer."""
    if library is None:
        return None
    done = _answer((sys.executable, "-c", _CLAIM, library), ANSWER, alone())
    return None if isinstance(done, Exception) else {100: False, 101: True}.get(done.returncode)


def _ompi_info() -> str:
    """Of the installation that this Python uses, else of the PATH."""
    beside = Path(sys.prefix) / "bin" / "ompi_info"
    program = str(beside) if beside.exists() else shutil.which("ompi_info")
    done = None if program is None else _answer((program, "--parsable", "--all"), ANSWER)
    return done.stdout if isinstance(done, subprocess.CompletedProcess) else ""


class CudaMpiArguments(HostMpiArguments):
    """`MpiArguments` in device memory; of a rank without a device in host memory."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int, device: Device | None) -> None:
        super().__init__(mpi, case, row, count)
        self._device = device

    def buffer(self, blocks: int) -> Any:
        if self._device is None:
            return super().buffer(blocks)
        memory = self._device.allocate(blocks * self.count * DTYPES[self.dtype])
        return DeviceBlocks(self._device, memory, blocks, self.count, self.dtype)

    def spec(self, buffer: Any) -> Any:
        """Device memory as the array that a Python user would pass."""
        return [buffer.array(), self.datatype] if isinstance(buffer, DeviceBlocks) else super().spec(buffer)


class CudaSession(DeviceMpiSession):
    """One rank, with a GPU or as parameter server without one."""

    def __init__(self, backend: DeviceMpiBackend, mpi: Any, level: ThreadLevel, options: WorldSettings) -> None:
        super().__init__(backend, mpi, level, options)
        reasons = allgather(self.world, None if self.gpu is None else refusal(mpi, self.gpu.uuid))
        for rank, reason in enumerate(reasons):
            if reason is not None:
                raise BackendUnavailable(f"backend {backend.name}: rank {rank}: {reason}")

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Device memory, and the row's MPI call on it. MPI returns when the data is where it belongs."""
        self.assigned.refuse(row)
        arguments = CudaMpiArguments(self._mpi, case, row, count, self.device)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        call = make_call(prepared, partial(native_call, self._mpi), (arguments,))
        return operation_of(prepared, call, arguments.blocks_held, buffer_of)


def refusal(mpi: Any, gpu: str) -> str | None:
    """Why this MPI is not given device pointers: it would crash on them, or copy them to the host unnoticed."""
    reached = levels(mpi.Get_library_version(), library_path(), gpu)
    if reached.works:
        return None
    answers = ", ".join(f"{level}: {YES_NO[getattr(reached, level)]}" for level in LEVELS)
    return f"{version_line(load_mpi())} ({library_path()}) is not CUDA-aware ({answers}; {reached.why}). {_INSTEAD}"


class MpiCudaBackend(DeviceMpiBackend):
    """See the module."""

    name = "mpi-cuda"
    summary = "CUDA-aware MPI on device buffers"
    session = CudaSession

    def missing(self) -> str | None:
        """Beside what others over MPI lack, an MPI that says of itself that it was built without CUDA."""
        reason = super().missing()
        if reason is None and built(load_mpi().Get_library_version()) is False:
            return f"{version_line(load_mpi())} was built without CUDA. {_INSTEAD}"
        return reason


BACKEND = MpiCudaBackend()
