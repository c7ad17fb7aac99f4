"""Backend `nccl`: data on GPUs, moved by NCCL, called from C or through CuPy. MPI starts the ranks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any

from collbench.bindings.gpu.assignment import DeviceMpiBackend, DeviceMpiSession, agree, on_all
from collbench.bindings.gpu.device import Device, device_buffers
from collbench.bindings.gpu.nccl import (
    COMMUNICATOR_VARIABLES,
    DATATYPE,
    NCCL_PACKAGES,
    NCCL_VARIABLES,
    OP,
    Communicator,
    Communicators,
    NcclArguments,
    NcclLog,
    ServerArguments,
    WorkerArguments,
    reserve_settings,
    says_lost,
    settings,
    share_variables,
)
from collbench.bindings.mpi import MpiSymbols
from collbench.bindings.operations import AllOf, binder_of, make_call
from collbench.bindings.spec import Operation, Options, Session, first_value
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Binder, C, Collective, Prepared
from collbench.errors import LibraryError
from collbench.machine.process import set_own
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.call import Call, Stage
from collbench.timing.halt import Halt

#: Before communicators are aborted, a call that does not wait for other ranks has this long to return (s).
CALLS_END = 0.5


class NcclSession(DeviceMpiSession):
    """One rank, with a GPU or as parameter server without one."""

    def __init__(self, backend: DeviceMpiBackend, mpi: Any, level: ThreadLevel, options: Options) -> None:
        super().__init__(backend, mpi, level, options)
        self._log = NcclLog()
        self._log.begin()
        self._nccl = on_all(self.world, backend.name, self.runtime.nccl)
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
        self._log.forget_warnings()
        comm, device = self._communicator(case, row), self.device
        if row.has_server:
            return self._with_server(binder, comm, case, row, count)
        assert comm is not None and device is not None
        observe = partial(self._log.observe, self._reread)
        arguments = NcclArguments(self._nccl, comm, device, case, row, count, self.world.rank)
        if not case.graph:
            prepared = binder(arguments)
            call = self._call(prepared, device, arguments)
            return Operation(*device_buffers(prepared), call, prepared.in_place, 0, observe)
        prepared = self._allocated(binder, arguments)
        call = self._call(prepared, device, arguments)
        try:  # NCCL connects its ranks in the first call, which must not be captured
            seen = observe(lambda: _perform(call))
        except RuntimeError as error:
            raise LibraryError(f"{row.name} cannot be performed: {self.explained(error)}") from error
        return Operation(
            *device_buffers(prepared), _captured(call, device, case.graph), prepared.in_place, 0, lambda _: seen
        )

    def _allocated(self, binder: Binder, arguments: NcclArguments) -> Prepared:
        """The row's call with its buffers, on all ranks or on none: what follows is collective."""
        prepared: list[Prepared] = []
        failure: Exception | None = None
        try:
            prepared.append(binder(arguments))
        except (MemoryError, LibraryError) as error:
            failure = error.with_traceback(None)
        first = first_value(self.world, failure)
        if first is not None:
            raise first
        return prepared[0]

    def _reread(self) -> bool:
        return self._nccl.call("ncclResetDebugInit") is not None

    def _call(self, prepared: Prepared, device: Device, arguments: NcclArguments) -> Call:
        wait = device.native(C("cudaStreamSynchronize", device.stream))
        completion = Stage(device.synchronize, None if wait is None else (wait,))
        symbols = AllOf(self._nccl, device)
        return make_call(prepared, symbols, (arguments,), completion, device.stopwatch(), self._halt)

    def _with_server(
        self,
        binder: Binder,
        comm: Communicator | None,
        case: CollectiveCase,
        row: Collective,
        count: int,
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
        symbols = AllOf(MpiSymbols(self._mpi), self._nccl, device)
        call = make_call(prepared, symbols, (arguments,), halt=self._halt)
        observe = partial(self._log.observe, self._reread)
        return Operation(*device_buffers(prepared), call, prepared.in_place, arguments.blocks_held, observe)

    def _communicator(self, case: CollectiveCase, row: Collective) -> Communicator | None:
        """The communicator of a case, made where there is none; None on a server. Collective."""
        server = case.root if row.has_server else None
        self._in_use = key = (server, case.algorithm, case.protocol)
        self._halt.block_if_set()
        comm = self._comms.get(key, partial(self._made_for, *key))
        self._halt.block_if_set()  # others may have been waited for, and memory may be registered with it now
        return comm

    def _made_for(self, server: int | None, algorithm: str | None, protocol: str | None) -> Communicator | None:
        members = [rank for rank in range(self.world.size) if rank != server]
        unique_id = self._nccl.unique_id() if self.world.rank == members[0] else None
        unique_id = self.world.tell(unique_id, members[0])
        if self.world.rank not in members:
            return None
        variables = zip(COMMUNICATOR_VARIABLES, (algorithm, protocol), strict=True)
        with settings({name: value for name, value in variables if value is not None}):
            return self._join(len(members), unique_id, members.index(self.world.rank))

    def _join(self, size: int, unique_id: Any, rank: int) -> Communicator:
        try:
            return self._nccl.communicator(size, unique_id, rank)
        except RuntimeError as error:
            raise LibraryError(f"no communicator of {size} ranks: {self.explained(error)}") from error

    @property
    def transport(self) -> str | None:
        return self._log.transport()

    def trouble(self) -> str | None:
        """What ncclCommGetAsyncError says of any communicator."""
        self._halt.block_if_set()
        error = self._comms.async_error()
        return None if error is None else f"NCCL: {error}"

    def break_off(self) -> None:
        """ncclCommAbort, of the communicator in use first: kernels that wait for a lost rank end.

        It also frees the communicator, and ends the wait of the main thread, which must not make another call.
        """
        self._halt.set()
        self._halt.wait_for_caller(CALLS_END)
        self._comms.abort()

    def start_over(self) -> None:
        """Abort the communicator of the last case: some of its ranks may be connected, and others not."""
        self._halt.block_if_set()
        self._comms.drop(self._in_use)

    def close(self) -> None:
        """Destroy the communicators: the next backend needs their memory."""
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


def _captured(call: Call, device: Device, operations: int) -> Call:
    """The call captured in a graph that holds it `operations` times; the stage launches the graph."""
    (stage,) = call.stages
    return replace(call, stages=(device.capture(stage.python, operations),), keep=(call,))


class NcclBackend(DeviceMpiBackend):
    """See the module."""

    name = "nccl"
    summary = "NCCL on the GPUs: the library's C functions, or CuPy"
    streams = True
    axes: frozenset[str] = frozenset({"algorithm", "protocol", "registered", "graph", "server staging"})
    ops: tuple[Op, ...] = tuple(OP)
    variables = (*DeviceMpiBackend.variables, *NCCL_VARIABLES)
    packages = (*DeviceMpiBackend.packages, *NCCL_PACKAGES)

    def dtypes(self) -> tuple[str, ...]:
        return tuple(DATATYPE)

    def libraries(self) -> tuple[Library, ...]:
        """NCCL, and the MPI of the control plane and of the server's messages."""
        nccl = self.runtime.nccl()
        own = Library(name="NCCL", version=".".join(map(str, nccl.version)), path=nccl.path)
        return (own, *super().libraries())

    def session(self, mpi: Any, level: ThreadLevel, options: Options) -> Session:
        return NcclSession(self, mpi, level, options)


BACKEND = NcclBackend()
