"""NCCL through CuPy: communicators, functions by address, arguments of rows, parameter servers, and its log.

The log goes to a file of ours. Connections are logged when they are made, outside every sample; the choice of algorithm
is logged for each call, so it is switched on for one operation that is not timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Protocol

from collbench.bindings.gpu.device import SharedLibrary, load
from collbench.bindings.spec import Observation
from collbench.collectives.row import C
from collbench.errors import LibraryError, Unsupported
from collbench.machine import facts
from collbench.machine.launcher import own_names, set_own
from collbench.schema.axes import CtaPolicy, Op
from collbench.timing.loop import Native

#: ncclDataType_t and ncclRedOp_t of nccl.h.
DATATYPE = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "fp8_e4m3": 10, "fp8_e5m2": 11,
}  # fmt: skip
FP8_SINCE = (2, 24, 0)
_FP8_REDUCTIONS = (9, 0)  # the compute capability that its kernels need (enqueue.cc)
SONAME = "libnccl.so.2"

NCCL_VARIABLES = ("NCCL_", "RCCL_", "NVSHMEM_")  # what a manifest says of backends over NCCL, and over RCCL
#: Variables of an algorithm and of a protocol, which are read when a communicator is made.
COMMUNICATOR_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO")
NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")

_REMOTE = re.compile(r"ncclRemoteError|NCCL_ERROR_REMOTE|remote process exit")

OP: dict[Op, int] = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


#: From 2.28 on NCCL has functions for what was a group of sends and receives, by collective.
DIRECT = {"alltoall": "ncclAlltoAll", "gather": "ncclGather", "scatter": "ncclScatter"}


def function_notes(collective: str, direct: bool) -> tuple[str, ...]:
    """For the record of a collective that NCCL performs in one of two ways: which one it was."""
    if collective not in DIRECT:
        return ()
    return (f"function {DIRECT[collective] if direct else 'ncclSend and ncclRecv in one group'}",)


def refuse_dtype(dtype: str, op: str | None, version: tuple[int, ...], capability: tuple[int, int]) -> None:
    """Raises Unsupported: NCCL has no such dtype, or this version or GPU does not reduce it.

    Averages of 8 bits are rounded by more than what a wrong result can be told from.
    """
    if dtype not in DATATYPE:
        raise Unsupported(f"NCCL has no {dtype} (it has {', '.join(DATATYPE)})")
    if not dtype.startswith("fp8_"):
        return
    if version < FP8_SINCE:
        raise Unsupported(f"NCCL {'.'.join(map(str, version))} has no {dtype}; 2.24 and later do")
    if op == "avg":
        raise Unsupported(f"an average of {dtype} cannot be checked: a correct one may be off by a quarter")
    if op is not None and capability < _FP8_REDUCTIONS:
        here = ".".join(map(str, capability))
        raise Unsupported(f"NCCL reduces {dtype} from compute capability 9.0 on; this GPU has {here}")


class Communicator(Protocol):
    """One rank's part of an ncclComm_t. Calls take addresses, counts, numbers of nccl.h and a stream, in its order.

    `async_error` is one after a call had returned. `abort` stops what is under way, without the other ranks; `destroy`
    is collective, when nothing is under way and no graph uses the communicator. Both set `freed` first, and free it:
    from then on nothing may be asked of it.
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

    def async_error(self) -> str | None: ...
    def abort(self) -> None: ...
    def destroy(self) -> None: ...


class Nccl(Protocol):
    """The library. `path` and `version` (major, minor, patch) say which one.

    One rank makes a `unique_id`, which all ranks of a communicator need; `communicator` is collective over them.
    `native` is a call as words; `call` makes one at once and returns its code, None where this version lacks it.
    `has` says whether it lacks it, and `explain` what a code means.
    """

    path: str
    version: tuple[int, int, int]

    def group_start(self) -> object: ...
    def group_end(self) -> object: ...
    def unique_id(self) -> Any: ...
    def communicator(self, size: int, unique_id: Any, rank: int, cta_policy: CtaPolicy) -> Communicator: ...
    def native(self, call: C) -> Native | None: ...
    def has(self, function: str) -> bool: ...
    def explain(self, code: int) -> str: ...
    def call(self, function: str, *arguments: Any) -> int | None: ...


