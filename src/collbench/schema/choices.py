"""How values of an axis are asked for, and which of them a collective on a backend has.

`Choice` is the part of an entry of the table (`schema.axes`) that a plan and a command read: the plan's key, the flag,
and what becomes of the values asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from collbench.errors import PlanError
from collbench.units import parse_size


class Row(Protocol):
    """What a collective says about axes (`collectives.row.Collective`)."""

    @property
    def name(self) -> str: ...
    @property
    def reduces(self) -> bool: ...
    @property
    def rooted(self) -> bool: ...
    @property
    def moves_data(self) -> bool: ...
    @property
    def has_in_place(self) -> bool: ...
    @property
    def has_server(self) -> bool: ...


class Library(Protocol):
    """What a backend says about axes (`bindings.spec.Backend`)."""

    @property
    def name(self) -> str: ...
    @property
    def axes(self) -> frozenset[str]: ...
    @property
    def ops(self) -> tuple[Any, ...]: ...
    def dtypes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Flag:
    """The option of a command. `words` are what it takes, each with what it puts into the plan; without, it is free.

    `commas`: several values, with commas between. `alone` is the word that the flag means without one. `default` is
    said in the help where it is not simply the plan's.
    """

    spelled: tuple[str, ...]
    help: str
    metavar: str | None = None
    words: Mapping[str, Any] = field(default_factory=dict)
    commas: bool = False
    alone: str | None = None
    default: str = ""


@dataclass(frozen=True)
class Situation:
    """A collective on a backend, on so many ranks. `operations` are those of a burst; one in cadence isolated."""

    row: Row
    backend: Library
    ranks: int
    operations: int = 1

    def has(self, axis: str, choice: Choice) -> bool:
        """Whether there are values on an axis; `server staging` is one for collectives with a parameter server."""
        axes = self.backend.axes
        named = axis in axes or (self.row.has_server and f"server {axis}" in axes)
        return choice.row(self.row) and (named or not choice.optional)


def as_asked(asked: Any, situation: Situation) -> tuple[Any, ...]:
    """The values as the plan has them, one or several."""
    return asked if isinstance(asked, tuple) else (asked,)


@dataclass(frozen=True)
class Choice:
    """What a plan and a command know of an axis.

    `key` is the plan's, `default` what it has where nobody asks: a tuple if the key holds a list. `of` is the type of a
    value in a plan where it is narrower than the axis's own. `check` raises for a value that no case can have.
    A case has values on the axis if its collective does (`row`), and if its backend names it in `axes`, where only some
    have it (`optional`). `values` makes the values of the cases from those asked for; a name of `groups` stands for
    several of a workload's own. `nested` is the place among the loops over a plan: the lowest is the outermost, equal
    ones stand in the order of the table.
    """

    key: str
    default: Any = ()
    flag: Flag | None = None
    of: Any = None
    row: Callable[[Row], bool] = lambda row: True
    optional: bool = False
    values: Callable[[Any, Situation], tuple[Any, ...]] = as_asked
    groups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    check: Callable[[str, Any], None] = lambda key, value: None
    nested: int = 0

    @property
    def many(self) -> bool:
        """Whether the plan has a list of values, of which each is a case."""
        return isinstance(self.default, tuple)

    def read(self, typed: Any) -> Any:
        """What the flag puts into the plan."""
        flag = self.flag
        if flag is None or typed is None:
            return self.default
        if flag.words:
            return flag.words[typed]
        if flag.commas:
            return tuple(typed.split(","))
        return (typed,) if self.many else typed

    @property
    def typed(self) -> Any:
        """The default as one would type it; None where there is none, or it depends."""
        if self.flag is None or self.flag.default:
            return None
        if self.flag.words:
            return next(word for word, value in self.flag.words.items() if value == self.default)
        return self.default[0] if self.many else self.default


def one_of(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The words of a flag that takes one name for a list of one."""
    return {name: (name,) for name in names}


YES_NO_BOTH = {"yes": (True,), "no": (False,), "both": (False, True)}


#: A sweep of more sizes than this is a typing error.
MOST_SIZES = 10_000


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep from `min` to `max` bytes: times `factor`, or plus `step` bytes when that is given."""

    min: str | int = "8"
    max: str | int = "4M"
    factor: int = 2
    step: str | int | None = None

    def expand(self) -> tuple[int, ...]:
        """The sizes in bytes, ascending.

        Raises:
            PlanError: min above max; a factor below 2, a step below 1 or far too many steps where more than one size
                is asked for.
            UnitError: a size that cannot be read.
        """
        low, high = parse_size(self.min), parse_size(self.max)
        if low > high:
            raise PlanError(f"sizes: min {self.min} is above max {self.max}. Swap them, or give one size as both.")
        if low == high:
            return (low,)
        step = None if self.step is None else parse_size(self.step)
        if step is not None and step < 1:
            raise PlanError("sizes: step must be at least 1 byte.")
        if step is None and self.factor < 2:
            raise PlanError(f"sizes: factor {self.factor} never reaches max. Use 2 or more, or a step in bytes.")
        if step is not None and (high - low) // step >= MOST_SIZES:
            raise PlanError(f"sizes: step {self.step} gives more than {MOST_SIZES} sizes. A larger one, or a factor?")
        sizes = [low]
        while (following := sizes[-1] * self.factor or 1 if step is None else sizes[-1] + step) <= high:
            sizes.append(following)
        return tuple(sizes)


def sizes_in_bytes(asked: Sizes | tuple[str | int, ...] | None) -> tuple[int, ...]:
    """The sizes that a plan asks for; 8 B to 4 MiB where it says nothing.

    Raises:
        PlanError, UnitError: as `Sizes.expand`.
    """
    if asked is None or isinstance(asked, Sizes):
        return (asked or Sizes()).expand()
    return tuple(parse_size(size) for size in asked)


#: Item size in bytes of every dtype that exists anywhere in collbench.
DTYPES: dict[str, int] = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

#: What users of nccl-tests and C type instead.
DTYPE_ALIASES: dict[str, str] = {"half": "float16", "float": "float32", "double": "float64", "char": "int8"}
