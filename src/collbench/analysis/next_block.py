"""What each place measures in the next block: the same at all places that are compared, of all that is open at any.

A case that is measured behind fewer others may take another time, because of what is in caches or registered. So two
sides that are compared measure the same cases in a block, or one of them is not launched in it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

Place = TypeVar("Place", bound=Hashable)
Subject = TypeVar("Subject", bound=Hashable)


def next_block(
    compared: Iterable[tuple[tuple[Place, Subject], tuple[Place, Subject]]],
    still_open: Collection[tuple[Place, Subject]],
) -> dict[Place, frozenset[Subject]]:
    """By place what it measures; places without anything that is open are left out.

    `compared` are both sides of every comparison, each a place and what is measured there; `still_open` the sides of
    those that are open. A place may lack what others of its group measure.
    """
    launched = {place for place, _ in still_open}
    joined = {place: place for place in launched}

    def group(place: Place) -> Place:
        while joined[place] != place:
            joined[place] = place = joined[joined[place]]
        return place

    for base, other in {(base, other) for (base, _), (other, _) in compared}:
        if base in launched and other in launched:
            joined[group(base)] = group(other)
    subjects: dict[Place, set[Subject]] = {}
    for place, subject in still_open:
        subjects.setdefault(group(place), set()).add(subject)
    return {place: frozenset(subjects[group(place)]) for place in launched}
