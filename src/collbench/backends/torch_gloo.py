"""Backend `torch-gloo`: torch.distributed on CPU tensors over gloo, as a DDP user without a GPU pays for it.

Started by torchrun, or by mpirun: then MPI only carries the address of the rendezvous, once.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from collbench.backends.parts import launcher
from collbench.backends.parts.calls import dialect_of
from collbench.backends.parts.host_buffers import HostArguments, HostBuffer, as_parts, numpy_dtype
from collbench.backends.parts.interface import HostSession, Operation, Options, Session, World
from collbench.backends.parts.mpi_loading import MpiWorld, initialise, load_mpi
from collbench.collectives.row import Array, Collective
from collbench.errors import BackendUnavailable, LostRankError, RequestError, Unsupported, WorldMismatch
from collbench.schema.case import DTYPES, Case, Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.call import Call, Stage
from collbench.timing.gates import Signals

#: What gloo's dispatch over scalar types accepts (torch 2.4 to 2.13); it refuses the others at the first call.
_GLOO_DTYPES = ("int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
_LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|Connection refused|Timed out|timed out", re.IGNORECASE)
_OP = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}


class GlooArguments(HostArguments):
    """`TorchArguments` with tensors over NumPy memory, so that the check sees what torch writes."""

    def __init__(self, torch: Any, case: Case, row: Collective, count: int, rank: int) -> None:
        super().__init__(case, row, count, rank)
        self._torch = torch
        self.dist = torch.distributed
        if case.op not in (None, *_OP):
            raise Unsupported(f"gloo has no {case.op} (it has {', '.join(_OP)})")
        self.op = None if case.op is None else getattr(self.dist.ReduceOp, _OP[case.op])

    def buffer(self, blocks: int) -> Any:
        """A tensor [blocks, count] on a page boundary."""
        array = super().buffer(blocks)
        return self._torch.from_numpy(array.view(np.uint8)).view(getattr(self._torch, self.dtype)).reshape(array.shape)

    def function(self, *names: str) -> Any:
        """The first of these names that this torch has.

        Raises:
            Unsupported: it has none of them.
        """
        found = next((name for name in names if hasattr(self.dist, name)), None)
        if found is None:
            raise Unsupported(f"this torch.distributed has none of {', '.join(names)}")
        return getattr(self.dist, found)

    def out_of_place_only(self, function: str) -> None:
        """Refuse in-place cases."""
        if self.in_place:
            raise Unsupported(f"torch.distributed.{function} has no in-place form")

    def as_array(self, tensor: Any) -> Array:
        """The tensor's memory as NumPy."""
        plain: Array = tensor.contiguous().view(self._torch.uint8).numpy()
        return plain.view(numpy_dtype(self.dtype))


class TorchWorld:
    """The control plane over torch's default group."""

    def __init__(self, dist: Any) -> None:
        self._dist = dist
        self.rank = int(dist.get_rank())
        self.size = int(dist.get_world_size())

    def gather(self, value: Any) -> list[Any] | None:
        """Everybody's value on rank 0."""
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        self._dist.gather_object(value, values, 0)
        return values

    def bcast(self, value: Any) -> Any:
        """Rank 0's value."""
        box = [value]
        self._dist.broadcast_object_list(box, 0)
        return box[0]


class GlooSession(HostSession):
    """One rank of torch's default process group."""

    clock = staticmethod(time.monotonic_ns)
    transport: str | None = "tcp"

    def __init__(self, torch: Any, thread_level: ThreadLevel) -> None:
        self._torch = torch
        self.thread_level = thread_level
        self.world: World = TorchWorld(torch.distributed)
        self.signals = self._signals()

    def _signals(self) -> Signals:
        dist = self._torch.distributed
        start = np.zeros(1, np.int64)
        tensor = self._torch.from_numpy(start)
        return Signals(
            barrier=dist.barrier,
            announce=lambda: dist.broadcast(tensor, 0),
            start=start,
            announces=self.world.rank == 0,
            relax=os.sched_yield,
        )

    def prepare(self, case: Case, row: Collective, count: int) -> Operation:
        """Tensors, and the call from the row's torch dialect."""
        dialect = dialect_of(row, "torch", "torch.distributed")
        if case.dtype not in _GLOO_DTYPES and row.moves_data:
            raise Unsupported(f"gloo has no {case.dtype} (it has {', '.join(_GLOO_DTYPES)})")
        arguments = GlooArguments(self._torch, case, row, count, self.world.rank)
        prepared = dialect(arguments)
        stage = Stage(prepared.python)
        call = Call((stage,), why_not_native="torch has no C function to call", keep=(arguments, prepared))
        contributed = None if prepared.input is None else HostBuffer(arguments.as_array(prepared.input))
        received = tuple(HostBuffer(arguments.as_array(part)) for part in as_parts(prepared.output))
        return Operation(contributed, received, call, prepared.in_place, arguments.blocks_held)

    def is_lost_rank(self, error: BaseException) -> bool:
        """Gloo tells it in the text of a RuntimeError."""
        return isinstance(error, RuntimeError) and _LOST.search(str(error)) is not None

    def abort(self, code: int) -> None:
        """Leave at once; the launcher ends the others."""
        os._exit(code)


