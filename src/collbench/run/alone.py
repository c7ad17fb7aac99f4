"""A world of one rank without a communication library, in which programs are measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from collbench import workloads
from collbench.bindings.reductions import Reductions
from collbench.bindings.spec import HostBackend, HostSession, Operation, Options, Session, World
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import RequestError, Unsupported
from collbench.machine import launcher
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.gates import Signals


class AloneWorld(Reductions):
    """A control plane of one rank."""

    rank, size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def bcast(self, value: Any) -> Any:
        return value

    def tell(self, value: Any, source: int) -> Any:
        return value

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        return values


class AloneSession(HostSession):
    """The only rank."""

    clock = staticmethod(time.monotonic_ns)
    transport: str | None = None

    def __init__(self, thread_level: ThreadLevel) -> None:
        self.world: World = AloneWorld()
        self.thread_level = thread_level
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        raise Unsupported(f"{row.name}: needs a communication library")

    def is_lost_rank(self, error: BaseException) -> bool:
        return False

    def abort(self, code: int) -> NoReturn:
        os._exit(code)


class Alone(HostBackend):
    """Stands where a backend stands, and is not one of those that a plan can name."""

    name = "workloads"
    summary = "one rank that starts programs"
    ops: tuple[Op, ...] = ()

    def __init__(self, programs: tuple[str, ...]) -> None:
        self._programs = programs

    def missing(self) -> str | None:
        return None

    def world_size(self, options: Options) -> int:
        """Always 1.

        Raises:
            RequestError: more ranks were started or requested.
        """
        ranks = max(launcher.detect().size, options.ranks or 1)
        if ranks != 1:
            raise RequestError(f"{self._of_one_rank()}, and there are {ranks}. Start one rank{self._of_several()}.")
        return 1

    def _of_one_rank(self) -> str:
        names = [name for name in self._names() if not workloads.get(name).distributed]
        return f"benchmarks {', '.join(names)}: run on one rank" if names else "benchmarks: run on one rank"

    def _of_several(self) -> str:
        names = [name for name in self._names() if workloads.get(name).distributed]
        return f", or name {', '.join(names)} alone, which run on several" if names else ""

    def _names(self) -> dict[str, None]:
        """Of `train data=made-up` the benchmark, once."""
        return dict.fromkeys(use.partition(" ")[0] for use in self._programs)

    def dtypes(self) -> tuple[str, ...]:
        return ()

    def libraries(self) -> tuple[Library, ...]:
        """The programs that the workloads start."""
        return workloads.libraries(self._programs)

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        body(AloneSession(options.thread_level))
