"""Backend `torch-gloo`: torch.distributed on CPU tensors over gloo, as DDP without GPUs uses it.

Started by torchrun, or by mpirun: then MPI only carries the address of the rendezvous, once. The world, the rendezvous
and the dialect of torch are here, too: `torch-nccl` has the same.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.mpi import MpiWorld, initialise, load_mpi
from collbench.bindings.spec import (
    Backend,
    HostArguments,
    Observe,
    Operation,
    Session,
    World,
    WorldSettings,
    allgather,
    binder_of,
    numpy_dtype,
    operation_of,
)
from collbench.collectives.row import Array, Collective, CollectiveCase, Prepared
from collbench.errors import BackendUnavailable, LostRankError, RequestError, Unsupported, WorldMismatch, to_install
from collbench.machine import launcher
from collbench.schema.axes import DTYPES, Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.loop import Call, Messages, Signals, Stage, Stopwatch
from collbench.workloads.software import version

_LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|Connection refused|Timed out|timed out", re.IGNORECASE)


class TorchWorld(World):
    """The control plane over torch's default group."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._dist = torch, torch.distributed
        self.rank, self.size = int(self._dist.get_rank()), int(self._dist.get_world_size())

    def gather(self, value: Any) -> list[Any] | None:
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        self._dist.gather_object(value, values, 0)
        return values

    def bcast_from(self, value: Any, source: int) -> Any:
        values = [value]
        self._dist.broadcast_object_list(values, source)
        return values[0]

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        result, ops = values.copy(), self._dist.ReduceOp
        self._dist.all_reduce(self._torch.from_numpy(result), ops.MIN if smallest else ops.SUM)
        return result


class TorchSession(Session):
    """One rank; a backend adds how it prepares a case."""

    def __init__(self, backend: Backend, torch: Any, thread_level: ThreadLevel) -> None:
        self.backend, self._torch, self.thread_level = backend, torch, thread_level
        self.world = TorchWorld(torch)
        dist = torch.distributed
        start, cell = np.zeros(1, np.int64), np.zeros(1, np.int64)
        tensor, sent = torch.from_numpy(start), torch.from_numpy(cell)
        self.signals = Signals(
            barrier=dist.barrier,
            announce=lambda: dist.broadcast(tensor, 0),
            start=start,
            announces=self.world.rank == 0,
            relax=os.sched_yield,
            messages=Messages(cell, lambda rank: dist.send(sent, rank), lambda rank: dist.recv(sent, rank)),
        )

    def operation(
        self, prepared: Prepared, arguments: TorchArguments, completion: Stage | None = None,
        stopwatch: Stopwatch | None = None, observe: Observe | None = None,
    ) -> Operation:  # fmt: skip
        """That of a prepared row, in Python alone."""
        stages, keep = tuple(Stage(part.python, None, part.name) for part in prepared.all_parts), (arguments, prepared)
        call = Call(stages, completion, stopwatch, "torch has no C function to call", keep)
        access = partial(TorchBuffer, self._torch, dtype=arguments.dtype)
        return operation_of(prepared, call, arguments.blocks_held, access, observe)

    def is_lost_rank(self, error: BaseException) -> bool:
        """By the text of gloo's RuntimeError."""
        return isinstance(error, RuntimeError) and _LOST.search(str(error)) is not None

    def abort(self, code: int) -> None:
        """End this process; the launcher ends the others."""
        os._exit(code)


class TorchBackend(Backend):
    """What backends over torch.distributed have in common."""

    variables: tuple[str, ...] = ("GLOO_",)
    packages: tuple[str, ...] = ("torch",)

    def world_size(self, options: WorldSettings) -> int:
        """As many as the launcher started. Raises RequestError: another number was asked for."""
        how = f"torchrun --nproc-per-node {options.ranks} -m collbench ..."
        return launcher.started_ranks(self.name, options.ranks, how)


def missing_torch() -> str | None:
    """Why torch cannot be used here; None when it can."""
    if importlib.util.find_spec("torch") is None:
        return f"torch is not installed; {to_install('torch')}"
    started_by = launcher.detect()
    if started_by.kind in (*launcher.OF_MPI, "slurm") and started_by.size > 1:
        try:
            load_mpi()
        except RequestError as error:
            return str(error)
    return None


def torch_library(name: str) -> Library:
    """The installed package, under this name, without importing it."""
    spec = importlib.util.find_spec("torch")
    return Library(name=name, version=version("torch") or "unknown", path=spec.origin if spec else None)


