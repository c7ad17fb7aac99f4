"""The ranks that execute a program: one alone, or several that meet over gloo and agree on one outcome."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from collbench import workloads
from collbench.backends.torch_gloo import TorchSession, join, missing_torch
from collbench.bindings.spec import Backend, Failures, Operation, Reductions, Session, World, WorldSettings, allgather
from collbench.collectives.row import Collective, CollectiveCase
from collbench.errors import BackendUnavailable, Interrupted, RequestError, Unsupported
from collbench.machine import launcher
from collbench.run.child import ProgramFailed, ProgramSkipped
from collbench.run.failures import Watch
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.loop import Signals
from collbench.units import counted

CollectedT = TypeVar("CollectedT")


class WrongResult(Exception):
    """A program ran, and its result is wrong."""

    def __init__(self, name: str, wrong: int) -> None:
        super().__init__(f"wrong result: {name} counted {counted(wrong, 'wrong value')}")
        self.name, self.wrong = name, wrong

    def __reduce__(self) -> tuple[object, ...]:  # it is made of other arguments than its text
        return WrongResult, (self.name, self.wrong)


class FailedElsewhere(ProgramFailed):
    """What this rank did was given up, because another one has failed."""


#: Interval (s) at which a rank asks whether another one has failed.
EVERY = 1.0

#: What an execution may end with, on one rank and then on all.
_ENDS = (Interrupted, ProgramFailed, ProgramSkipped, WrongResult)


@dataclass(frozen=True)
class _End:
    """How an execution ended on a rank, at `clock` (s)."""

    clock: float
    error: Exception


class Listening:
    """A watch whose `beat` raises FailedElsewhere, within a second of it, where `failed` says so."""

    def __init__(self, watch: Watch, failed: Callable[[], bool]) -> None:
        self._watch, self._failed = watch, failed
        self._next = time.monotonic() + EVERY

    @property
    def stopped(self) -> int | None:
        return self._watch.stopped

    def beat(self, doing: str) -> None:
        self._watch.beat(doing)
        if (now := time.monotonic()) >= self._next:
            self._next = now + EVERY
            if self._failed():
                raise FailedElsewhere("another rank has failed")

    def failed(self, reason: str | None, lost: bool = False) -> None:
        self._watch.failed(reason, lost)


@dataclass(frozen=True)
class Peers:
    """The ranks of a world, in the hands of one of them. Methods are collective; of one rank none communicates.

    `threads` are those of this rank's process where none are asked for: its part of the cores that it shares.
    """

    world: World
    watch: Watch
    failures: Failures | None = None
    threads: int = 1

    def listening(self) -> Listening:
        """The watch of what this rank does within `agreed`, which ends soon after another rank has failed."""
        return Listening(self.watch, lambda: self.failures is not None and self.failures.announced())

    def agreed(self, act: Callable[[], CollectedT]) -> CollectedT:
        """The result of `act` on this rank, once it succeeded on all.

        Raises:
            Interrupted, ProgramFailed, ProgramSkipped, WrongResult: on all ranks what it raised on the rank where it
                ended first; an interruption comes before everything else.
        """
        if self.failures is not None:
            self.failures.begin()
        if self.world.size == 1:
            return act()
        end, value = None, None
        try:
            value = act()
        except _ENDS as error:
            end = _End(time.monotonic(), error)
            if self.failures is not None:
                self.failures.announce()
        self.watch.beat("waiting for the other ranks")
        ends = [end for end in allgather(self.world, end) if end is not None]
        if not ends:
            return value  # type: ignore[return-value]
        interrupted = [end for end in ends if isinstance(end.error, Interrupted)]
        first = [end for end in ends if not isinstance(end.error, FailedElsewhere)]
        raise min(interrupted or first or ends, key=lambda end: end.clock).error

    def decided(self, value: CollectedT) -> CollectedT:
        """That of rank 0, on all ranks."""
        return value if self.world.size == 1 else self.world.bcast(value)

    def variables(self) -> dict[str, str]:
        """The environment by which torch.distributed finds its world (`env://`), with a port that nobody uses yet."""
        address = os.environ.get("MASTER_ADDR")
        if not address:  # of rank 0; the loopback where all ranks have one hostname
            names = allgather(self.world, socket.gethostname())
            address = "127.0.0.1" if len(set(names)) == 1 else str(names[0])
        port = ""
        if self.world.rank == 0:
            with socket.socket() as free:
                free.bind(("", 0))
                port = str(free.getsockname()[1])
        port = self.decided(port)
        rank = str(self.world.rank)
        return {
            "RANK": rank, "LOCAL_RANK": os.environ.get("LOCAL_RANK", rank), "WORLD_SIZE": str(self.world.size),
            "MASTER_ADDR": address, "MASTER_PORT": port, "OMP_NUM_THREADS": str(self.threads),
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # torchrun's store knows our ranks, not their processes
        }  # fmt: skip


class AloneWorld(Reductions):
    """A control plane of one rank."""

    rank, size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def bcast_from(self, value: Any, source: int) -> Any:
        return value

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        return values


class AloneSession(Session):
    """The only rank."""

    clock = staticmethod(time.monotonic_ns)
    transport: str | None = None

    def __init__(self, thread_level: ThreadLevel) -> None:
        self.world: World = AloneWorld()
        self.thread_level = thread_level
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        raise Unsupported(f"{row.name}: needs a communication library")

    def abort(self, code: int) -> NoReturn:
        os._exit(code)


class StoredFailures:
    """What ranks say of their failures in a store of torch's; a store that does not answer has lost its rank."""

    def __init__(self, store: Any) -> None:
        self._store, self._acts = store, 0

    def begin(self) -> None:
        self._acts += 1

    def announce(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(f"failed {self._acts}", "")

    def announced(self) -> bool:
        try:
            return bool(self._store.check([f"failed {self._acts}"]))
        except RuntimeError:
            return True


class TogetherSession(TorchSession):
    """One rank, which starts its process of a program."""

    transport: str | None = None

    def __init__(self, backend: Backend, torch: Any, thread_level: ThreadLevel, store: Any) -> None:
        super().__init__(backend, torch, thread_level)
        self.failures = StoredFailures(store)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> NoReturn:
        raise Unsupported(f"{row.name}: needs a communication library")


class ProgramStarter(Backend):
    """Stands where a backend stands, and is none that a plan can name: one rank, or ranks that meet over gloo."""

    name, summary = "workloads", "ranks that start the processes of programs"
    ops: tuple[Op, ...] = ()

    def __init__(self, programs: tuple[str, ...], together: bool) -> None:
        self._programs, self._together = programs, together

    def missing(self) -> str | None:
        return missing_torch() if self._together else None

    def dtypes(self) -> tuple[str, ...]:
        return ()

    def libraries(self) -> tuple[Library, ...]:
        """What the workloads start or load."""
        return workloads.libraries(self._programs)

    def world_size(self, options: WorldSettings) -> int:
        """1, or together as many as the launcher started.

        Raises:
            RequestError: more ranks were started or requested than one.
        """
        started = launcher.detect().size
        ranks = max(started, options.ranks or 1)
        if self._together or ranks == 1:
            return started
        names = dict.fromkeys(use.partition(" ")[0] for use in self._programs)  # of `train data=made-up` train
        alone = ", ".join(name for name in names if not workloads.get(name).distributed)
        several = ", ".join(name for name in names if workloads.get(name).distributed)
        what = f"benchmarks {alone}" if alone else "benchmarks"
        way_out = f", or name {several} alone, which run on several" if several else ""
        raise RequestError(f"{what}: run on one rank, and there are {ranks}. Start one rank{way_out}.")

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        """The body; together after a rendezvous, and before the process group is destroyed.

        Raises:
            BackendUnavailable: there is no torch by which ranks could meet.
        """
        if not self._together:
            body(AloneSession(options.thread_level))
            return
        if (missing := self.missing()) is not None:
            raise BackendUnavailable(f"benchmarks of several ranks: {missing}")
        import torch

        level, store = join(self.name, torch.distributed, launcher.detect(), options)
        try:
            body(TogetherSession(self, torch, level, store))
        finally:
            torch.distributed.destroy_process_group()


def world_for(benchmarks: tuple[str, ...], uses: tuple[str, ...]) -> ProgramStarter:
    """What starts these programs: ranks together where all of them take several and the launcher started several."""
    distributed = all(workloads.get(name).distributed for name in benchmarks)
    return ProgramStarter(uses, together=distributed and launcher.detect().size > 1)
