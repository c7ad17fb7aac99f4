"""Backend `nccl`: data on GPUs, moved by NCCL, called from C or through CuPy. MPI starts the ranks."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from collbench.bindings.gpu.assignment import DeviceMpiBackend, DeviceMpiSession, agree, on_all
from collbench.bindings.gpu.device import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Device,
    DeviceBlocks,
    buffer_of,
    copy_step,
    host_blocks,
    issued,
    no_room,
    wait_step,
)
from collbench.bindings.gpu.nccl import (
    COMMUNICATOR_VARIABLES,
    DATATYPE,
    DIRECT,
    NCCL_PACKAGES,
    NCCL_VARIABLES,
    OP,
    Communicator,
    Communicators,
    Nccl,
    NcclLog,
    function_notes,
    library_settings,
    refuse_cta_policy,
    refuse_dtype,
    reread_settings,
    reserve_settings,
    says_lost,
    settings,
    share_variables,
)
from collbench.bindings.mpi import LARGEST_COUNT, native_call
from collbench.bindings.spec import (
    HostArguments,
    Operation,
    WorldSettings,
    binder_of,
    first_of,
    first_value,
    make_call,
    operation_of,
    page_aligned,
)
from collbench.collectives.row import Array, Binder, C, CallStep, Collective, CollectiveCase, Prepared
from collbench.errors import LibraryError, Unsupported
from collbench.machine.launcher import set_own
from collbench.schema.axes import DTYPES, CtaPolicy, Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.loop import Call, Halt

T = TypeVar("T")


class NcclArguments(HostArguments):
    """See `collbench.collectives.dialects.NcclDialectArguments`: in device memory."""

    def __init__(
        self, nccl: Nccl, comm: Communicator, device: Device,
        case: CollectiveCase, row: Collective, count: int, rank: int,
    ) -> None:  # fmt: skip
        refuse_dtype(case.dtype, case.op, nccl.version, device.capability)
        super().__init__(case, row, count, rank)
        self.comm, self.stream = comm, device.stream
        self.datatype, self.op = DATATYPE[case.dtype], OP[case.op or "sum"]
        self._nccl, self._device, self.case = nccl, device, case
        self._registered: list[Registered] = []

    def buffer(self, blocks: int) -> DeviceBlocks:
        """Device memory [blocks, count]; where the case says so, known to the communicator after `register`."""
        size = blocks * self.count * DTYPES[self.dtype]
        how = REGISTERING.get(self.case.registration)
        if how is None or size == 0:
            return DeviceBlocks(self._device, self._device.allocate(size), blocks, self.count, self.dtype)
        memory = Registered(how, self._nccl, self.comm, self._device, size)
        self._registered.append(memory)
        return DeviceBlocks(self._device, memory, blocks, self.count, self.dtype)

    def register(self) -> None:
        """Make the buffers known to the communicator, in their order. Windows: collective."""
        for memory in self._registered:
            memory.register()

    def send_to(self, blocks: DeviceBlocks, peer: int) -> CallStep:
        return self._pass(self.comm.send, "ncclSend", blocks, peer)

    def recv_from(self, blocks: DeviceBlocks, peer: int) -> CallStep:
        return self._pass(self.comm.recv, "ncclRecv", blocks, peer)

    def _pass(self, python: Callable[..., object], function: str, blocks: DeviceBlocks, peer: int) -> CallStep:
        numbers = (len(blocks) * self.count, self.datatype, peer)
        call = C(function, blocks, *numbers, self.comm, self.stream)
        return CallStep(partial(python, blocks.address, *numbers, self.stream), (call,))

    def direct(
        self, function: str, source: DeviceBlocks | None, target: DeviceBlocks | None, *numbers: int
    ) -> CallStep | None:
        """Of CuPy's NCCL too, through ctypes: its communicators have no such method."""
        if not self._nccl.has(function):
            return None
        blocks = [ctypes.c_void_p(None if part is None else part.address) for part in (source, target)]
        count, *others = numbers
        words = (*blocks, ctypes.c_size_t(count), *map(ctypes.c_int, others),
                 ctypes.c_void_p(self.comm.address), ctypes.c_void_p(self.stream))  # fmt: skip

        def python() -> None:
            if code := self._nccl.call(function, *words):
                raise LibraryError(f"{function} returned an error ({self._nccl.explain(code)})")

        return CallStep(python, (C(function, source, target, *numbers, self.comm, self.stream),))

    def grouped(self, *steps: CallStep) -> CallStep:
        """Between ncclGroupStart and ncclGroupEnd, which is called after a failure too.

        A group that stays open takes in every later call of this thread, and none of them is ever launched.
        """
        start, end = self._nccl.group_start, self._nccl.group_end
        pythons = tuple(step.python for step in steps)

        def python() -> None:
            start()
            try:
                for call in pythons:
                    call()
            except BaseException:
                with contextlib.suppress(RuntimeError):  # it repeats the error
                    end()
                raise
            end()

        close = C("ncclGroupEnd")
        calls = (C(call.function, *call.arguments, after_error=close) for step in steps for call in step.c)
        return CallStep(python, (C("ncclGroupStart"), *calls, close))


