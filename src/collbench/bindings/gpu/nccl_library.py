"""NCCL through CuPy: communicators, and the library's functions by address. Another binding implements `Nccl`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Protocol

from collbench.bindings.gpu.shared_library import SharedLibrary, load
from collbench.collectives.row import C
from collbench.errors import LibraryError
from collbench.schema.axes import Op
from collbench.timing.call import Native

#: ncclDataType_t and ncclRedOp_t of nccl.h.
DATATYPE = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
SONAME = "libnccl.so.2"

#: What a manifest says of backends over NCCL.
NCCL_VARIABLES = ("NCCL_",)
#: Variables of an algorithm and of a protocol, which are read when a communicator is made.
COMMUNICATOR_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO")
NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")

_REMOTE = re.compile(r"ncclRemoteError|NCCL_ERROR_REMOTE|remote process exit")

OP: dict[Op, int] = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


class Communicator(Protocol):
    """One rank's part of an ncclComm_t. Calls take addresses, counts, numbers of nccl.h and a stream, in its order.

    From `abort` or `destroy` on, which set `freed` first, nothing may be asked of it.
    """

    address: int
    freed: bool
    all_reduce: Callable[..., object]
    reduce: Callable[..., object]
    broadcast: Callable[..., object]
    all_gather: Callable[..., object]
    reduce_scatter: Callable[..., object]
    send: Callable[..., object]
    recv: Callable[..., object]

    def async_error(self) -> str | None:
        """An error after a call had returned."""

    def abort(self) -> None:
        """Stop what is under way, without the other ranks, and free the communicator."""

    def destroy(self) -> None:
        """Free it, when nothing is under way and no graph uses it. Collective."""


class Nccl(Protocol):
    """The library. `path` and `version` say which one."""

    @property
    def path(self) -> str:
        """Of the library's file."""

    @property
    def version(self) -> tuple[int, int, int]:
        """Major, minor, patch."""

    def group_start(self) -> object:
        """ncclGroupStart."""

    def group_end(self) -> object:
        """ncclGroupEnd."""

    def unique_id(self) -> Any:
        """Made by one rank; all ranks of a communicator need it."""

    def communicator(self, size: int, unique_id: Any, rank: int) -> Communicator:
        """Collective over the ranks of the communicator."""

    def native(self, call: C) -> Native | None:
        """A call of the library as words."""

    def call(self, function: str, *arguments: Any) -> int | None:
        """Call a function at once and return its code; None where this version does not have it."""


class CupyCommunicator:
    """See `Communicator`; the calls are CuPy's own methods, so that they cost what a CuPy user pays."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.freed = comm, False
        self.address = int(comm.comm)
        self.all_reduce, self.reduce, self.broadcast = comm.allReduce, comm.reduce, comm.broadcast
        self.all_gather, self.reduce_scatter = comm.allGather, comm.reduceScatter
        self.send, self.recv = comm.send, comm.recv

    def async_error(self) -> str | None:
        """ncclCommGetAsyncError."""
        try:
            self._comm.check_async_error()
        except RuntimeError as error:
            return str(error)
        return None

    def abort(self) -> None:
        """ncclCommAbort."""
        self.freed = True
        with contextlib.suppress(RuntimeError):
            self._comm.abort()

    def destroy(self) -> None:
        """ncclCommDestroy."""
        self.freed = True
        self._comm.destroy()


class CupyNccl:
    """See `Nccl`."""

    def __init__(self, library: SharedLibrary) -> None:
        from cupy.cuda import nccl

        self._nccl, self._library = nccl, library
        self.path = library.path
        self.version = nccl_version(library.handle)
        self.group_start, self.group_end = nccl.groupStart, nccl.groupEnd

    def unique_id(self) -> Any:
        return self._nccl.get_unique_id()

    def communicator(self, size: int, unique_id: Any, rank: int) -> Communicator:
        return CupyCommunicator(self._nccl.NcclCommunicator(size, unique_id, rank))

    def native(self, call: C) -> Native | None:
        return self._library.native(call, partial(explain, self._library))

    def call(self, function: str, *arguments: Any) -> int | None:
        perform = getattr(self._library.handle, function, None)
        return None if perform is None else int(perform(*arguments) or 0)


def nccl_version(handle: ctypes.CDLL) -> tuple[int, int, int]:
    """By ncclGetVersion; needs no GPU."""
    number = ctypes.c_int()
    handle.ncclGetVersion(ctypes.byref(number))
    return number.value // 10_000, number.value // 100 % 100, number.value % 100


def explain(library: SharedLibrary, code: int) -> str:
    """ncclGetErrorString, with ncclGetLastError where it says more."""
    text, last = library.handle.ncclGetErrorString, getattr(library.handle, "ncclGetLastError", None)
    text.restype = ctypes.c_char_p
    message = bytes(text(code) or b"").decode(errors="replace")
    if last is None:
        return message
    last.restype = ctypes.c_char_p
    details = bytes(last(None) or b"").decode(errors="replace").strip()
    return f"{message}: {details}" if details else message


def share_variables(version: tuple[int, ...], rank: int) -> dict[str, str]:
    """Environment variables that let several ranks use one GPU, to be set before a rank's first communicator.

    NCCL before 2.30 allows it only where ranks seem to be on different hosts; they then go through the network.
    """
    if version >= (2, 30, 0):
        return {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    return {"NCCL_HOSTID": f"collbench-{rank}"}


def says_lost(error: BaseException) -> bool:
    """Whether an error means that another rank is gone: ncclRemoteError, by a name of it or in NCCL's own words."""
    return isinstance(error, (LibraryError, RuntimeError)) and _REMOTE.search(str(error)) is not None


def cupy_nccl() -> Nccl:
    """The NCCL of this process: loaded before CuPy loads it, so that both use the same one.

    Raises:
        BackendUnavailable: there is none, or there are two.
    """
    return _through_cupy(load("nccl", SONAME))


@cache
def _through_cupy(library: SharedLibrary) -> Nccl:
    return CupyNccl(library)


def reserve_settings() -> None:
    """Make room in the environment for what `settings` adds, before the library has threads that read it.

    The C library moves the whole block when a name is added, but not while there is room that another one left.
    """
    with settings(dict.fromkeys(COMMUNICATOR_VARIABLES, "")):
        pass


@contextlib.contextmanager
def settings(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables that the library reads when a communicator is made, and not after."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
