"""NCCL's functions on the double's memory: ranks meet through MPI, but not before the stream is waited for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from collbench.bindings.mpi import load_mpi
from collbench.collectives.row import C
from collbench.machine import launcher
from collbench.timing.loop import Native
from tests.double.communicator import CALLS, DIRECT, INVALID_ARGUMENT, DoubleComm
from tests.double.device import DoubleDevice
from tests.double.functions import Code, Functions, crash
from tests.double.log import DoubleLog

INVALID_USAGE = 5  # ncclInvalidUsage of nccl.h
#: The first versions with ncclCommWindowRegister, with ncclAlltoAll, ncclGather and ncclScatter, and with parameters.
WINDOWS, FUNCTIONS, PARAMETERS = (2, 27, 0), (2, 28, 0), (2, 30, 7)
PUBLISHED = {"NCCL_DEBUG": "<unknown>", "NCCL_SET_THREAD_NAME": "FALSE"}  # with defaults


class Group:
    """What is between ncclGroupStart and ncclGroupEnd: calls that are not launched yet, and the first error."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[tuple[DoubleComm, str, tuple[int, ...]]] = []
        self.error: Code | None = None

    def start(self) -> None:
        """ncclGroupStart."""
        self.depth += 1

    def end(self) -> None:
        """ncclGroupEnd: launches all, or nothing where a call failed."""
        if self.depth == 0:
            raise Code(INVALID_USAGE)
        self.depth -= 1
        if self.depth > 0:
            return
        calls, error = self.calls, self.error
        self.calls, self.error = [], None
        if error is not None:
            raise error
        for comm in dict.fromkeys(comm for comm, _, _ in calls):
            comm.launch([(name, words) for owner, name, words in calls if owner is comm])


class Failing:
    """DOUBLE_FAILS=FUNCTION:CODE[:RANK[:N]]: a call that fails, on one rank or on all, from the N-th time on."""

    def __init__(self) -> None:
        function, code, rank, first = [*os.environ.get("DOUBLE_FAILS", "").split(":"), "", "", ""][:4]
        here = rank in ("", str(launcher.detect().rank))
        self._function, self._code, self._calls = function if here else "", code, 0
        self._first = int(first or 1)

    def refuse(self, function: str) -> None:
        """Raises the code, where this call is to fail."""
        self._calls += function == self._function
        if function == self._function and self._calls >= self._first:
            raise Code(int(self._code))


