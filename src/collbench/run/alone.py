"""A world of one rank, without a library that moves data: what programs are measured in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import numpy as np

from collbench.bindings.spec import HostSession, Operation, Options, Session, World
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import RequestError, Unsupported
from collbench.machine import launcher
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.gates import Signals


class AloneWorld:
    """Nobody else is there."""

    rank, size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        """The own value."""
        return [value]

    def bcast(self, value: Any) -> Any:
        """The own value."""
        return value


class AloneSession(HostSession):
    """The only rank."""

    clock = staticmethod(time.monotonic_ns)
    transport: str | None = None

    def __init__(self, thread_level: ThreadLevel) -> None:
        self.world: World = AloneWorld()
        self.thread_level = thread_level
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """No collective."""
        raise Unsupported(f"{row.name}: no library is here that moves data")

    def is_lost_rank(self, error: BaseException) -> bool:
        """There is no other rank."""
        return False

    def abort(self, code: int) -> NoReturn:
        """The end of this process."""
        os._exit(code)


class Alone:
    """Stands where a backend stands, and is not one of those that a plan can name."""

    name = "workloads"
    summary = "one rank that starts programs"
    simulated = False
    device: Literal["cpu", "gpu"] = "cpu"
    streams = False
    axes: frozenset[str] = frozenset()
    ops: tuple[Op, ...] = ()

    def missing(self) -> str | None:
        """Always there."""
        return None

    def world_size(self, options: Options) -> int:
        """One.

        Raises:
            RequestError: more were started, or asked for.
        """
        started = max(launcher.detect().size, options.ranks or 1)
        if started != 1:
            raise RequestError(f"workloads: a program runs on one rank, and there are {started}. Start one rank.")
        return 1

    def dtypes(self) -> tuple[str, ...]:
        """None."""
        return ()

    def libraries(self) -> tuple[Library, ...]:
        """None."""
        return ()

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """The body, once."""
        body(AloneSession(options.thread_level))
