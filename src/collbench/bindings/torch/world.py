"""One rank of torch's default process group, over gloo: control plane, gates, rendezvous."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import time
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.agreement import Reductions
from collbench.bindings.mpi.loading import MpiWorld, initialise, load_mpi
from collbench.bindings.spec import Backend, HostBackend, HostSession, Options, World
from collbench.errors import LostRankError, RequestError, WorldMismatch, to_install
from collbench.machine import launcher
from collbench.schema.axes import ThreadLevel
from collbench.timing.call import Messages, Signals

_LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|Connection refused|Timed out|timed out", re.IGNORECASE)


class TorchWorld(Reductions):
    """The control plane over torch's default group."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._dist = torch, torch.distributed
        self.rank, self.size = int(self._dist.get_rank()), int(self._dist.get_world_size())

    def gather(self, value: Any) -> list[Any] | None:
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        self._dist.gather_object(value, values, 0)
        return values

    def bcast(self, value: Any) -> Any:
        return self.tell(value, 0)

    def tell(self, value: Any, source: int) -> Any:
        values = [value]
        self._dist.broadcast_object_list(values, source)
        return values[0]

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        found, ops = values.copy(), self._dist.ReduceOp
        self._dist.all_reduce(self._torch.from_numpy(found), ops.MIN if smallest else ops.SUM)
        return found


class TorchSession(HostSession):
    """One rank; a backend adds how it prepares a case."""

    clock = staticmethod(time.monotonic_ns)

    def __init__(self, backend: Backend, torch: Any, thread_level: ThreadLevel) -> None:
        self.backend = backend
        self._torch = torch
        self.thread_level = thread_level
        self.world: World = TorchWorld(torch)
        self.signals = self._signals()

    def _signals(self) -> Signals:
        dist = self._torch.distributed
        start = np.zeros(1, np.int64)
        tensor = self._torch.from_numpy(start)
        cell = np.zeros(1, np.int64)
        sent = self._torch.from_numpy(cell)
        return Signals(
            barrier=dist.barrier,
            announce=lambda: dist.broadcast(tensor, 0),
            start=start,
            announces=self.world.rank == 0,
            relax=os.sched_yield,
            messages=Messages(cell, lambda rank: dist.send(sent, rank), lambda rank: dist.recv(sent, rank)),
        )

    def is_lost_rank(self, error: BaseException) -> bool:
        """By the text of gloo's RuntimeError."""
        return isinstance(error, RuntimeError) and _LOST.search(str(error)) is not None

    def abort(self, code: int) -> None:
        """End this process; the launcher ends the others."""
        os._exit(code)


class TorchBackend(HostBackend):
    """What backends over torch.distributed have in common."""

    name: str
    variables: tuple[str, ...] = ("GLOO_",)
    packages: tuple[str, ...] = ("torch",)

    def world_size(self, options: Options) -> int:
        """As many as the launcher started.

        Raises:
            RequestError: another number was asked for.
        """
        how = f"torchrun --nproc-per-node {options.ranks} -m collbench ..."
        return launcher.started_ranks(self.name, options.ranks, how)


def missing_torch() -> str | None:
    """Why torch cannot be used here; None when it can."""
    if importlib.util.find_spec("torch") is None:
        return f"torch is not installed; {to_install('torch')}"
    started_by = launcher.detect()
    if started_by.kind in ("openmpi", "mpich", "slurm") and started_by.size > 1:
        try:
            load_mpi()
        except RequestError as error:
            return str(error)
    return None


def torch_version() -> str:
    """Of the installed package, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


def join(backend: str, dist: Any, started_by: launcher.Launcher, options: Options) -> tuple[ThreadLevel, Any]:
    """Join the default group, as the launcher allows; returns the thread level in force, and the group's store."""
    # Longer than the watchdog's, which can say what was being done.
    timeout = timedelta(seconds=options.timeout + 10)
    if started_by.kind == "torchrun":
        try:
            store, rank, size = _meeting_place(dist, timeout)
            # The store outlives a group: the next one must not meet at the addresses of the one before.
            own = dist.PrefixStore(backend, store)
            dist.init_process_group("gloo", store=own, rank=rank, world_size=size, timeout=timeout)
        except ValueError as error:
            raise WorldMismatch(f"backend {backend}: {error} Start it with torchrun.") from error
        except RuntimeError as error:
            raise LostRankError(f"backend {backend}: rendezvous failed ({str(error).splitlines()[0]})") from error
        return options.thread_level, own
    level = options.thread_level
    world: World | None = None
    if started_by.size > 1:
        mpi = load_mpi()
        level = initialise(mpi, started_by, options.thread_level)
        world = MpiWorld(mpi)
    address = _address(world)
    store = None
    if started_by.rank == 0:
        store = dist.TCPStore(address, 0, started_by.size, is_master=True, timeout=timeout, wait_for_workers=False)
    port = store.port if store is not None else None
    if world is not None:
        address, port = world.bcast((address, port))
    if store is None:
        store = dist.TCPStore(address, port, started_by.size, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=started_by.rank, world_size=started_by.size, timeout=timeout)
    return level, store


@cache
def _meeting_place(dist: Any, timeout: timedelta) -> tuple[Any, int, int]:
    """The store that torchrun's variables name, this rank and the number of ranks: one for all groups of a process.

    Across containers rank 0 holds the store itself, at a fixed port. If it opened another one there for the next group,
    a rank that is earlier would still reach the first, and lose its connection.
    """
    found: tuple[Any, int, int] = next(dist.rendezvous("env://", timeout=timeout))
    return found


def _address(world: World | None) -> str:
    """Of rank 0, for the others: the loopback where all ranks share a host."""
    names = None if world is None else world.gather(socket.gethostname())
    name = names[0] if names is not None and len(set(names)) > 1 else None
    name = name if world is None else world.bcast(name)
    return "127.0.0.1" if name is None else socket.gethostbyname(name)
