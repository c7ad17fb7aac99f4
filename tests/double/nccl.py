"""NCCL's functions on the double's memory: ranks meet through MPI, but not before the stream is waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from collbench.backends.parts import launcher
from collbench.backends.parts.gpu.nccl_library import DATATYPE, OP
from collbench.backends.parts.host_buffers import numpy_dtype
from collbench.backends.parts.mpi_loading import load_mpi
from collbench.collectives.row import Array, C
from collbench.timing.call import Native
from tests.double.device import Code, DoubleDevice, Functions

_DTYPE = {number: numpy_dtype(name) for name, number in DATATYPE.items()}
_OP = {number: name for name, number in OP.items()}
_UFUNC = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


class DoubleNccl:
    """See `collbench.backends.parts.gpu.nccl_library.Nccl`."""

    def __init__(self, device: Callable[[], DoubleDevice | None]) -> None:
        self._device = device
        other = launcher.detect().rank == int(os.environ.get("DOUBLE_OTHER_NCCL", "-1"))
        self.path = "/elsewhere/libdouble.so" if other else "/nowhere/libdouble.so"
        self.version = (2, 30, 1)
        self.trace: list[str] = []
        self._functions = Functions(self.trace)
        self._serial = 0
        self._comms: dict[int, DoubleComm] = {}
        self.group: list[tuple[DoubleComm, str, tuple[int, ...]]] | None = None
        self._registered: dict[int, Any] = {}
        self.fails = os.environ.get("DOUBLE_FAILS", "").partition(":")
        self._functions.add("ncclGroupStart", self.group_start, 0)
        self._functions.add("ncclGroupEnd", self.group_end, 0)
        for name, words in (("AllReduce", 7), ("Reduce", 8), ("Broadcast", 7), ("AllGather", 6), ("ReduceScatter", 7),
                            ("Send", 6), ("Recv", 6)):  # fmt: skip
            self._functions.add(f"nccl{name}", partial(self._called, f"nccl{name}"), words)
        self.native: Callable[[C], Native | None] = self._functions.native

    def check(self, name: str) -> None:
        """Refuse a function that is to fail."""
        failing, _, code = self.fails
        if failing == name:
            raise Code(int(code))

    def _called(self, name: str, *words: int) -> None:
        self.check(name)
        *arguments, comm, stream = words
        DoubleDevice.check(stream)
        getattr(self._comms[comm], name)(*arguments)

    def group_start(self) -> None:
        self.group = []

    def group_end(self) -> None:
        calls, self.group = self.group or [], None
        if calls:
            (comm,) = {comm for comm, _, _ in calls}
            comm.device.enqueue(partial(comm.exchange_group, [(what, words) for _, what, words in calls]))

    def unique_id(self) -> Any:
        self._serial += 1
        return (load_mpi().COMM_WORLD.rank, self._serial)

    def communicator(self, size: int, unique_id: Any, rank: int) -> DoubleComm:
        device = self._device()
        assert device is not None, "a rank without a device makes no communicator"
        if os.environ.get("NCCL_ALGO", "") in os.environ.get("DOUBLE_REFUSES", "-").split(","):
            raise RuntimeError("double: no such algorithm")
        comm = DoubleComm(self, device, size, unique_id, rank)
        if os.environ.get("DOUBLE_SAYS_SETTINGS"):
            said = f"double: {rank}: {os.environ.get('NCCL_ALGO')} {os.environ.get('NCCL_PROTO')}\n"
            os.write(2, said.encode())
        self._comms[comm.address] = comm
        return comm

    def call(self, function: str, *arguments: Any) -> int | None:
        """ncclMemAlloc and its like; the log cannot be switched."""
        device = self._device()
        if function == "ncclMemAlloc" and device is not None:
            if arguments[1].value > device.free()[0]:
                return 1
            memory = device.allocate(arguments[1].value)
            self._registered[memory.address] = memory
            arguments[0]._obj.value = memory.address
        elif function == "ncclMemFree":
            self._registered.pop(arguments[0].value)
        elif function == "ncclCommRegister":
            arguments[3]._obj.value = arguments[1].value
        elif function != "ncclCommDeregister":
            return None
        self.trace.append(function)
        return 0


class DoubleComm:
    """See `collbench.backends.parts.gpu.nccl_library.Communicator`. Exchanges everything through its rank 0."""

    all_reduce: Callable[..., object]
    reduce: Callable[..., object]
    broadcast: Callable[..., object]
    all_gather: Callable[..., object]
    reduce_scatter: Callable[..., object]
    send: Callable[..., object]
    recv: Callable[..., object]

    def __init__(self, library: DoubleNccl, device: DoubleDevice, size: int, unique_id: Any, rank: int) -> None:
        self.device, self.size, self.rank = device, size, rank
        self._library, self._world = library, load_mpi().COMM_WORLD
        self.address = 0xC000 + 64 * unique_id[1] + unique_id[0]
        self._tag = self.address
        self._leader = unique_id[0]
        self._exchanges = 0
        self._members: list[int] = []
        self._members = self._exchange(self._world.rank, self._meet())
        for name in ("AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv"):
            setattr(self, _PYTHON[name], partial(self._from_python, name))

    def _meet(self) -> list[int]:
        """World ranks of the members, which only the leader can collect."""
        if self.rank == 0:
            others = [self._world.recv(source=load_mpi().ANY_SOURCE, tag=self._tag) for _ in range(self.size - 1)]
            members = [self._world.rank, *[one for _, one in sorted(others)]]
            for other in members[1:]:
                self._world.send(members, other, self._tag)
            return members
        self._world.send((self.rank, self._world.rank), self._leader, self._tag)
        return list(self._world.recv(source=self._leader, tag=self._tag))

    def _lose(self) -> None:
        """DOUBLE_LOST=KIND:RANK:N: this rank hangs, or dies, in its N-th exchange."""
        kind, _, rest = os.environ.get("DOUBLE_LOST", "").partition(":")
        self._exchanges += 1
        if rest != f"{self._world.rank}:{self._exchanges}":
            return
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)

    def _exchange(self, value: Any, members: list[int] | None = None) -> list[Any]:
        self._lose()
        members = members or self._members
        if self.rank == 0:
            values = [value, *(self._world.recv(source=one, tag=self._tag) for one in members[1:])]
            for one in members[1:]:
                self._world.send(values, one, self._tag)
            return values
        self._world.send(value, members[0], self._tag)
        return list(self._world.recv(source=members[0], tag=self._tag))

    def _from_python(self, name: str, *arguments: int) -> None:
        self._library.check(f"nccl{name}")
        *words, stream = arguments
        DoubleDevice.check(stream)
        getattr(self, f"nccl{name}")(*words)

    def view(self, address: int, count: int, datatype: int) -> Array:
        dtype = _DTYPE[datatype]
        if count == 0:
            return np.zeros(0, dtype)
        found = self.device.at(address, count * dtype.itemsize)
        if found is None:
            raise Code(4)  # ncclInvalidArgument: not device memory
        return found.view(dtype)

    def _collective(self, source: Array | None, target: Array | None, result: Callable[[list[Any]], Array]) -> None:
        def happen() -> None:
            everybody = self._exchange(None if source is None else source.copy())
            if target is not None:
                target[...] = result(everybody)

        self.device.enqueue(happen)

    def _reduced(self, parts: list[Array], op: int) -> Array:
        total = parts[0]
        for part in parts[1:]:
            with np.errstate(all="ignore"):
                total = _UFUNC[_OP[op]](total, part)
        if _OP[op] == "avg":
            total = total // self.size if np.issubdtype(total.dtype, np.integer) else total / self.size
        return total

    def ncclAllReduce(self, send: int, recv: int, count: int, datatype: int, op: int) -> None:  # noqa: N802
        source, target = self.view(send, count, datatype), self.view(recv, count, datatype)
        self._collective(source, target, lambda parts: self._reduced(parts, op))

    def ncclReduce(self, send: int, recv: int, count: int, datatype: int, op: int, root: int) -> None:  # noqa: N802
        target = self.view(recv, count, datatype) if self.rank == root else None
        self._collective(self.view(send, count, datatype), target, lambda parts: self._reduced(parts, op))

    def ncclBroadcast(self, send: int, recv: int, count: int, datatype: int, root: int) -> None:  # noqa: N802
        source = self.view(send, count, datatype) if self.rank == root else None
        self._collective(source, self.view(recv, count, datatype), lambda parts: parts[root])

    def ncclAllGather(self, send: int, recv: int, count: int, datatype: int) -> None:  # noqa: N802
        target = self.view(recv, count * self.size, datatype)
        self._collective(self.view(send, count, datatype), target, np.concatenate)

    def ncclReduceScatter(self, send: int, recv: int, count: int, datatype: int, op: int) -> None:  # noqa: N802
        mine = slice(self.rank * count, (self.rank + 1) * count)
        source, target = self.view(send, count * self.size, datatype), self.view(recv, count, datatype)
        self._collective(source, target, lambda parts: self._reduced([part[mine] for part in parts], op))

    def ncclSend(self, *words: int) -> None:  # noqa: N802
        assert self._library.group is not None, "sends and receives are grouped"
        self._library.group.append((self, "send", words))

    def ncclRecv(self, *words: int) -> None:  # noqa: N802
        assert self._library.group is not None, "sends and receives are grouped"
        self._library.group.append((self, "recv", words))

    def exchange_group(self, calls: list[tuple[str, tuple[int, ...]]]) -> None:
        sent = [(peer, self.view(at, count, kind).copy()) for what, (at, count, kind, peer) in calls if what == "send"]
        everybody = self._exchange(sent)
        for what, (at, count, kind, peer) in calls:
            if what == "recv":
                messages = [data for target, data in everybody[peer] if target == self.rank]
                self.view(at, count, kind)[...] = messages[0]
                everybody[peer].remove(next(one for one in everybody[peer] if one[1] is messages[0]))

    def async_error(self) -> str | None:
        return os.environ.get("DOUBLE_ASYNC_ERROR")

    def abort(self) -> None:
        if os.environ.get("DOUBLE_ABORT_HANGS"):
            time.sleep(3600)
        if os.environ.get("DOUBLE_SAYS_ABORT"):
            os.write(2, f"double: communicator aborted on rank {self.rank}\n".encode())


_PYTHON = {
    "AllReduce": "all_reduce", "Reduce": "reduce", "Broadcast": "broadcast", "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter", "Send": "send", "Recv": "recv",
}  # fmt: skip
