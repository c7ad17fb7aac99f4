"""The ranks that execute a program together: what it is told of its world, and one outcome for all of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from collbench.bindings.spec import Failures, World, allgather
from collbench.errors import Interrupted
from collbench.run.child import ProgramFailed, ProgramSkipped
from collbench.run.sampling import Watch
from collbench.units import counted

Value = TypeVar("Value")


class WrongResult(Exception):
    """A program ran, and its result is wrong."""

    def __init__(self, name: str, wrong: int) -> None:
        super().__init__(f"wrong result: {name} counted {counted(wrong, 'wrong value')}")
        self.wrong = wrong


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

    def __reduce__(self) -> tuple[object, ...]:  # WrongResult is made of other arguments than its text
        return _end_of, (self.clock, type(self.error), str(self.error), getattr(self.error, "wrong", 0))


def _end_of(clock: float, kind: type[Exception], text: str, wrong: int) -> _End:
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    if isinstance(error, WrongResult):
        error.wrong = wrong
    return _End(clock, error)


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
        return Listening(self.watch, lambda: self.failures is not None and self.failures.told())

    def agreed(self, act: Callable[[], Value]) -> Value:
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
                self.failures.tell()
        self.watch.beat("waiting for the other ranks")
        ends = [found for found in allgather(self.world, end) if found is not None]
        if not ends:
            return value  # type: ignore[return-value]
        interrupted = [found for found in ends if isinstance(found.error, Interrupted)]
        first = [found for found in ends if not isinstance(found.error, FailedElsewhere)]
        raise min(interrupted or first or ends, key=lambda found: found.clock).error

    def decided(self, value: Value) -> Value:
        """That of rank 0, on all ranks."""
        return value if self.world.size == 1 else self.world.bcast(value)

    def variables(self) -> dict[str, str]:
        """The environment by which torch.distributed finds its world (`env://`), with a port that nobody uses yet."""
        address = os.environ.get("MASTER_ADDR") or _address(self.world)
        port = self.decided(_free_port() if self.world.rank == 0 else "")
        rank = str(self.world.rank)
        return {
            "RANK": rank, "LOCAL_RANK": os.environ.get("LOCAL_RANK", rank), "WORLD_SIZE": str(self.world.size),
            "MASTER_ADDR": address, "MASTER_PORT": port, "OMP_NUM_THREADS": str(self.threads),
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # torchrun's store knows our ranks, not their processes
        }  # fmt: skip


def _address(world: World) -> str:
    """Of rank 0; the loopback where all ranks have one hostname."""
    names = allgather(world, socket.gethostname())
    return "127.0.0.1" if len(set(names)) == 1 else str(names[0])


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("", 0))
        return str(free.getsockname()[1])