@dataclass(frozen=True)
class Registering:
    """The functions that make memory known to a communicator, and the first version of NCCL that has them."""

    since: str
    register: str
    deregister: str
    flags: tuple[Any, ...] = ()


SYMMETRIC = ctypes.c_int(1)  # NCCL_WIN_COLL_SYMMETRIC of nccl.h

#: By `CollectiveCase.registration`. Windows are registered by all ranks at once, with one size.
REGISTERING = {
    "local": Registering("2.19", "ncclCommRegister", "ncclCommDeregister"),
    "symmetric": Registering("2.27", "ncclCommWindowRegister", "ncclCommWindowDeregister", (SYMMETRIC,)),
}


class Registered:
    """`Memory` from ncclMemAlloc, after `register` known to a communicator until it is freed."""

    def __init__(self, how: Registering, nccl: Nccl, comm: Communicator, device: Device, size: int) -> None:
        self._how, self._device, self._size = how, device, size
        self._nccl, self._owner, self._comm = nccl, comm, ctypes.c_void_p(comm.address)
        self._pointer, self._handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("ncclMemAlloc", ctypes.byref(self._pointer), ctypes.c_size_t(size))
        self.address = self._pointer.value or 0

    def register(self) -> None:
        """Raises Unsupported, MemoryError, LibraryError."""
        size, handle = ctypes.c_size_t(self._size), ctypes.byref(self._handle)
        self._call(self._how.register, self._comm, self._pointer, size, handle, *self._how.flags)

    def _call(self, function: str, *arguments: Any) -> None:
        code = self._nccl.call(function, *arguments)
        if code is None:
            version = ".".join(map(str, self._nccl.version))
            raise Unsupported(f"NCCL {version} has no {function}; {self._how.since} and later do")
        if code and self._device.free()[0] < self._size:
            raise MemoryError(no_room(self._device, self._size))
        if code:
            raise LibraryError(f"{function} returned error {code}")

    def __del__(self) -> None:
        if self._handle and not self._owner.freed:
            self._nccl.call(self._how.deregister, self._comm, self._handle)
        if self._pointer:
            self._nccl.call("ncclMemFree", self._pointer)


def refuse_window(case: CollectiveCase, row: Collective) -> None:
    """Raises Unsupported, on all ranks: windows are collective, and have one size."""
    if case.registration != "symmetric":
        return
    sizes = {row.blocks(rank, case.ranks, case.root or 0) for rank in range(case.ranks)}
    if row.has_server or len(sizes) > 1:
        raise Unsupported(f"symmetric windows have one size on all ranks, and the buffers of {row.name} do not")


TAG = 27  # tag of the messages between server and chief

#: MPI's datatypes by item size: messages between server and chief are not reduced.
_CARRIED = {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T", 8: "UINT64_T"}


def chief_of(root: int) -> int:
    """The first worker, where `root` is the server."""
    return int(root == 0)


class ServerLink:
    """Messages between the server and the chief, as either of them."""

    def __init__(self, mpi: Any, case: CollectiveCase, count: int, rank: int) -> None:
        if max(1, case.ranks - 1) * count > LARGEST_COUNT:
            much = f"{count} elements of each worker in one message"
            raise Unsupported(f"{much}; MPI's int counts end at {LARGEST_COUNT}")
        server = case.root or 0
        self._other = chief_of(server) if rank == server else server
        self._mpi, self._world, self._itemsize = mpi, mpi.COMM_WORLD, DTYPES[case.dtype]

    def send(self, blocks: Array) -> CallStep:
        return self._pass(self._world.Send, "MPI_Send", blocks)

    def recv(self, blocks: Array) -> CallStep:
        return self._pass(self._world.Recv, "MPI_Recv", blocks, self._mpi.Status())

    def _pass(self, python: Callable[..., object], function: str, blocks: Array, *status: Any) -> CallStep:
        datatype = getattr(self._mpi, _CARRIED[self._itemsize])
        raw = blocks.view(f"u{self._itemsize}")
        call = C(function, raw, raw.size, datatype, self._other, TAG, self._world, *status)
        return CallStep(partial(python, [raw, datatype], self._other, TAG), (call,))


class ServerArguments(HostArguments):
    """See `collbench.collectives.dialects.ServedArguments`: of the server, which has host memory and its link."""

    serving, chief = True, False

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int, rank: int) -> None:
        super().__init__(case, row, count, rank)
        link = ServerLink(mpi, case, count, rank)
        self.link_send, self.link_recv = link.send, link.recv


