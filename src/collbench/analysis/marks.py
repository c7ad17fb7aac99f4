"""Sets of facts about cells. Most cells have the same few, or none, and share them: there may be a hundred thousand."""

from __future__ import annotations

from collections.abc import Collection, Set
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


def joined(known: Set[T], new: Collection[T]) -> Set[T]:
    """Both in one. What is not known yet goes into a set of one's own: `known`, if it is one already."""
    if isinstance(known, set):
        known.update(new)
        return known
    if not known:
        return _shared(frozenset(new))
    return known if known >= {*new} else {*known, *new}


@lru_cache
def _shared(facts: frozenset[T]) -> frozenset[T]:
    """The same object for all who have these facts."""
    return facts