class DoubleNccl:
    """See `collbench.bindings.gpu.nccl.Nccl`."""

    def __init__(self, device: Callable[[], DoubleDevice | None]) -> None:
        self._device = device
        other = launcher.detect().rank == int(os.environ.get("DOUBLE_OTHER_NCCL", "-1"))
        self.path = "/elsewhere/libdouble.so" if other else "/nowhere/libdouble.so"
        major, minor, patch = map(int, os.environ.get("DOUBLE_NCCL_VERSION", "2.30.1").split("."))
        self.version = (major, minor, patch)
        self.log = DoubleLog()
        self._functions = Functions([])
        self._serial = 0
        self._comms: dict[int, DoubleComm] = {}
        self._group = Group()
        self._memories: dict[int, Any] = {}
        self.registered: dict[int, int] = {}  # address of memory: of its communicator
        self.windows: dict[int, tuple[int, int]] = {}  # address of memory: of its communicator, and its size
        self._failing = Failing()
        self.group_start, self.group_end = self._group.start, self._group.end
        self._functions.add("ncclGroupStart", self.group_start, 0)
        self._functions.add("ncclGroupEnd", self.group_end, 0)
        for name, words in CALLS.items():
            if self.has(f"nccl{name}"):
                self._functions.add(f"nccl{name}", partial(self._called, name), words)
        self.native: Callable[[C], Native | None] = self._functions.native

    def _called(self, name: str, *words: int) -> None:
        *arguments, comm, stream = words
        self.issue(self._comms[comm], name, *arguments, stream)

    def issue(self, comm: DoubleComm, name: str, *words: int) -> None:
        """A call, from C or from Python: launched at once, or with its group."""
        *arguments, stream = words
        try:
            comm.refuse_if_freed()
            self._failing.refuse(f"nccl{name}")
            DoubleDevice.check(stream)
            comm.check(name, tuple(arguments))
        except Code as error:
            self._group.error = self._group.error or (error if self._group.depth else None)
            raise
        if self._group.depth:
            self._group.calls.append((comm, name, tuple(arguments)))
        else:
            comm.launch([(name, tuple(arguments))])

    def unique_id(self) -> Any:
        self._serial += 1
        return (load_mpi().COMM_WORLD.rank, self._serial)

    def communicator(self, size: int, unique_id: Any, rank: int, cta_policy: str) -> DoubleComm:
        device = self._device()
        assert device is not None, "a rank without a device makes no communicator"
        if os.environ.get("NCCL_ALGO", "") in os.environ.get("DOUBLE_REFUSES", "-").split(","):
            raise RuntimeError("double: no such algorithm")
        comm = DoubleComm(self, device, size, unique_id, rank)
        if os.environ.get("DOUBLE_SAYS_SETTINGS"):
            said = f"double: {rank}: {os.environ.get('NCCL_ALGO')} {os.environ.get('NCCL_PROTO')} {cta_policy}\n"
            os.write(2, said.encode())
        self._comms[comm.address] = comm
        return comm

    def forget(self, comm: DoubleComm) -> None:
        """What was registered with it; the memory itself is still there."""
        self.registered = {memory: owner for memory, owner in self.registered.items() if owner != comm.address}
        self.windows = {memory: window for memory, window in self.windows.items() if window[0] != comm.address}

    def refuse_half_symmetric(self, comm: DoubleComm, addresses: tuple[int, ...]) -> None:
        """A collective on windows is symmetric: all of its memory lies in windows of its communicator."""
        ranges = [(start, start + size) for start, (owner, size) in self.windows.items() if owner == comm.address]
        inside = [any(start <= address < end for start, end in ranges) for address in addresses]
        if ranges and not all(inside):
            crash("a symmetric collective on memory that is no window")

    def explain(self, code: int) -> str:
        return f"double: error {code}"

    def has(self, function: str) -> bool:
        name = function.removeprefix("nccl")
        return name in CALLS and (name not in DIRECT or self.version >= FUNCTIONS)

    def call(self, function: str, *arguments: Any) -> int | None:
        """What is called at once: memory of NCCL's own, its log, and what Python has no method for."""
        if (name := function.removeprefix("nccl")) in DIRECT:
            return self._call_directly(name, *arguments)
        if name.startswith("CommWindow"):
            return self._window(name, *arguments) if self.version >= WINDOWS else None
        if function.startswith("ncclParam"):
            return self._parameter(function, *arguments) if self.version >= PARAMETERS else None
        if function == "ncclMemAlloc" and (device := self._device()) is not None:
            return self._allocate(device, *arguments)
        if function == "ncclMemFree":
            if arguments[0].value in self.registered or arguments[0].value in self.windows:
                crash("memory is freed before it was deregistered")
            self._memories.pop(arguments[0].value)
        elif function == "ncclCommRegister":
            arguments[3]._obj.value = arguments[1].value
            self.registered[arguments[1].value] = arguments[0].value
        elif function == "ncclCommDeregister":
            self._comms[arguments[0].value].refuse_if_freed()
            self.registered.pop(arguments[1].value)
        elif function in os.environ.get("DOUBLE_RESETS", "ncclResetDebugInit").split(","):
            self.log.reset()
        else:
            return None
        return 0

    def _allocate(self, device: DoubleDevice, pointer: Any, size: Any) -> int:
        if size.value > device.free()[0]:
            return 1
        memory = device.allocate(size.value)
        self._memories[memory.address] = memory
        pointer._obj.value = memory.address
        return 0

    def _parameter(self, function: str, *arguments: Any) -> int:
        """The keys, or the value of one, which is text."""
        if function == "ncclParamGetAllParameterKeys":
            self._keys = (ctypes.c_char_p * len(PUBLISHED))(*map(str.encode, PUBLISHED))
            arguments[0]._obj.contents = ctypes.c_char_p.from_buffer(self._keys)
            arguments[1]._obj.value = len(PUBLISHED)
        elif (key := arguments[0].decode()) in PUBLISHED:
            arguments[1]._obj.value = os.environ.get(key, PUBLISHED[key]).encode()
        else:
            return INVALID_ARGUMENT
        return 0

    def _call_directly(self, name: str, *arguments: Any) -> int:
        *words, comm, stream = (argument.value or 0 for argument in arguments)
        try:
            self.issue(self._comms[comm], name, *words, stream)
        except Code as error:
            return error.number
        return 0

    def _window(self, name: str, comm: Any, pointer: Any, *more: Any) -> int:
        """A registration is collective: it waits for all ranks, which must give memory of NCCL's own, and as much."""
        owner = self._comms[comm.value]
        owner.refuse_if_freed()
        if name == "CommWindowDeregister":
            self.windows.pop(pointer.value)
            return 0
        size, window, flags = more
        if flags.value != 1 or pointer.value not in self._memories:
            crash("a window needs NCCL_WIN_COLL_SYMMETRIC and memory of ncclMemAlloc")
        if len(set(owner.exchange(size.value))) > 1:
            crash("windows of several sizes")
        window._obj.value = pointer.value
        self.windows[pointer.value] = (comm.value, size.value)
        return 0
