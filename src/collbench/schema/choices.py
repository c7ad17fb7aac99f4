"""How values of an axis are asked for, and which of them a collective on a backend has.

`Choice` is the part of an entry of the table (`schema.axes`) that a plan and a command read: the plan's key, the flag,
and what becomes of the values asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