def join(backend: str, dist: Any, started_by: launcher.Launcher, options: WorldSettings) -> tuple[ThreadLevel, Any]:
    """Join the default group, as the launcher allows; returns the thread level in force, and the group's store."""
    # Longer than the watchdog's, which can say what was being done.
    timeout = timedelta(seconds=options.timeout + 10)
    if started_by.kind == "torchrun":
        try:
            store, rank, size = _meeting_place(dist, timeout)
            # The store outlives a group: the next one must not meet at the addresses of the one before.
            prefixed = dist.PrefixStore(backend, store)
            dist.init_process_group("gloo", store=prefixed, rank=rank, world_size=size, timeout=timeout)
        except ValueError as error:
            raise WorldMismatch(f"backend {backend}: {error} Start it with torchrun.") from error
        except RuntimeError as error:
            raise LostRankError(f"backend {backend}: rendezvous failed ({str(error).splitlines()[0]})") from error
        return options.thread_level, prefixed
    level, rank, size = options.thread_level, started_by.rank, started_by.size
    world: World | None = None
    if size > 1:
        mpi = load_mpi()
        level = initialise(mpi, started_by, options.thread_level)
        world = MpiWorld(mpi)
    address, store = _address(world), None
    if rank == 0:
        store = dist.TCPStore(address, 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    port = None if store is None else store.port
    if world is not None:
        address, port = world.bcast((address, port))
    if store is None:
        store = dist.TCPStore(address, port, size, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)
    return level, store


@cache
def _meeting_place(dist: Any, timeout: timedelta) -> tuple[Any, int, int]:
    """The store that torchrun's variables name, this rank and the number of ranks: one for all groups of a process.

    Across containers rank 0 holds the store itself, at a fixed port. If it opened another one there for the next group,
    a rank that is earlier would still reach the first, and lose its connection.
    """
    place: tuple[Any, int, int] = next(dist.rendezvous("env://", timeout=timeout))
    return place


def _address(world: World | None) -> str:
    """Of rank 0, for the others: the loopback where all ranks share a host."""
    names: list[str] = [] if world is None else allgather(world, socket.gethostname())
    return socket.gethostbyname(names[0]) if len(set(names)) > 1 else "127.0.0.1"


OP = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}


class TorchArguments(HostArguments):
    """See `collbench.collectives.dialects.TorchDialectArguments`: tensors over page-aligned NumPy memory."""

    def __init__(self, torch: Any, case: CollectiveCase, row: Collective, count: int, rank: int) -> None:
        super().__init__(case, row, count, rank)
        self._torch = torch
        self.dist: Any = torch.distributed
        self.op = None if case.op is None else getattr(torch.distributed.ReduceOp, OP[case.op])

    def buffer(self, blocks: int) -> Any:
        array = super().buffer(blocks)
        return self._torch.from_numpy(array.view(np.uint8)).view(getattr(self._torch, self.dtype)).reshape(array.shape)

    def function(self, *names: str) -> Any:
        """The first of these names that this torch has. Raises Unsupported: it has none of them."""
        existing = next((name for name in names if hasattr(self._torch.distributed, name)), None)
        if existing is None:
            raise Unsupported(f"this torch.distributed has none of {', '.join(names)}")
        return getattr(self.dist, existing)

    def out_of_place_only(self, function: str) -> None:
        """Raises `Unsupported` in in-place cases."""
        if self.in_place:
            raise Unsupported(f"torch.distributed.{function} has no in-place form")

    def exchange(self, send: Any, after: int, recv: Any, before: int) -> Callable[[], object]:

        def perform() -> None:
            sent = self.dist.isend(send, after)
            self.dist.recv(recv, before)
            sent.wait()

        return perform


class TorchBuffer:
    """`Buffer` over a tensor [blocks, count], on the host or on a GPU."""

    def __init__(self, torch: Any, tensor: Any, dtype: str) -> None:
        self._torch, self._tensor = torch, tensor
        self.shape: tuple[int, int] = (int(tensor.shape[0]), int(tensor.shape[1]))
        self.dtype = numpy_dtype(dtype)

    @cached_property
    def _bytes(self) -> Any:
        return self._tensor.view(self._torch.uint8) if self.shape[1] else self._tensor

    def load(self, block: int, start: int, stop: int) -> Array:
        size = self.dtype.itemsize
        raw: Array = self._bytes[block, start * size : stop * size].cpu().numpy()
        return raw.view(self.dtype)

    def store(self, block: int, start: int, values: Array) -> None:
        """Complete on return: torch waits for copies from memory that is not pinned."""
        size = self.dtype.itemsize
        raw = self._torch.from_numpy(np.ascontiguousarray(values).view(np.uint8).copy())
        self._bytes[block, start * size : start * size + len(raw)].copy_(raw)


#: What gloo's dispatch over scalar types accepts (torch 2.4 to 2.13); it refuses the others at the first call.
_GLOO_DTYPES = ("int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
_OPS: tuple[Op, ...] = ("sum", "prod", "min", "max")


class GlooSession(TorchSession):
    """One rank of torch's default process group."""

    transport = "tcp"

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        binder = binder_of(self.backend, row, "torch", "torch.distributed")
        if case.dtype not in _GLOO_DTYPES and row.moves_data:
            raise Unsupported(f"gloo has no {case.dtype} (it has {', '.join(_GLOO_DTYPES)})")
        if case.op not in (None, *_OPS):
            raise Unsupported(f"gloo has no {case.op} (it has {', '.join(_OPS)})")
        arguments = TorchArguments(self._torch, case, row, count, self.world.rank)
        return self.operation(binder(arguments), arguments)


class TorchGlooBackend(TorchBackend):
    """See the module."""

    name = "torch-gloo"
    summary = "torch.distributed on CPU tensors over gloo"
    ops = _OPS

    def missing(self) -> str | None:
        return missing_torch()

    def dtypes(self) -> tuple[str, ...]:
        return tuple(dtype for dtype in DTYPES if dtype in _GLOO_DTYPES)

    def libraries(self) -> tuple[Library, ...]:
        """torch; gloo is compiled into it."""
        return (torch_library("torch (gloo)"),)

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        import torch

        if not torch.distributed.is_available():
            raise BackendUnavailable("backend torch-gloo: this torch was built without torch.distributed")
        level, _ = join(self.name, torch.distributed, launcher.detect(), options)
        body(GlooSession(self, torch, level))
        torch.distributed.destroy_process_group()


BACKEND = TorchGlooBackend()
