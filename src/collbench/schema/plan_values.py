"""What is wrong with a value of a plan, in the words of a plan: the key, what was found, and what would work."""

from __future__ import annotations

import json
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

_EXPECTED = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}

#: Characters of a value that a message quotes.
_QUOTED = 40


def mistake_in(document: dict[str, Any], kind: type[msgspec.Struct], prefix: str = "") -> str | None:
    """The first value that a plan of this kind cannot have on its key; None: there is none."""
    for field in msgspec.structs.fields(kind):
        if field.name in document:
            mistake = _mistake(prefix + field.name, document[field.name], field.type, field.default)
            if mistake is not None:
                return mistake
    return None


def _mistake(key: str, value: Any, of: Any, usual: Any = None) -> str | None:
    if _fits(value, of):
        return None
    kinds = _members(of)
    inside = _inside(key, value, kinds)
    if inside is not None:
        return inside
    if isinstance(value, str) and all(get_origin(kind) is Literal for kind in kinds):
        return f"{key} {_found(value)}: choose one of {', '.join(get_args(kinds[0]))}"
    expected = " or ".join(_expected(kind, value, usual) for kind in kinds if kind is not int or float not in kinds)
    return f"{key}: expected {expected}, not {_noun(value)}{_found(value)}"


def _fits(value: Any, of: Any) -> bool:
    try:
        msgspec.convert(value, of)
    except msgspec.ValidationError:
        return False
    return True


def _members(of: Any) -> tuple[Any, ...]:
    """The types that a value may have."""
    if get_origin(of) in (Union, UnionType):
        return tuple(kind for kind in get_args(of) if kind is not NoneType)
    return (of,)


def _inside(key: str, value: Any, kinds: tuple[Any, ...]) -> str | None:
    """The first mistake in an element of a list or a table, where the key takes one."""
    mistakes: list[str | None] = []
    for kind in kinds:
        if isinstance(value, list) and get_origin(kind) is tuple:
            mistakes += [_mistake(key, element, get_args(kind)[0]) for element in value]
        elif isinstance(value, dict) and get_origin(kind) is dict:
            mistakes += [_mistake(f"{key}.{name}", element, get_args(kind)[1]) for name, element in value.items()]
        elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            mistakes.append(mistake_in(value, kind, f"{key}."))
    return next((mistake for mistake in mistakes if mistake is not None), None)


def _expected(kind: Any, value: Any, usual: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(json.dumps, get_args(kind)))
    if get_origin(kind) is tuple:
        example = [value] if _fits(value, get_args(kind)[0]) else list(usual) if isinstance(usual, tuple) else []
        return f"a list such as {json.dumps(example)}" if example else "a list"
    return _EXPECTED.get(kind, "a table")


def _noun(value: Any) -> str:
    if isinstance(value, str):
        return "the string "
    return "the number " if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _found(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    text = json.dumps(value, default=str)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} ..."