class TorchGlooBackend:
    """See the module."""

    name = "torch-gloo"
    summary = "torch.distributed on CPU tensors over gloo"
    simulated = False
    device: Literal["cpu", "gpu"] = "cpu"
    streams = False
    axes: frozenset[str] = frozenset()
    ops: tuple[Op, ...] = ("sum", "prod", "min", "max")

    def missing(self) -> str | None:
        """Whether torch is installed and we were started in a way that gives ranks an address."""
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed; in a clone: pip install -c constraints.txt '.[torch]'"
        started_by = launcher.detect()
        if started_by.kind in ("openmpi", "mpich", "slurm") and started_by.size > 1:
            try:
                load_mpi()
            except RequestError as error:
                return str(error)
        return None

    def world_size(self, options: Options) -> int:
        """As many as the launcher started.

        Raises:
            RequestError: another number was asked for.
        """
        how = f"torchrun --nproc-per-node {options.ranks} -m collbench ..."
        return launcher.started_ranks(self.name, options.ranks, how)

    def dtypes(self) -> tuple[str, ...]:
        """What gloo dispatches on."""
        return tuple(dtype for dtype in DTYPES if dtype in _GLOO_DTYPES)

    def libraries(self) -> tuple[Library, ...]:
        """torch; gloo is compiled into it."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("torch")
        except PackageNotFoundError:
            found = "unknown"
        spec = importlib.util.find_spec("torch")
        return (Library(name="torch (gloo)", version=found, path=spec.origin if spec else None),)

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """Rendezvous, body, and the group is taken down."""
        import torch

        if not torch.distributed.is_available():
            raise BackendUnavailable("backend torch-gloo: this torch was built without torch.distributed")
        level = _join(torch.distributed, launcher.detect(), options)
        body(GlooSession(torch, level))
        torch.distributed.destroy_process_group()


def _join(dist: Any, started_by: launcher.Launcher, options: Options) -> ThreadLevel:
    """Enter the default group by way of the launcher's means; returns the thread level in force."""
    # Longer than the watchdog, which knows what was being done when nothing moved any more.
    timeout = timedelta(seconds=options.timeout + 10)
    if started_by.kind == "torchrun":
        try:
            dist.init_process_group("gloo", timeout=timeout)
        except ValueError as error:
            raise WorldMismatch(f"backend torch-gloo: {error} Start it with torchrun.") from error
        except RuntimeError as error:
            raise LostRankError(f"backend torch-gloo: the ranks did not meet ({str(error).splitlines()[0]})") from error
        return options.thread_level
    level = options.thread_level
    world: World | None = None
    if started_by.size > 1:
        mpi = load_mpi()
        level = initialise(mpi, started_by, options.thread_level)
        world = MpiWorld(mpi)
    address = _address(world)
    serving = started_by.rank == 0
    store = None
    if serving:
        store = dist.TCPStore(address, 0, started_by.size, is_master=True, timeout=timeout, wait_for_workers=False)
    port = store.port if store is not None else None
    if world is not None:
        address, port = world.bcast((address, port))
    if store is None:
        store = dist.TCPStore(address, port, started_by.size, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=started_by.rank, world_size=started_by.size, timeout=timeout)
    return level


def _address(world: World | None) -> str:
    """Where rank 0 can be reached: the loopback while all ranks share a host."""
    names = [socket.gethostname()] if world is None else world.bcast(world.gather(socket.gethostname()))
    return "127.0.0.1" if len(set(names)) == 1 else socket.gethostbyname(names[0])


BACKEND = TorchGlooBackend()
