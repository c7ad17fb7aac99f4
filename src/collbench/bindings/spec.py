"""What a backend is: a library that moves the data, seen from the timing side.

A `Backend` is cheap to import and says whether it can be used here. `run` starts its world and calls a body once per
rank of this process (once for MPI and torch, n times in threads for the fake). The body gets a `Session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, Binder, Collective
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Gpu, Library
from collbench.schema.world import Place
from collbench.timing.call import Call, Signals


@dataclass(frozen=True)
class Roles:
    """Who needs a GPU, as far as the cases say: all ranks in some case, all but the `servers` in others."""

    all_work: bool = True
    servers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Seen:
    """What a library was seen to do in one operation; None where it does not say. `notes` are for the record."""

    algorithm: str | None = None
    protocol: str | None = None
    transport: str | None = None
    notes: tuple[str, ...] = ()


def merged(by_rank: Sequence[Seen]) -> Seen:
    """What all ranks saw, as one: distinct words side by side."""

    def distinct(words: Iterable[str | None]) -> str | None:
        return ", ".join(dict.fromkeys(word for word in words if word)) or None

    return Seen(
        distinct(seen.algorithm for seen in by_rank),
        distinct(seen.protocol for seen in by_rank),
        distinct(seen.transport for seen in by_rank),
        tuple(dict.fromkeys(note for seen in by_rank for note in seen.notes)),
    )


@dataclass(frozen=True)
class Options:
    """How a world is to be started. `ranks` is used by backends that start their own ranks; `fault` by `fake` alone.

    `roles` and `share_gpu` (several ranks may use one GPU) matter to backends whose data is on GPUs. `places` are those
    that a launcher planned, by rank; None: it planned none. `turns` is the folder with the pipes of a world beside
    others.
    """

    thread_level: ThreadLevel = "single"
    timeout: float = 300.0
    ranks: int | None = None
    fault: str | None = None
    roles: Roles = Roles()
    share_gpu: bool = False
    places: tuple[Place, ...] | None = None
    turns: Path | None = None


class Buffer(Protocol):
    """[blocks, count] elements, on the host or on a device, seen through copies of spans of a block."""

    @property
    def shape(self) -> tuple[int, int]:
        """Blocks, and elements in each."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype in NumPy."""

    def load(self, block: int, start: int, stop: int) -> Array:
        """Elements `start` to `stop` of a block, to be read only."""

    def store(self, block: int, start: int, values: Array) -> None:
        """Write a block's elements from `start` on. Complete on return."""


@dataclass(frozen=True)
class Operation:
    """A case, ready to be performed on one rank.

    `input` [blocks.send, count] is what this rank contributes; `output` are buffers whose blocks, one after the other,
    are what it receives [blocks.recv, count]. `in_place` says whether input and result really share memory.
    `blocks_held` is the size of all buffers in host memory, in blocks. `observe(once)` calls `once`, which performs the
    operation, and says what the library was seen to do; collective. None: it does not say.
    """

    input: Buffer | None
    output: tuple[Buffer, ...]
    call: Call
    in_place: bool
    blocks_held: int
    observe: Callable[[Callable[[], object]], Seen] | None = None


#: Whole numbers of a rank, of which ranks form extremes and sums: int64, and above -2**63.
Numbers = Sequence[int] | NDArray[np.int64]