class CupyCommunicator:
    """See `Communicator`; the calls are CuPy's own methods, so that they cost what a CuPy user pays."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.freed = comm, False
        self.address = int(comm.comm)
        self.all_reduce, self.reduce, self.broadcast = comm.allReduce, comm.reduce, comm.broadcast
        self.all_gather, self.reduce_scatter = comm.allGather, comm.reduceScatter
        self.send, self.recv = comm.send, comm.recv

    def async_error(self) -> str | None:
        try:
            self._comm.check_async_error()
        except RuntimeError as error:
            return str(error)
        return None

    def abort(self) -> None:
        self.freed = True
        with contextlib.suppress(RuntimeError):
            self._comm.abort()

    def destroy(self) -> None:
        self.freed = True
        self._comm.destroy()


class _UniqueId(ctypes.Structure):
    _fields_: ClassVar = [("internal", ctypes.c_ubyte * 128)]

    def __init__(self, value: bytes) -> None:
        super().__init__((ctypes.c_ubyte * 128)(*value))


class Config(ctypes.Structure):
    """ncclConfig_t as NCCL 2.27 has it (nccl.h): later versions read so much of it, and take defaults for the rest."""

    _fields_: ClassVar = [
        ("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
        *((name, ctypes.c_int) for name in ("blocking", "cgaClusterSize", "minCTAs", "maxCTAs")),
        ("netName", ctypes.c_char_p), ("splitShare", ctypes.c_int), ("trafficClass", ctypes.c_int),
        ("commName", ctypes.c_char_p),
        *((name, ctypes.c_int) for name in ("collnetEnable", "CTAPolicy", "shrinkShare", "nvlsCTAs")),
    ]  # fmt: skip


CTA_POLICY: dict[CtaPolicy, int] = {"default": 0, "efficiency": 1, "zero": 2}
CTA_POLICY_SINCE: dict[CtaPolicy, tuple[int, ...]] = {"default": (), "efficiency": (2, 27), "zero": (2, 28)}
_MAGIC, _UNDEFINED, _LAYOUT = 0xCAFEBEEF, -(2**31), 22700
_IN_PROGRESS = 7  # ncclInProgress


def config_for(cta_policy: CtaPolicy) -> Config:
    """All but the policy is left to the library."""
    undefined = {field[0]: _UNDEFINED for field in Config._fields_ if field[1] is ctypes.c_int}
    numbers = {"size": ctypes.sizeof(Config), "magic": _MAGIC, "version": _LAYOUT}
    return Config(**numbers | undefined | {"CTAPolicy": CTA_POLICY[cta_policy]})


def refuse_cta_policy(cta_policy: CtaPolicy, driver: str, version: tuple[int, ...]) -> None:
    """Raises Unsupported: this version has no such policy, or CuPy would make the calls."""
    if version < (since := CTA_POLICY_SINCE[cta_policy]):
        raise Unsupported(f"CTA policy {cta_policy}: needs NCCL {'.'.join(map(str, since))}, and this is "
                          f"{'.'.join(map(str, version))}")  # fmt: skip
    if cta_policy != "default" and driver == "python":
        raise Unsupported(f"CTA policy {cta_policy}: CuPy makes no communicator with one; use the driver native")


class ConfiguredCommunicator:
    """See `Communicator`; for the loop in C alone, since CuPy makes none with a configuration."""

    def __init__(self, handle: ctypes.CDLL, address: int, explain: Callable[[int], str]) -> None:
        self._handle, self._explain, self.address, self.freed = handle, explain, address, False
        self.all_reduce = self.reduce = self.broadcast = self.all_gather = self.reduce_scatter = _in_c_alone
        self.send = self.recv = _in_c_alone

    def async_error(self) -> str | None:
        error = ctypes.c_int()
        self._handle.ncclCommGetAsyncError(ctypes.c_void_p(self.address), ctypes.byref(error))
        return None if error.value in (0, _IN_PROGRESS) else self._explain(error.value)

    def abort(self) -> None:
        self.freed = True
        self._handle.ncclCommAbort(ctypes.c_void_p(self.address))

    def destroy(self) -> None:
        self.freed = True
        self._handle.ncclCommDestroy(ctypes.c_void_p(self.address))


def _in_c_alone(*_: object) -> object:
    raise RuntimeError("a communicator with a CTA policy is for the driver native")


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

    def communicator(self, size: int, unique_id: Any, rank: int, cta_policy: CtaPolicy) -> Communicator:
        if cta_policy == "default":
            return CupyCommunicator(self._nccl.NcclCommunicator(size, unique_id, rank))
        config, made = config_for(cta_policy), ctypes.c_void_p()
        identifier = _UniqueId(bytes(byte % 256 for byte in unique_id))  # CuPy has signed numbers
        code = self._library.handle.ncclCommInitRankConfig(
            ctypes.byref(made), size, identifier, rank, ctypes.byref(config)
        )
        if code != 0:
            raise RuntimeError(self.explain(code))
        return ConfiguredCommunicator(self._library.handle, made.value or 0, self.explain)

    def native(self, call: C) -> Native | None:
        return self._library.native(call, self.explain)

    def explain(self, code: int) -> str:
        message = self._library.text("ncclGetErrorString", code)
        details = self._library.text("ncclGetLastError", None).strip()
        return f"{message}: {details}" if details else message

    def has(self, function: str) -> bool:
        return hasattr(self._library.handle, function)

    def call(self, function: str, *arguments: Any) -> int | None:
        return call_in(self._library.handle, function, *arguments)


def call_in(handle: ctypes.CDLL | None, function: str, *arguments: Any) -> int | None:
    """See `Nccl.call`. Without a handle there is no function."""
    perform = getattr(handle, function, None)
    return None if perform is None else int(perform(*arguments) or 0)


def nccl_version(handle: ctypes.CDLL) -> tuple[int, int, int]:
    number = ctypes.c_int()
    handle.ncclGetVersion(ctypes.byref(number))
    return number.value // 10_000, number.value // 100 % 100, number.value % 100


def reread_settings(call: Callable[..., int | None]) -> bool:
    """Make NCCL look at NCCL_DEBUG and its like again; False where this version (before 2.24) cannot.

    `call`: see `Nccl`. From 2.28 on NCCL has announced to remove the function without `Internal`.
    """
    return any(call(f"ncclResetDebugInit{name}") is not None for name in ("Internal", ""))


#: The variables of its log, which collbench sets.
_OF_LOG = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


def library_settings(call: Callable[..., int | None]) -> tuple[str, ...]:
    """`NAME=VALUE` of what NCCL publishes, defaults too, and of what else it has from its files. `call`: see `Nccl`.

    Empty before 2.30.7. Asked for a parameter, it adds what nccl.conf says to the environment of the C library.
    """
    names, many = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_int()
    if call("ncclParamGetAllParameterKeys", ctypes.byref(names), ctypes.byref(many)) != 0:
        return ()
    published: dict[str, str] = {}
    for key in [names[place] or b"" for place in range(many.value)]:
        value, length = ctypes.c_char_p(), ctypes.c_int()
        if call("ncclParamGetParameter", key, ctypes.byref(value), ctypes.byref(length)) == 0:
            published[os.fsdecode(key)] = os.fsdecode(value.value or b"")
    of_files = {name: value for name, value in _c_environment().items() if name not in os.environ}
    seen = facts.environment(NCCL_VARIABLES, of_files | published)
    return tuple(f"{name}={value}" for name, value in seen.items() if name not in _OF_LOG)


def _c_environment() -> dict[str, str]:
    """The variables of this process as the C library has them; Python knows those of the start, and its own."""
    entries, found = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ"), list[str]()
    while entry := entries[len(found)]:
        found.append(os.fsdecode(entry))
    return {name: value for name, _, value in (entry.partition("=") for entry in found)}


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

    Raises BackendUnavailable: there is none, or there are two.
    """
    return _through_cupy(load("nccl", SONAME))