class WorkerArguments(NcclArguments):
    """See `collbench.collectives.dialects.ServedArguments`: of a worker. `rank` is the world's."""

    serving = False

    def __init__(
        self, mpi: Any, nccl: Nccl, comm: Communicator, device: Device,
        case: CollectiveCase, row: Collective, count: int, rank: int,
    ) -> None:  # fmt: skip
        super().__init__(nccl, comm, device, case, row, count, rank)
        self.chief = rank == chief_of(self.root)
        link = ServerLink(mpi, case, count, rank)
        self.link_send, self.link_recv = link.send, link.recv

    def landing(self, blocks: int) -> Array:
        self.blocks_held += blocks
        pageable = partial(page_aligned, blocks, self.count, self.dtype)
        return host_blocks(self._device, self.case, blocks, self.count, pageable)

    def copy_in(self, target: DeviceBlocks, source: Array) -> CallStep:
        return copy_step(self._device, target.address, source.ctypes.data, source.nbytes, HOST_TO_DEVICE)

    def copy_out(self, target: Array, source: DeviceBlocks) -> CallStep:
        return copy_step(self._device, target.ctypes.data, source.address, target.nbytes, DEVICE_TO_HOST)

    def wait(self) -> CallStep:
        return wait_step(self._device)


#: Before communicators are aborted, a call that does not wait for other ranks has this long to return (s).
CALLS_END = 0.5


