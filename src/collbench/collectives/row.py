"""What a collective is: a row of facts, its meaning, and what each dialect calls; and a case of it with typed fields.

Words used in the rows: a *block* is what one call's count speaks of. A rank sends `blocks.send` blocks and ends with
`blocks.recv` blocks, each of `count` elements. `meaning` works on arrays [blocks, columns] and treats every column
alike, so that a result of any size can be checked on one period of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.schema.axes import CtaPolicy, Driver, Op, Registration, Staging, ThreadLevel, Value
from collbench.schema.case import Case, case_of
from collbench.schema.files import Count, Rank, RankCount, ShortText

Array = NDArray[Any]


class Input(Protocol):
    """What a rank contributes, [blocks.send, columns]. A span of its blocks is made when it is asked for."""

    def __getitem__(self, blocks: slice, /) -> Array:
        """These blocks; `[:]` are all."""


#: Folds arrays of equal shape with the operation of a case.
Reduce = Callable[[Iterable[Array]], Array]

#: `meaning(rank, inputs, root, reduce)`: what that rank receives, [blocks.recv, columns], None where nothing arrives,
#: from the inputs of all ranks. It asks for those blocks alone that the result depends on.
Meaning = Callable[[int, Sequence[Input], int, Reduce], Array | None]


class Blocks(NamedTuple):
    """How many blocks one rank sends and receives."""

    send: int
    recv: int


class C:
    """A call of a C function: its name, and its arguments in C's order.

    `after_error` is called once if this call fails, where the library must leave a state (such as an NCCL group).
    """

    def __init__(self, function: str, *arguments: Any, after_error: C | None = None) -> None:
        self.function = function
        self.arguments = arguments
        self.after_error = after_error


class CallStep(NamedTuple):
    """An action in both forms: a Python callable, and the C calls that do the same."""

    python: Callable[[], object]
    c: tuple[C, ...]


@dataclass(frozen=True)
class Part:
    """A part of a call that is timed separately; `name` says what it does.

    Every rank names the same parts; one that has nothing to do in a part gives `idle` and no C calls.
    """

    name: str
    python: Callable[[], object]
    c: tuple[C, ...] | None


#: The parts of a collective with a server: messages between server and chief, and the work on the workers' GPUs.
LINK, GPUS = "server link", "gpus"


def idle() -> None:
    """A part in which this rank has nothing to do."""


def in_turn(*steps: Callable[[], object]) -> Callable[[], None]:
    """One callable that performs all steps, one after the other."""

    def perform() -> None:
        for step in steps:
            step()

    return perform


def part(name: str, *steps: CallStep) -> Part:
    """A part that performs these steps, one after the other."""
    python = in_turn(*(step.python for step in steps)) if steps else idle
    return Part(name, python, tuple(call for step in steps for call in step.c))


@dataclass(frozen=True)
class Prepared:
    """What a row makes of `Arguments`: where the input goes, where the result appears, and the call in two forms.

    `c` are C calls, one after the other; `python` is what a Python user would call. `parts` replace them where the
    parts of a call are timed separately. `input` and `output` are None on ranks that contribute or receive nothing.
    `untouched`: this rank's result is its input, which the call does not change.
    """

    input: Any
    output: Any
    python: Callable[[], object] = idle
    c: tuple[C, ...] | None = None
    in_place: bool = False
    untouched: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts, or the whole as one."""
        return self.parts or (Part("", self.python, self.c),)


#: From the arguments of one dialect to a prepared call. Raises `Unsupported` where the dialect has no such call.
Binder = Callable[[Any], Prepared]


@dataclass(frozen=True, eq=False)
class Collective:
    """One operation, independent of any library. `split`: the size asked for is divided among the ranks.

    `has_server`: the root is a parameter server, which keeps its data in host memory and is no worker.
    """

    name: str
    title: str
    summary: str
    blocks: Callable[[int, int, int], Blocks]
    bus_factor: Callable[[int], float]
    meaning: Meaning
    dialects: Mapping[str, Binder] = field(default_factory=dict)
    split: bool = False
    reduces: bool = False
    rooted: bool = False
    moves_data: bool = True
    has_in_place: bool = True
    min_ranks: int = 1
    has_server: bool = False

    def count(self, size: int, itemsize: int, ranks: int) -> int:
        """Elements per block for a size in bytes, rounded down.

        Split operations divide the elements among the ranks and round a share down to 16 bytes (nccl-tests,
        `*GetCollByteCount`). A smaller share stays as it is, where nccl-tests would move nothing.
        """
        if not self.moves_data:
            return 0
        elements = size // itemsize
        if not self.split:
            return elements
        share, unit = elements // ranks, 16 // itemsize
        return share // unit * unit or share

    def size(self, count: int, itemsize: int, ranks: int) -> int:
        """Bytes that move with a count per block: the size asked for, rounded to whole blocks."""
        return count * itemsize * (ranks if self.split else 1)