_through_cupy = cache(CupyNccl)


def reserve_settings() -> None:
    """Make room in the environment for what `settings` adds, before the library has threads that read it.

    The C library moves the whole block when a name is added, but not while there is room that another one left.
    """
    with settings(dict.fromkeys(COMMUNICATOR_VARIABLES, "")):
        pass


@contextlib.contextmanager
def settings(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables that the library reads when a communicator is made, and not after."""
    known, of_c = dict(os.environ), _c_environment()
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            if name in known:
                os.environ[name] = known[name]
            else:
                os.environ.pop(name, None)
                if name in of_c:  # NCCL has it from a file, and Python does not know it
                    os.putenv(name, of_c[name])


_CONNECTIONS, _CHOICES = "INIT,P2P,SHM,NET", "TUNING"  # what is logged outside of `observe`, and in it
#: By number, which NCCL before 2.24 wrote (nccl.h and include/device.h of that time).
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
#: What is logged for an operation: a kernel by algorithm and protocol, from 2.27 on a symmetric kernel by its name, and
#: from 2.29 on the copy engines, which run no kernel.
_CHOICE = re.compile(
    r"Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
    r"|\[Symmetric\]: \d+ Bytes -> Kernel (?:[^_\s]+_)?(?P<kernel>\w+)"
    r"|\[(?P<engines>Copy Engine|Hierarchical CE)\]: \d+ Bytes -> "
)
#: What is logged of connections: by a transport, by NVLink SHARP once for all ranks of a node; and a loaded net plugin.
_NVLS = re.compile(r"NVLS comm \S+ headRank")
_PLUGIN = re.compile(r"NET/Plugin: Loaded net plugin (.+?) \((v\d+)\)")
_VIA = re.compile(r"(?:Channel|CollNet) \d+(?:/\d+)? : \S+(?: -> \S+)?(?: \[\w+\])? via ([^,\n]+)")


UNKNOWN_CHOICE = "algorithm and protocol unknown: this NCCL has no function that switches its log for one operation"


class NcclLog:
    """The log of this process. One that the user asked for (NCCL_DEBUG is set) is not read.

    It is made before the library reads its environment, and logs connections from then on, to a memory file, of which
    nothing is left however this process ends. All variables are set once, and later only the value of one changes: the
    library's threads read the environment, which must not be reallocated.
    """

    def __init__(self) -> None:
        self._ours = "NCCL_DEBUG" not in os.environ or "NCCL_DEBUG" in own_names(os.environ)
        self._file = os.memfd_create("collbench-nccl") if self._ours else -1  # open as long as the library may write
        self._transports: set[str] = set()
        self._plugin: str | None = None
        self._warning: str | None = None
        if self._ours:
            file = f"/proc/self/fd/{self._file}"
            set_own({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": _CONNECTIONS, "NCCL_DEBUG_FILE": file})

    def _read(self) -> str:
        """What was written since `_clear`; the library does not buffer it."""
        if not self._ours:
            return ""
        text = os.pread(self._file, os.fstat(self._file).st_size, 0).decode("utf-8", errors="replace")
        self._transports |= set(transports(text))
        plugins = _PLUGIN.findall(text)
        self._plugin = " ".join(plugins[-1]) if plugins else self._plugin
        warnings = re.findall(r"NCCL WARN (.*)", text)
        self._warning = warnings[-1].strip() if warnings else self._warning
        return text

    def _clear(self) -> None:
        self._read()
        os.ftruncate(self._file, 0)

    def transport(self) -> str | None:
        """`P2P/IPC, SHM/direct`: the transports of all connections of this rank so far; a network with its plugin."""
        self._read()
        of_plugin = f"NET/{self._plugin.rpartition(' ')[0]}/" if self._plugin else None  # it may be loaded, not used
        named = (f"{name} (plugin {self._plugin})" if of_plugin and f"{name}/".startswith(of_plugin) else name
                 for name in sorted(self._transports))  # fmt: skip
        return ", ".join(named) or None

    def last_warning(self) -> str | None:
        """The last NCCL WARN line, which says more than an error code."""
        self._read()
        return self._warning

    def forget_warnings(self) -> None:
        """Those so far are not about what comes next."""
        if self._ours:
            self._clear()
        self._warning = None

    def observe(
        self, reread: Callable[[], bool], once: Callable[[], object], notes: tuple[str, ...] = ()
    ) -> Observation:
        """Perform an operation, and say what the library chose for it. Every rank does the same.

        `reread` makes the library read its settings again; where it cannot, a note says so beside those of the caller.
        """
        if not self._ours:
            once()
            return Observation(notes=notes)
        text = ""
        self._clear()
        os.environ["NCCL_DEBUG_SUBSYS"] = _CHOICES
        try:
            switched = reread()
            once()
            text = self._read() if switched else ""
        finally:
            os.environ["NCCL_DEBUG_SUBSYS"] = _CONNECTIONS
            reread()
        return replace(chosen(text, self.transport()), notes=(*notes, *([] if switched else [UNKNOWN_CHOICE])))


def transports(text: str) -> list[str]:
    return [transport.strip() for transport in _VIA.findall(text)] + ["NVLS"] * bool(_NVLS.search(text))


def chosen(text: str, transport: str | None = None) -> Observation:
    """Algorithm and protocol of the last operation in a log; of a symmetric kernel its name in place of a protocol."""
    choices = [*_CHOICE.finditer(text)]
    if not choices:
        return Observation(transport=transport)
    last = choices[-1]
    if last["kernel"]:
        return Observation("SYMMETRIC", last["kernel"], transport)
    if last["engines"]:
        return Observation(last["engines"].upper().replace(" ", "_"), None, transport)
    return Observation(_named(last["algorithm"], _ALGORITHMS), _named(last["protocol"], _PROTOCOLS), transport)


def _named(word: str, names: tuple[str, ...]) -> str:
    return names[int(word)] if word.isdigit() and int(word) < len(names) else word


#: As many are kept. A library may take some hundred MB for each, and a plan may ask for dozens of settings.
MOST = 4


class Communicators:
    """By what they were made for, the most recently used last. None: this rank is no member."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Communicator | None] = {}
        self._asking = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Communicator | None]) -> Communicator | None:
        """That of a key, made if it does not exist. Collective: all ranks ask for the same keys in the same order."""
        if key not in self._made:
            if len(self._made) >= MOST:
                self._destroy(next(iter(self._made)))
            self._made[key] = make()
        self._made[key] = comm = self._made.pop(key)
        return comm

    def _destroy(self, key: Hashable) -> None:
        comm = self._made.pop(key)
        if comm is not None:
            gc.collect()  # graphs of earlier cases: the library waits until none uses the communicator
            with self._asking:
                comm.destroy()

    def drop(self, key: Hashable) -> None:
        """Abort that of a key, where it exists: a call with it has failed, and left it in an unknown state."""
        comm = self._made.pop(key, None)
        if comm is not None:
            with self._asking:
                comm.abort()

    def close(self) -> None:
        for key in list(self._made):
            self._destroy(key)

    def async_error(self) -> str | None:
        """An asynchronous error of any of them. From any thread, without waiting while one is being destroyed."""
        if not self._asking.acquire(blocking=False):
            return None
        try:
            errors = (comm.async_error() for comm in list(self._made.values()) if comm is not None)
            return next((error for error in errors if error), None)
        finally:
            self._asking.release()

    def abort(self) -> None:
        """All of them, the one in use first. From any thread."""
        for comm in reversed(list(self._made.values())):
            if comm is not None:
                comm.abort()
