"""What a backend is: a library that moves the data, seen from the timing side.

A `Backend` is cheap to import and says whether it can be used here. `run` starts its world and calls a body once per
rank of this process (once for MPI and torch, n times in threads for the fake). The body gets a `Session`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from collbench.collectives.row import Array, Collective
from collbench.schema.case import Case, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.call import Call
from collbench.timing.gates import Signals


@dataclass(frozen=True)
class Options:
    """How a world is to be started. `ranks` is used by backends that start their own; `fault` by the fake alone."""

    thread_level: ThreadLevel = "single"
    timeout: float = 300.0
    ranks: int | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Operation:
    """A case made ready on one rank.

    `input` [blocks.send, count] is what this rank contributes; `output` are arrays whose blocks, one after the other,
    are what it receives [blocks.recv, count]. Both know NumPy's indexing, reshape and comparison; they may live on a
    device. `in_place` says whether input and result really share memory. `blocks_held` is the size of all buffers that
    were allocated, in blocks.
    """

    input: Array | None
    output: tuple[Array, ...]
    call: Call
    in_place: bool
    blocks_held: int


class World(Protocol):
    """The control plane: small Python objects between the ranks. Every call is collective."""

    @property
    def rank(self) -> int:
        """The own rank, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def gather(self, value: Any) -> list[Any] | None:
        """Everybody's value on rank 0, None elsewhere."""

    def bcast(self, value: Any) -> Any:
        """Rank 0's value, everywhere."""


def allgather(world: World, value: Any) -> list[Any]:
    """Everybody's value, everywhere."""
    gathered: list[Any] = world.bcast(world.gather(value))
    return gathered


class Session(Protocol):
    """One rank's open backend. `clock` gives ns; `simulated` worlds share it by construction."""

    @property
    def world(self) -> World:
        """The control plane."""

    @property
    def signals(self) -> Signals:
        """Barrier and announcement for the gates."""

    @property
    def clock(self) -> Callable[[], int]:
        """Nanoseconds, `time.monotonic_ns` unless the backend simulates."""

    @property
    def thread_level(self) -> ThreadLevel:
        """The thread level that was granted."""

    @property
    def transport(self) -> str | None:
        """How bytes travel, when the library tells."""

    def prepare(self, case: Case, row: Collective, count: int) -> Operation:
        """Allocate buffers and make the call. Collective.

        Raises:
            Unsupported: this backend does not have the case.
            MemoryError: the buffers do not fit.
        """

    def is_lost_rank(self, error: BaseException) -> bool:
        """Whether an error of the library means that another rank is gone."""

    def abort(self, code: int) -> None:
        """End every rank of the job with `code`; does not return."""


class Backend(Protocol):
    """A row of `backends`."""

    @property
    def name(self) -> str:
        """As the user types it."""

    @property
    def summary(self) -> str:
        """One line."""

    @property
    def simulated(self) -> bool:
        """Whether its times are made up."""

    def missing(self) -> str | None:
        """Why it cannot be used here, with what would help; None when it can. Does not initialise anything."""

    def world_size(self, options: Options) -> int:
        """Number of ranks that `run` will have, known before it starts."""

    def dtypes(self) -> tuple[str, ...]:
        """What it can move."""

    def libraries(self) -> tuple[Library, ...]:
        """The libraries that move the data."""

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """Start the world, call `body` for every rank of this process, leave the world.

        Raises:
            BackendUnavailable: as `missing`.
            WorldMismatch: the world is not the one that was started.
        """