class World(Protocol):
    """The control plane: small Python objects between the ranks, and reductions of numbers. Every call is collective.

    `gather` takes time and memory in proportion to the ranks, and is for what is told once; a reduction hardly takes
    more for many ranks than for few.
    """

    @property
    def rank(self) -> int:
        """Rank of this process, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks on rank 0, None elsewhere."""

    def bcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""

    def tell(self, value: Any, source: int) -> Any:
        """The value of rank `source`, on every rank."""

    def extremes(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The smallest and the largest of each number over the ranks, on every rank; all give as many."""

    def total(self, values: Numbers) -> NDArray[np.int64]:
        """The sum of each number over the ranks, on every rank; all give as many."""


def allgather(world: World, value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    gathered: list[Any] = world.bcast(world.gather(value))
    return gathered


class Failures(Protocol):
    """What ranks tell each other of the part that each has in an act. All of them begin the same acts."""

    def begin(self) -> None:
        """The next act."""

    def tell(self) -> None:
        """In the act that was begun last, this rank has failed."""

    def told(self) -> bool:
        """Whether a rank has failed in it."""


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
    def clock_id(self) -> str | None:
        """Names a simulated clock, where ranks have several; None: the machine's, or one for all."""

    @property
    def thread_level(self) -> ThreadLevel:
        """The thread level that was granted."""

    @property
    def transport(self) -> str | None:
        """How bytes travel; None where the library does not say."""

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that this rank uses; None: it uses none."""

    @property
    def failures(self) -> Failures | None:
        """By which ranks hear of a failure elsewhere; None: by the control plane alone."""

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Allocate buffers and make the call. Collective.

        Raises:
            Unsupported: this backend does not have the case.
            MemoryError: the buffers do not fit.
        """

    def is_lost_rank(self, error: BaseException) -> bool:
        """Whether an error of the library means that another rank is gone."""

    def explained(self, error: Exception) -> str:
        """An error of the library in its words, with what its log says of the cause."""

    def trouble(self) -> str | None:
        """An asynchronous error of the library, which no call has returned. From any thread; cheap."""

    def break_off(self) -> None:
        """Make a call that waits for a lost rank return, before this process ends. From any thread."""

    def start_over(self) -> None:
        """A call of the last case has failed: what it used is not to be used again. Collective."""

    def close(self) -> None:
        """Free what the library holds, after the last case. Collective."""

    def abort(self, code: int) -> None:
        """End every rank of the job with `code`; does not return."""


class HostSession:
    """Answers of a session whose calls report their own errors and end with the process."""

    gpu: Gpu | None = None
    failures: Failures | None = None
    clock_id: str | None = None

    def explained(self, error: Exception) -> str:
        """As it is."""
        return str(error)

    def trouble(self) -> str | None:
        """There are no asynchronous errors."""
        return None

    def break_off(self) -> None:
        """Calls end with the process."""

    def start_over(self) -> None:
        """A call that has failed leaves nothing behind."""

    def close(self) -> None:
        """There is nothing to be freed."""


class Backend(Protocol):
    """What `backends` finds by its name."""

    @property
    def name(self) -> str:
        """That of its file or entry point."""

    @property
    def summary(self) -> str:
        """One line."""

    @property
    def simulated(self) -> bool:
        """Whether its times are simulated."""

    @property
    def device(self) -> Literal["cpu", "gpu"]:
        """Where the data lives."""

    @property
    def streams(self) -> bool:
        """Whether operations can be issued back to back and completed once."""

    @property
    def axes(self) -> frozenset[str]:
        """Axes of a case (`schema.axes`) that only some backends vary, and this one does."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """The reductions that it has."""

    @property
    def binders(self) -> Mapping[str, Binder]:
        """By the name of a collective, how it is called here instead of as its row says."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Prefixes of the environment variables by which users change what is measured, for the manifest."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Distributions whose versions matter, for the manifest."""

    def missing(self) -> str | None:
        """Why it cannot be used here, with what would help; None when it can. Does not initialise anything."""

    def world_size(self, options: Options) -> int:
        """Number of ranks that `run` will start."""

    def dtypes(self) -> tuple[str, ...]:
        """Names of the dtypes that it can move (`schema.dtypes.DTYPES`)."""

    def libraries(self) -> tuple[Library, ...]:
        """The libraries that move the data."""

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """Start the world, call `body` for every rank of this process, shut the world down.

        Raises:
            BackendUnavailable: as `missing`.
            WorldMismatch: the world is not the one that was started.
        """


class HostBackend:
    """Defaults of a backend: data on the host, an existing dialect, nothing of its own."""

    simulated = False
    device: Literal["cpu", "gpu"] = "cpu"
    streams = False
    axes: frozenset[str] = frozenset()
    binders: Mapping[str, Binder] = MappingProxyType({})
    variables: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
