"""What entries of the table of axes choose from: from values asked for to those of cases, and checks of a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from collbench.errors import PlanError
from collbench.schema.choices import Library, Situation
from collbench.schema.policy import is_spelling
from collbench.spelling import suggestion

#: As Docker spells a reference: no blank, no quote, nothing that a shell would read.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+:[0-9]{1,5}/)?[a-z0-9]+(?:[._/-][a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)

_SIDE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)


def named(
    known: Iterable[str], everything: Callable[[Library], Iterable[str]], aliases: Mapping[str, str]
) -> Callable[[Any, Situation], tuple[str, ...]]:
    """Values that are names, in any case of letters; `all` is whatever the backend has. `name_of` checked them."""
    proper = {name: name for name in known} | dict(aliases)

    def values(asked: Any, situation: Situation) -> tuple[str, ...]:
        names: list[str] = []
        for name in map(str.lower, asked):
            names.extend(everything(situation.backend) if name == "all" else (proper[name],))
        return tuple(dict.fromkeys(names))

    return values


def name_of(axis: str, known: Iterable[str], every: bool = True) -> Callable[[str, Any], None]:
    """A check that a value is one of these names: with `every` in any case of letters, or `all`."""
    names = (*known, "all") if every else tuple(known)

    def check(key: str, value: Any) -> None:
        if (value.lower() if every else value) not in names:
            raise PlanError(f"{axis} {value!r}: unknown. {suggestion(value.lower(), names)}")

    return check


def roots(asked: Any, situation: Situation) -> tuple[int, ...]:
    """Ranks of the world."""
    for rank in asked:
        if not 0 <= rank < situation.ranks:
            raise PlanError(f"root {rank}: there are {situation.ranks} ranks, 0 to {situation.ranks - 1}.")
    return tuple(asked)


def empty_is_none(asked: Any, situation: Situation) -> tuple[Any, ...]:
    """A plan says "" where it leaves the choice to the library."""
    return tuple(value or None for value in asked)


def operations_of_graph(asked: Any, situation: Situation) -> tuple[int, ...]:
    """A graph holds one operation, or in streaming cadence a whole burst."""
    return (situation.operations if asked else 0,)


def places(asked: Any, situation: Situation) -> tuple[bool, ...]:
    """Without an in-place form there is one case: out of place, unless only in place was asked for (a skip then)."""
    if situation.row.has_in_place:
        return tuple(asked)
    return (False not in asked,)


def nccl_words(*known: str) -> Callable[[str, Any], None]:
    """A check of NCCL_ALGO or NCCL_PROTO: words between commas, `^` before those to exclude, `func:` before each."""
    lower = {name.lower() for name in known}

    def check(key: str, value: Any) -> None:
        for word in re.split(r"[,;]", value):
            name = word.rpartition(":")[2].strip().removeprefix("^")
            if name and name.lower() not in lower:
                raise PlanError(f"{key} {value!r}: NCCL has no {name}. {suggestion(name, known)}")

    return check


def within(low: int, high: int) -> Callable[[str, Any], None]:
    """A check of a number."""

    def check(key: str, value: Any) -> None:
        if value < low:
            raise PlanError(f"{key} {value}: must be at least {low}.")
        if value > high:
            raise PlanError(f"{key} {value}: at most {high:,}.")

    return check


def image_name(key: str, value: Any) -> None:
    """A check."""
    if _IMAGE.fullmatch(value) is None:
        raise PlanError(f"image {value!r}: not a name of an image. Write openmpi, or site/name:tag.")


def policy_name(key: str, value: Any) -> None:
    """A check."""
    if not is_spelling(value):
        raise PlanError(f"policy {value!r}: not a name of a policy. Write single, or with a number packed:2.")


def side_name(key: str, value: Any) -> None:
    """A check."""
    if _SIDE.fullmatch(value) is None:
        raise PlanError(f"{key}: {value!r}: a side is named by letters, digits, - and _, at most 32 of them.")