class NcclSession(DeviceMpiSession):
    """One rank, with a GPU or as parameter server without one."""

    def __init__(self, backend: DeviceMpiBackend, mpi: Any, level: ThreadLevel, options: WorldSettings) -> None:
        super().__init__(backend, mpi, level, options)
        self._log = NcclLog()
        self._nccl = on_all(self.world, backend.name, self.runtime.nccl)
        self._reread = partial(reread_settings, self._nccl.call)
        self._reread()  # it may be loaded already, with another log
        version = ".".join(map(str, self._nccl.version))
        agree(self.world, backend.name, "NCCL", f"{version} ({self._nccl.path})")
        set_own(share_variables(self._nccl.version, self.world.rank) if self.assigned.shared else {})
        reserve_settings()
        self._comms = Communicators()
        self._in_use: Hashable = None  # the communicator of the last case
        self._halt = Halt()

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Buffers on the device, the row's NCCL call, completed by a wait for the stream."""
        binder = binder_of(self.backend, row, "nccl", "NCCL")
        self.assigned.refuse(row)
        refuse_window(case, row)
        refuse_cta_policy(case.cta_policy, case.driver, self._nccl.version)
        self._log.forget_warnings()
        comm, device = self._communicator(case, row), self.device
        if row.has_server:
            return self._with_server(binder, comm, case, row, count)
        assert comm is not None and device is not None
        arguments = NcclArguments(self._nccl, comm, device, case, row, count, self.world.rank)
        prepared = self._allocated(binder, arguments)
        direct = DIRECT.get(row.name) in {call.function for call in prepared.c or ()}
        observe = partial(self._log.observe, self._reread, notes=function_notes(row.name, direct))
        completion = issued(device, wait_step(device))
        symbols = first_of(self._nccl.native, device.native)
        call = make_call(prepared, symbols, (arguments,), completion, device.stopwatch(), self._halt)
        if not case.graph:
            return operation_of(prepared, call, 0, buffer_of, observe)
        try:  # NCCL connects its ranks in the first call, which must not be captured
            observation = observe(lambda: _perform(call))
        except RuntimeError as error:
            raise LibraryError(f"{row.name} cannot be performed: {self.explained(error)}") from error
        (stage,) = call.stages
        captured = replace(call, stages=(device.capture(stage.python, case.graph),), keep=(call,))
        return operation_of(prepared, captured, 0, buffer_of, lambda _: observation)

    def _allocated(self, binder: Binder, arguments: NcclArguments) -> Prepared:
        """The row's call with its buffers. Where what follows is collective, on all ranks or on none."""
        agreed = bool(arguments.case.graph) or arguments.case.registration == "symmetric"
        prepared = self._on_all(lambda: binder(arguments)) if agreed else binder(arguments)
        if arguments.case.registration == "symmetric":
            self._on_all(arguments.register)
        else:
            arguments.register()
        return prepared

    def _on_all(self, act: Callable[[], T]) -> T:
        """What it returns, or what it raised on the first rank where it failed."""
        results: list[T] = []
        failure: Exception | None = None
        try:
            results.append(act())
        except (MemoryError, LibraryError) as error:
            failure = error.with_traceback(None)
        first = first_value(self.world, failure)
        if first is not None:
            raise first
        return results[0]

    def _with_server(
        self, binder: Binder, comm: Communicator | None, case: CollectiveCase, row: Collective, count: int
    ) -> Operation:
        """A call that is complete when it returns: its last part waits for the stream."""
        device, rank = self.device, self.world.rank
        arguments: ServerArguments | WorkerArguments
        if rank == case.root:
            arguments = ServerArguments(self._mpi, case, row, count, rank)
        else:
            assert comm is not None and device is not None
            arguments = WorkerArguments(self._mpi, self._nccl, comm, device, case, row, count, rank)
        prepared = binder(arguments)
        if isinstance(arguments, WorkerArguments):
            arguments.register()
        mpi = partial(native_call, self._mpi)
        symbols = first_of(mpi, self._nccl.native, None if device is None else device.native)
        call = make_call(prepared, symbols, (arguments,), halt=self._halt)
        observe = partial(self._log.observe, self._reread)
        return operation_of(prepared, call, arguments.blocks_held, buffer_of, observe)

    def _communicator(self, case: CollectiveCase, row: Collective) -> Communicator | None:
        """The communicator of a case, made where there is none; None on a server. Collective."""
        server = case.root if row.has_server else None
        self._in_use = key = (server, case.algorithm, case.protocol, case.cta_policy)
        self._halt.block_if_set()
        comm = self._comms.get(key, partial(self._made_for, *key))
        self._halt.block_if_set()  # others may have been waited for, and memory may be registered with it now
        return comm

    def _made_for(
        self, server: int | None, algorithm: str | None, protocol: str | None, cta_policy: CtaPolicy
    ) -> Communicator | None:  # fmt: skip
        members = [rank for rank in range(self.world.size) if rank != server]
        unique_id = self._nccl.unique_id() if self.world.rank == members[0] else None
        unique_id = self.world.bcast_from(unique_id, members[0])
        if self.world.rank not in members:
            return None
        variables = zip(COMMUNICATOR_VARIABLES, (algorithm, protocol), strict=True)
        try:
            with settings({name: value for name, value in variables if value is not None}):
                rank = members.index(self.world.rank)
                return self._nccl.communicator(len(members), unique_id, rank, cta_policy)
        except RuntimeError as error:
            raise LibraryError(f"no communicator of {len(members)} ranks: {self.explained(error)}") from error

    @property
    def transport(self) -> str | None:
        return self._log.transport()

    def async_error(self) -> str | None:
        self._halt.block_if_set()
        error = self._comms.async_error()
        return None if error is None else f"NCCL: {error}"

    def abort_call(self) -> None:
        """ncclCommAbort, of the communicator in use first: kernels that wait for a lost rank end.

        It also frees the communicator, and ends the wait of the main thread, which must not make another call.
        """
        self._halt.set()
        self._halt.wait_for_caller(CALLS_END)
        self._comms.abort()

    def reset(self) -> None:
        """Abort the communicator of the last case: some of its ranks may be connected, and others not."""
        self._halt.block_if_set()
        self._comms.drop(self._in_use)

    def close(self) -> None:
        self._halt.block_if_set()
        self._comms.close()

    def explained(self, error: Exception) -> str:
        """With the last warning of NCCL's log about this case, which names a cause such as memory that ran out."""
        text, warning = str(error), self._log.last_warning()
        return text if warning is None or warning in text else f"{text}; {warning}"

    def is_lost_rank(self, error: BaseException) -> bool:
        """True for operations that were aborted, and where NCCL reports that a remote process is gone."""
        return self._halt.is_set or says_lost(error)


def _perform(call: Call) -> None:
    for stage in (*call.stages, *(() if call.completion is None else (call.completion,))):
        call.halt.block_if_set()
        stage.python()


class NcclBackend(DeviceMpiBackend):
    """See the module."""

    name = "nccl"
    summary = "NCCL on the GPUs: the library's C functions, or CuPy"
    session = NcclSession
    streams = True
    axes: frozenset[str] = frozenset({"algorithm", "protocol", "cta_policy", "registration", "graph", "server staging"})
    ops: tuple[Op, ...] = tuple(OP)
    variables = (*DeviceMpiBackend.variables, *NCCL_VARIABLES)
    packages = (*DeviceMpiBackend.packages, *NCCL_PACKAGES)

    def dtypes(self) -> tuple[str, ...]:
        return tuple(DATATYPE)

    def libraries(self) -> tuple[Library, ...]:
        nccl = self.runtime.nccl()
        version, has = ".".join(map(str, nccl.version)), library_settings(nccl.call)
        return (Library(name="NCCL", version=version, path=nccl.path, settings=has), *super().libraries())


BACKEND = NcclBackend()