_UFUNC: dict[Op, Callable[[Array, Array], Array]] = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def fold(op: Op | None) -> Reduce:
    """`reduce` for a meaning: folds arrays of equal shape and dtype with the operation, wrapping round as C does.

    `avg` is the sum over the number of ranks, rounded down in whole numbers (of which none here is negative).
    """

    def folded(arrays: Iterable[Array]) -> Array:
        several = list(arrays)
        with np.errstate(all="ignore"):
            reduced: Array = reduce(_UFUNC[op or "sum"], several)
            if op != "avg":
                return reduced
            if np.issubdtype(reduced.dtype, np.integer):  # in a dtype that holds the number of ranks
                return (reduced.astype(np.int64) // len(several)).astype(reduced.dtype)
            return (reduced.astype(np.float64) / len(several)).astype(reduced.dtype)  # fp8 may not hold it, either

    return folded


# Bus factors: how much more the busiest link carries than the bytes that move, so that bandwidths of different
# operations and rank counts can be compared with the hardware's. Derived in docs/method.md; the first two are those of
# nccl-tests' PERFORMANCE page.


def ring_twice(ranks: int) -> float:
    """2(n-1)/n: every byte goes around the ring once to be reduced and once to be distributed."""
    return 2 * (ranks - 1) / ranks


def ring_once(ranks: int) -> float:
    """(n-1)/n: a rank's own share is not sent."""
    return (ranks - 1) / ranks


def whole(ranks: int) -> float:
    """1: the whole buffer passes the busiest link."""
    return 1.0


def server_link(ranks: int) -> float:
    """n-1: the server's link carries one buffer per worker."""
    return float(ranks - 1)


# A case, for the code that performs it --------------------------------------------------------------------------------


class CollectiveCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for on `ranks` ranks.

    `size` in bytes is as asked for. `op` is None where nothing is reduced, `root` where no rank is special, and `dtype`
    is int8 where no data moves. Only where a backend has the choice: `staging` is the host memory that device data
    passes through; `algorithm` and `protocol` are the values of NCCL_ALGO and NCCL_PROTO (None: the library chooses);
    `registration` is how the communicator knows the buffers, `cta_policy` for what it uses few thread blocks; `graph`
    is how many operations the CUDA graph holds that is launched instead of calls (0: none). `others` are values on axes
    without a field: `case["chunk"]`.
    """

    collective: ShortText
    backend: ShortText
    driver: Driver
    thread_level: ThreadLevel
    size: Count = 0
    dtype: ShortText = "int8"
    op: Op | None = None
    root: Rank | None = None
    ranks: RankCount
    in_place: bool = False
    staging: Staging | None = None
    algorithm: ShortText | None = None
    protocol: ShortText | None = None
    registration: Registration = "none"
    cta_policy: CtaPolicy = "default"
    graph: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 0
    others: tuple[tuple[ShortText, Value], ...] = ()

    def __getitem__(self, axis: str) -> Any:
        """The value on an axis."""
        return self.identity[axis]

    @property
    def identities(self) -> tuple[Case, ...]:
        """The cases as they are recorded: one."""
        return (self.identity,)

    @property
    def identity(self) -> Case:
        """The case as it is recorded; without size and dtype where no data moves."""
        from collbench import collectives

        values: dict[str, Value] = msgspec.structs.asdict(self)
        del values["collective"], values["others"]
        values |= dict(self.others)
        if not collectives.get(self.collective).moves_data:
            del values["size"], values["dtype"]
        return case_of(self.collective, values)


def collective_case(collective: str, values: Mapping[str, Any]) -> CollectiveCase:
    """The case with these values on its axes."""
    named = CollectiveCase.__struct_fields__
    others = tuple((axis, value) for axis, value in values.items() if axis not in named)
    fields = {axis: value for axis, value in values.items() if axis in named}
    return CollectiveCase(collective=collective, others=others, **fields)
