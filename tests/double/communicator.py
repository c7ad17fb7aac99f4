"""One rank's part of a communicator. Exchanges everything through its rank 0, when the stream is waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.bindings.gpu.nccl import DATATYPE, OP
from collbench.bindings.mpi import load_mpi
from collbench.bindings.spec import numpy_dtype
from collbench.collectives.row import Array
from tests.double.device import Aborted, DoubleDevice
from tests.double.functions import Code, crash

if TYPE_CHECKING:
    from tests.double.nccl import DoubleNccl

_DTYPE = {number: numpy_dtype(name) for name, number in DATATYPE.items()}
_OP = {number: name for name, number in OP.items()}
_UFUNC = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}

#: The calls, and how many words C takes for each.
CALLS = {"AllReduce": 7, "Reduce": 8, "Broadcast": 7, "AllGather": 6, "ReduceScatter": 7, "Send": 6, "Recv": 6,
         "AlltoAll": 6, "Gather": 7, "Scatter": 7}  # fmt: skip
#: Those that Python has no method of a communicator for.
DIRECT = ("AlltoAll", "Gather", "Scatter")
_AT_ROOT = {"Reduce": "recv", "Gather": "recv", "Broadcast": "send", "Scatter": "send"}  # what the root alone has
_WIDE = {
    "AllGather": (False, True),
    "ReduceScatter": (True, False),
    "AlltoAll": (True, True),
    "Gather": (False, True),
    "Scatter": (True, False),
}  # whether what is sent, or received, is a block for each rank
_PYTHON = {
    "AllReduce": "all_reduce", "Reduce": "reduce", "Broadcast": "broadcast", "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter", "Send": "send", "Recv": "recv",
}  # fmt: skip
#: ncclUnhandledCudaError and ncclInvalidArgument of nccl.h.
UNHANDLED_CUDA_ERROR, INVALID_ARGUMENT = 1, 4

#: From this version on a GPU may be shared by ranks that say so; before, by ranks that seem to be on different hosts.
_SHARES = (2, 30, 0)
#: How long an abort takes, once what it gives up has ended (s): whoever goes on meanwhile is caught.
_ABORT = 1.0

Work = tuple[str, tuple[int, ...]]


class DoubleComm:
    """See `collbench.bindings.gpu.nccl.Communicator`."""

    all_reduce: Callable[..., object]
    reduce: Callable[..., object]
    broadcast: Callable[..., object]
    all_gather: Callable[..., object]
    reduce_scatter: Callable[..., object]
    send: Callable[..., object]
    recv: Callable[..., object]

    def __init__(self, library: DoubleNccl, device: DoubleDevice, size: int, unique_id: Any, rank: int) -> None:
        self.device, self.size, self.rank = device, size, rank
        self.freed = self._aborted = self._connected = self._half_connected = False
        self._library, self._world = library, load_mpi().COMM_WORLD
        self.address = 0xC000 + 64 * unique_id[1] + unique_id[0]
        self._tag = self.address
        self._memories = [self._take("DOUBLE_COMM_MEMORY")]
        self._leader = unique_id[0]
        self._exchanges = 0
        self._members = self._meet()
        everybody = self.exchange((self._world.rank, device.facts.uuid, self._host(), self._allows()))
        uses = [(uuid, host) for _, uuid, host, _ in everybody]
        if len(set(uses)) < len(uses) and not all(allowed for *_, allowed in everybody):
            raise RuntimeError("double: NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected")
        for name in _PYTHON:
            setattr(self, _PYTHON[name], partial(library.issue, self, name))

    def _take(self, variable: str) -> Any:
        """Memory of the library's own. What CUDA says goes to the log; the caller gets a code."""
        try:
            return self.device.allocate(int(os.environ.get(variable, "0")))
        except MemoryError:
            self._library.log.warn("Cuda failure 2 'out of memory'")
            raise Code(UNHANDLED_CUDA_ERROR) from None

    def _host(self) -> str:
        return os.environ.get("NCCL_HOSTID", os.uname().nodename)

    def _allows(self) -> bool:
        return self._library.version >= _SHARES and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"

    def _meet(self) -> list[int]:
        """World ranks of the members, which only the leader can collect."""
        if self.rank == 0:
            others = [self._receive(load_mpi().ANY_SOURCE) for _ in range(self.size - 1)]
            members = [self._world.rank, *[one for _, one in sorted(others)]]
            for other in members[1:]:
                self._world.send(members, other, self._tag)
            return members
        self._world.send((self.rank, self._world.rank), self._leader, self._tag)
        return list(self._receive(self._leader))

    def _receive(self, source: int) -> Any:
        """A message, unless the communicator is aborted before it comes."""
        while (message := self._world.improbe(source, self._tag)) is None:
            if self._aborted:
                raise Aborted
        return message.recv()

    def _lose(self) -> None:
        """DOUBLE_LOST=KIND:RANK:N: this rank hangs, or dies, in its N-th exchange."""
        kind, _, rest = os.environ.get("DOUBLE_LOST", "").partition(":")
        self._exchanges += 1
        if rest != f"{self._world.rank}:{self._exchanges}":
            return
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)

    def exchange(self, value: Any) -> list[Any]:
        self._lose()
        members = self._members
        if self.rank == 0:
            values = [value, *(self._receive(one) for one in members[1:])]
            for one in members[1:]:
                self._world.send(values, one, self._tag)
            return values
        self._world.send(value, members[0], self._tag)
        return list(self._receive(members[0]))

    def refuse_if_freed(self) -> None:
        """Ends the process where NCCL would read memory that is not its own any more."""
        if self.freed:
            crash("a communicator is used after ncclCommAbort or ncclCommDestroy")

    def check(self, name: str, words: tuple[int, ...]) -> None:
        """Raises `Code` for arguments that NCCL refuses."""
        send, recv, count, datatype, *_ = words if name not in ("Send", "Recv") else (words[0], *words)
        for part, address in (("send", send), ("recv", recv)):
            if self._has(name, part, words):
                self.view(address, count * self._width(name, part), datatype)

    def _has(self, name: str, part: str, words: tuple[int, ...]) -> bool:
        """Whether this rank has that memory in a call."""
        return _AT_ROOT.get(name) != part or words[-1] == self.rank

    def _width(self, name: str, part: str) -> int:
        """Blocks in it."""
        return self.size if _WIDE.get(name, (False, False))[part == "recv"] else 1

    def view(self, address: int, count: int, datatype: int) -> Array:
        """Device memory as an array."""
        if datatype not in _DTYPE:
            raise Code(INVALID_ARGUMENT)
        dtype = _DTYPE[datatype]
        if count == 0:
            return np.zeros(0, dtype)
        found = self.device.at(address, count * dtype.itemsize)
        if found is None:
            raise Code(INVALID_ARGUMENT)  # not device memory
        return found.view(dtype)

    def launch(self, calls: list[Work]) -> None:
        """Enqueue calls that belong together."""
        self._connect()
        sends = [call for call in calls if call[0] in ("Send", "Recv")]
        for name, words in calls:
            if name not in ("Send", "Recv"):
                self._library.log.info(
                    "TUNING", f"{name}: {words[2]} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}"
                )
                self._library.refuse_half_symmetric(self, words[:2])
                self.device.enqueue(partial(self._perform, name, words))
        if sends:
            self.device.enqueue(partial(self._perform_sends, sends))

    def _connect(self) -> None:
        """In the first call."""
        if self._connected:
            return
        if self._half_connected:
            crash("a communicator is used again whose first call has failed")
        self._half_connected = True
        self._memories.append(self._take("DOUBLE_CONNECT_MEMORY"))
        if self.size > 1:
            after = (self.rank + 1) % self.size
            self._library.log.info("P2P", f"Channel 00/0 : {self.rank}[0] -> {after}[0] via P2P/DOUBLE")
        self._connected = True

    def _held(self, address: int, count: int, datatype: int) -> Array:
        dtype = _DTYPE[datatype]
        return self.device.held(address, count * dtype.itemsize).view(dtype)

    def _perform(self, name: str, words: tuple[int, ...]) -> None:
        """A collective, now. `result` makes this rank's of what everybody sent."""
        send, recv, count, datatype, *more = words
        mine = slice(self.rank * count, (self.rank + 1) * count)
        result: dict[str, Callable[[list[Any]], Array]] = {
            "AllReduce": lambda parts: self._reduced(parts, more[0]),
            "Reduce": lambda parts: self._reduced(parts, more[0]),
            "Broadcast": lambda parts: parts[more[-1]],
            "AllGather": np.concatenate,
            "ReduceScatter": lambda parts: self._reduced([part[mine] for part in parts], more[0]),
            "AlltoAll": lambda parts: np.concatenate([part[mine] for part in parts]),
            "Gather": np.concatenate,
            "Scatter": lambda parts: parts[more[-1]][mine],
        }
        sent = None
        if self._has(name, "send", words):
            sent = self._held(send, count * self._width(name, "send"), datatype).copy()
        everybody = self.exchange(sent)
        if self._has(name, "recv", words):
            self._held(recv, count * self._width(name, "recv"), datatype)[...] = result[name](everybody)

    def _reduced(self, parts: list[Array], op: int) -> Array:
        total = parts[0]
        for part in parts[1:]:
            with np.errstate(all="ignore"):
                total = _UFUNC[_OP[op]](total, part)
        if _OP[op] == "avg":
            total = total // self.size if np.issubdtype(total.dtype, np.integer) else total / self.size
        return total

    def _perform_sends(self, calls: list[Work]) -> None:
        """Sends and receives of one group, now. A pair must agree: NCCL would write beyond the end, or wait."""
        sent = [(peer, self._held(at, count, kind).copy()) for name, (at, count, kind, peer) in calls if name == "Send"]
        everybody = self.exchange(sent)
        for name, (at, count, kind, peer) in calls:
            if name != "Recv":
                continue
            number = next((n for n, (target, _) in enumerate(everybody[peer]) if target == self.rank), None)
            if number is None:
                crash("a receive without a send in the same group")
            _, data = everybody[peer].pop(number)
            if (data.size, data.dtype) != (count, _DTYPE[kind]):
                crash(f"{data.size} elements were sent, and {count} are received as {_DTYPE[kind]}")
            self._held(at, count, kind)[...] = data
        if any(target == self.rank for messages in everybody for target, _ in messages):
            crash("a send without a receive in the same group")

    def async_error(self) -> str | None:
        self.refuse_if_freed()
        return os.environ.get("DOUBLE_ASYNC_ERROR")

    def destroy(self) -> None:
        self.refuse_if_freed()
        if self.device.graphs:
            crash("a communicator waits for ever for the graphs that use it")
        windows = {owner for owner, _ in self._library.windows.values()}
        if self.address in {*self._library.registered.values(), *windows}:
            crash("a communicator is destroyed before its memory was deregistered")
        self.exchange(None)
        self.freed = True
        self._memories.clear()

    def abort(self) -> None:
        """What is under way ends as if it were done; the communicator is freed."""
        self.refuse_if_freed()
        if os.environ.get("DOUBLE_ABORT_HANGS"):
            time.sleep(3600)
        self.freed = self._aborted = True
        self._memories.clear()
        self._library.forget(self)
        time.sleep(_ABORT)
        if os.environ.get("DOUBLE_SAYS_ABORT"):
            os.write(2, f"double: communicator aborted on rank {self.rank}\n".encode())
