"""What each place measures in the next block: what is open there. Places that are compared execute the same.

A case that is executed behind fewer others may take another time, because of what is in caches or registered. So what
is open at one of the places that are compared is executed at all of them that are launched: measured where it is open,
and otherwise briefly, without a record.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

Place = TypeVar("Place", bound=Hashable)
Subject = TypeVar("Subject", bound=Hashable)


class Executed(NamedTuple, Generic[Subject]):
    """What is open at a place, and what only at others that it is compared with."""

    here: frozenset[Subject]
    elsewhere: frozenset[Subject]


def next_block(
    compared: Iterable[tuple[tuple[Place, Subject], tuple[Place, Subject]]],
    still_open: Collection[tuple[Place, Subject]],
) -> dict[Place, Executed[Subject]]:
    """By place what it executes; places without anything that is open are left out.

    `compared` are both sides of every comparison, each a place and what is measured there; `still_open` the sides of
    those that are open. What is open elsewhere may be none of a place's own cases.
    """
    here: dict[Place, set[Subject]] = {}
    for place, subject in still_open:
        here.setdefault(place, set()).add(subject)
    joined = {place: place for place in here}

    def group(place: Place) -> Place:
        while joined[place] != place:
            joined[place] = place = joined[joined[place]]
        return place

    for base, other in {(base, other) for (base, _), (other, _) in compared}:
        if base in here and other in here:
            joined[group(base)] = group(other)
    of_group: dict[Place, set[Subject]] = {}
    for place, subjects in here.items():
        of_group.setdefault(group(place), set()).update(subjects)
    return {
        place: Executed(frozenset(subjects), frozenset(of_group[group(place)] - subjects))
        for place, subjects in here.items()
    }
