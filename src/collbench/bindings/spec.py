"""What a backend is, seen from the timing side: a library that moves the data, and how its ranks agree.

A `Backend` is cheap to import and says whether it can be used here. `run` starts its world and calls a body once per
rank of this process (once for MPI and torch, n times in threads for the fake). The body gets a `Session`, which makes
an `Operation` of each case: buffers, and the call, of which `make_call` makes machine words.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from collbench.collectives.row import Array, Binder, C, Collective, CollectiveCase, Part, Prepared
from collbench.errors import Unsupported
from collbench.machine import cgroup
from collbench.schema.axes import DTYPES, Op, ThreadLevel
from collbench.schema.manifest import Gpu, Library
from collbench.schema.world import Place
from collbench.timing.loop import Call, Halt, Native, Signals, Stage, Stopwatch

T = TypeVar("T")

PAGE = 4096

USABLE_SHARE = 0.95  # how much of what is free the buffers may take; the rest is the library's


@dataclass(frozen=True)
class Roles:
    """Who needs a GPU, as far as the cases say: all ranks in some case, all but the `servers` in others."""

    all_work: bool = True
    servers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class WorldSettings:
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


#: Whole numbers of a rank, of which ranks form minima, maxima and sums: int64, and above -2**63.
Numbers = Sequence[int] | NDArray[np.int64]


class World(ABC):
    """The control plane: small Python objects between the ranks, and reductions of numbers. Every call is collective.

    `gather` takes time and memory in proportion to the ranks, and is for what is told once; a reduction hardly takes
    more for many ranks than for few. The least and the largest take one message, because max(x) is -min(-x).
    """

    rank: int
    size: int

    @abstractmethod
    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks on rank 0, None elsewhere."""

    @abstractmethod
    def bcast_from(self, value: Any, source: int) -> Any:
        """The value of rank `source`, on every rank."""

    def bcast(self, value: Any) -> Any:
        return self.bcast_from(value, 0)

    @abstractmethod
    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        """Of each number [n] the smallest over the ranks, or the sum, in a new array on every rank."""

    def minmax(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The smallest and the largest of each number over the ranks, on every rank; all give as many."""
        mine = np.asarray(values, np.int64)
        least = self.reduced(np.concatenate((mine, -mine)), smallest=True)
        return least[: len(mine)], -least[len(mine) :]

    def total(self, values: Numbers) -> NDArray[np.int64]:
        return self.reduced(np.array(values, np.int64), smallest=False)


def allgather(world: World, value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    gathered: list[Any] = world.bcast(world.gather(value))
    return gathered


def first_rank(world: World, here: bool) -> int | None:
    """The first rank for which `here` is true, on all ranks. Collective."""
    lowest, _ = world.minmax([world.rank if here else world.size])
    return None if lowest[0] == world.size else int(lowest[0])


def first_value(world: World, value: T | None) -> T | None:
    """The value of the first rank that has one, on all ranks. Collective."""
    source = first_rank(world, value is not None)
    return None if source is None else world.bcast_from(value, source)


def digest_of(value: object) -> bytes:
    """8 bytes that are the same on all ranks where the value is."""
    return hashlib.blake2b(pickle.dumps(value), digest_size=8).digest()


def gathered_once(world: World, value: T) -> list[T] | None:
    """The values of all ranks on rank 0, None elsewhere: a hash of each, and each different value once. Collective.

    Equal values are one object on rank 0.
    """
    digests = world.gather(digest_of(value))
    first: dict[bytes, int] = {}
    for rank, digest in enumerate(digests or ()):
        first.setdefault(digest, rank)
    senders: frozenset[int] = world.bcast(frozenset(first.values()))
    sent = world.gather(value if world.rank in senders else None)
    return None if digests is None or sent is None else [sent[first[digest]] for digest in digests]


class Failures(Protocol):
    """What ranks tell each other of the part that each has in an act. All of them `begin` the same acts.

    `announce`: in the act that was begun last, this rank has failed; `announced`: whether a rank has.
    """

    def begin(self) -> None: ...
    def announce(self) -> None: ...
    def announced(self) -> bool: ...


class Buffer(Protocol):
    """[blocks, count] elements, on the host or on a device, seen through copies of spans of a block.

    `load` gives the elements from `start` to `stop` of a block, to be read only; `store` writes those from `start` on,
    and is complete on return.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def load(self, block: int, start: int, stop: int) -> Array: ...
    def store(self, block: int, start: int, values: Array) -> None: ...


_ML_DTYPES = {"bfloat16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}

#: Those that no library of arrays on a GPU has: raw unsigned integers of their size stand for them.
RAW_DTYPES = {"bfloat16": "uint16", "fp8_e4m3": "uint8", "fp8_e5m2": "uint8"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name; bfloat16 and those of 8 bits come from ml_dtypes."""
    if (theirs := _ML_DTYPES.get(name)) is None:
        return np.dtype(name)
    import ml_dtypes

    small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, theirs))
    return small


def page_aligned(blocks: int, count: int, dtype: str) -> Array:
    """Uninitialised [blocks, count] that begins on a page, as MPI benchmarks in C allocate."""
    size = blocks * count * DTYPES[dtype]
    raw = np.empty(size + PAGE, np.uint8)
    offset = -raw.ctypes.data % PAGE
    return raw[offset : offset + size].view(numpy_dtype(dtype)).reshape(blocks, count)


def available_bytes() -> int | None:
    """What can be allocated without swapping, within the cgroup's limit; None where the kernel does not say."""
    lines = (cgroup.text_of("/proc/meminfo") or "").splitlines()
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    free = cgroup.memory_left()
    return min((*limits, *(() if free is None else (free,))), default=None)


class HostArguments:
    """The part of `Arguments` that all backends share. Buffers are allocated when asked for: NumPy's, on the host."""

    def __init__(self, case: CollectiveCase, row: Collective, count: int, rank: int) -> None:
        self.rank, self.ranks, self.root = rank, case.ranks, case.root or 0
        self.count, self.dtype, self.in_place = count, case.dtype, case.in_place
        self.blocks_held = 0
        self._blocks = row.blocks(rank, case.ranks, self.root)

    def buffer(self, blocks: int) -> Any:
        """[blocks, count] on a page boundary."""
        self.blocks_held += blocks
        return page_aligned(blocks, self.count, self.dtype)

    @cached_property
    def send(self) -> Any:
        return self.buffer(self._blocks.send)

    @cached_property
    def recv(self) -> Any:
        return self.buffer(self._blocks.recv)


class HostBuffer:
    """`Buffer` over a NumPy array [blocks, count]."""

    def __init__(self, array: Array) -> None:
        self.array, self.dtype = array, array.dtype
        self.shape: tuple[int, int] = (array.shape[0], array.shape[1])

    def load(self, block: int, start: int, stop: int) -> Array:
        view: Array = self.array[block, start:stop]
        return view

    def store(self, block: int, start: int, values: Array) -> None:
        self.array[block, start : start + len(values)] = values


@dataclass(frozen=True)
class Observation:
    """What a library was seen to do in one operation; None where it does not say. `notes` are for the record."""

    algorithm: str | None = None
    protocol: str | None = None
    transport: str | None = None
    notes: tuple[str, ...] = ()

    @staticmethod
    def merged(by_rank: Sequence[Observation]) -> Observation:
        """What all ranks saw, as one: distinct words side by side."""

        def distinct(field: str) -> str | None:
            words = [getattr(seen, field) for seen in by_rank]
            return ", ".join(dict.fromkeys(filter(None, words))) or None

        notes = tuple(dict.fromkeys(note for seen in by_rank for note in seen.notes))
        return Observation(distinct("algorithm"), distinct("protocol"), distinct("transport"), notes)


#: Says what the library was seen to do in the operation that its argument performs once. Collective.
Observe = Callable[[Callable[[], object]], Observation]


@dataclass(frozen=True)
class Operation:
    """A case, ready to be performed on one rank.

    `input` [blocks.send, count] is what this rank contributes; `output` are buffers whose blocks, one after the other,
    are what it receives [blocks.recv, count]. `in_place` says whether input and result really share memory.
    `blocks_held` is the size of all buffers in host memory, in blocks. `observe`: None where the library does not say.
    """

    input: Buffer | None
    output: tuple[Buffer, ...]
    call: Call
    in_place: bool
    blocks_held: int
    observe: Observe | None = None


def as_parts(output: Any) -> tuple[Any, ...]:
    """A row's output as a tuple of arrays of its dialect."""
    if output is None:
        return ()
    return output if isinstance(output, tuple) else (output,)


def operation_of(
    prepared: Prepared, call: Call, blocks_held: int, access: Callable[[Any], Buffer] = HostBuffer,
    observe: Observe | None = None,
) -> Operation:  # fmt: skip
    source = None if prepared.input is None else access(prepared.input)
    received = tuple(map(access, as_parts(prepared.output)))
    return Operation(source, received, call, prepared.in_place, blocks_held, observe)


def to_word(argument: Any) -> int:
    """One C argument as a machine word: where a buffer begins, an integer itself; 0 for None."""
    address = argument.ctypes.data if isinstance(argument, np.ndarray) else getattr(argument, "address", argument)
    return int(address or 0)


#: The C functions of a library: a call as words; None where it does not have the function.
Symbols = Callable[[C], Native | None]


def first_of(*libraries: Symbols | None) -> Symbols:
    """Several libraries as one: a function is taken from the first that has it. None is one that is not used."""
    used = [library for library in libraries if library is not None]
    return lambda call: next((native for library in used if (native := library(call)) is not None), None)


def make_call(
    prepared: Prepared, symbols: Symbols, keep: tuple[object, ...], completion: Stage | None = None,
    stopwatch: Stopwatch | None = None, halt: Halt | None = None,
) -> Call:  # fmt: skip
    """The call of a prepared row, in both forms. `halt`: the session's, where it may take its library down."""
    missing = [call.function for part in prepared.all_parts for call in part.c or () if symbols(call) is None]
    reason = f"{missing[0]} was not found in the library" if missing else None
    stages = tuple(_stage_of(part, symbols) for part in prepared.all_parts)
    return Call(stages, completion, stopwatch, reason, (prepared, *keep), halt or Halt())


def _stage_of(part: Part, symbols: Symbols) -> Stage:
    calls = []
    for call in part.c or ():
        if (native := symbols(call)) is not None:
            after = None if call.after_error is None else symbols(call.after_error)
            calls.append(native if call.after_error is None else replace(native, after_error=after))
    complete = part.c is not None and len(calls) == len(part.c)
    return Stage(part.python, tuple(calls) if complete else None, part.name)


class Session(Protocol):
    """One rank's open backend. Defaults: no collectives; calls report their own errors, and end with the process."""

    world: World  # the control plane
    signals: Signals  # to line ranks up
    thread_level: ThreadLevel  # the one that was granted
    #: Nanoseconds; another than this where the backend simulates, whose worlds share it by construction.
    clock: Callable[[], int] = staticmethod(time.monotonic_ns)
    clock_id: str | None = None  # names a simulated clock, where ranks have several
    gpu: Gpu | None = None  # that this rank uses
    failures: Failures | None = None  # by which ranks hear of a failure elsewhere; None: by the control plane alone

    @property
    def transport(self) -> str | None:
        """How bytes travel; None where the library does not say."""
        return None

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Allocate buffers and make the call. Collective.

        Raises Unsupported: this backend does not have the case; MemoryError: the buffers do not fit.
        """
        raise Unsupported(f"{row.name}: needs a communication library")

    def is_lost_rank(self, error: BaseException) -> bool:
        """Whether an error of the library means that another rank is gone; False where its launcher ends the job."""
        return False

    def abort(self, code: int) -> None:
        """End every rank of the job with `code`; does not return."""

    def explained(self, error: Exception) -> str:
        """An error of the library in its words, with what its log says of the cause."""
        return str(error)

    def async_error(self) -> str | None:
        """An asynchronous error of the library, which no call has returned. From any thread; cheap."""
        return None

    def abort_call(self) -> None:
        """Make a call that waits for a lost rank return, before this process ends. From any thread."""
        return

    def reset(self) -> None:
        """A call of the last case has failed: what it used is not to be used again. Collective."""
        return

    def close(self) -> None:
        """Free what the library holds, after the last case. Collective."""
        return


class Backend(Protocol):
    """What `backends` finds by its name. Defaults: data on the host, an existing dialect, nothing of its own."""

    name: str  # that of its file or entry point
    summary: str  # one line
    ops: tuple[Op, ...]  # the reductions that it has
    simulated: bool = False  # whether its times are
    device: Literal["cpu", "gpu"] = "cpu"  # where the data lives
    streams: bool = False  # whether operations can be issued back to back and completed once
    axes: frozenset[str] = frozenset()  # of a case (`schema.axes`), that only some backends vary, and this one does
    binders: Mapping[str, Binder] = MappingProxyType({})  # by collective: instead of its row's dialect
    variables: tuple[str, ...] = ()  # prefixes of those by which users change what is measured, for the manifest
    packages: tuple[str, ...] = ()  # distributions whose versions matter, for the manifest

    def missing(self) -> str | None:
        """Why it cannot be used here, with what would help; None when it can. Does not initialise anything."""

    def world_size(self, options: WorldSettings) -> int:
        """Number of ranks that `run` will start."""

    def dtypes(self) -> tuple[str, ...]:
        """Names of the dtypes that it can move (`schema.axes.DTYPES`)."""

    def libraries(self) -> tuple[Library, ...]:
        """The libraries that move the data."""

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        """Start the world, call `body` for every rank of this process, shut the world down.

        Raises BackendUnavailable: as `missing`; WorldMismatch: the world is not the one that was started.
        """


def binder_of(backend: Backend, row: Collective, dialect: str = "", title: str = "") -> Binder:
    """What makes a backend's call of a row: its own binder, else the row's for the dialect (`title` in messages).

    Raises Unsupported: there is neither.
    """
    binder = backend.binders.get(row.name) or row.dialects.get(dialect)
    if binder is None:
        raise Unsupported(f"{row.name} has no {title or backend.name} form")
    return binder
