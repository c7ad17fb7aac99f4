"""What ranks agree on: values, extremes and sums, from the one reduction that a library has."""

from __future__ import annotations

import hashlib
import pickle
from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Numbers, World

T = TypeVar("T")


def first_rank(world: World, here: bool) -> int | None:
    """The first rank for which `here` is true, on all ranks. Collective."""
    lowest, _ = world.extremes([world.rank if here else world.size])
    return None if lowest[0] == world.size else int(lowest[0])


def first_value(world: World, value: T | None) -> T | None:
    """The value of the first rank that has one, on all ranks. Collective."""
    source = first_rank(world, value is not None)
    return None if source is None else world.tell(value, source)


def digest_of(value: object) -> bytes:
    """8 bytes that are the same on all ranks where the value is."""
    return hashlib.blake2b(pickle.dumps(value), digest_size=8).digest()


def gathered_once(world: World, value: T) -> list[T] | None:
    """The values of all ranks on rank 0, None elsewhere: a hash of each, and each different value once. Collective.

    Equal values are one object on rank 0.
    """
    digests = world.gather(digest_of(value))
    first: dict[bytes, int] = {}
    for rank, found in enumerate(digests or ()):
        first.setdefault(found, rank)
    senders: frozenset[int] = world.bcast(frozenset(first.values()))
    sent = world.gather(value if world.rank in senders else None)
    return None if digests is None or sent is None else [sent[first[found]] for found in digests]


class Reductions(ABC):
    """The reductions of a `World`. The least and the largest take one message, because max(x) is -min(-x)."""

    @abstractmethod
    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        """Of each number [n] the smallest over the ranks, or the sum, in a new array on every rank. Collective."""

    def extremes(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `World`."""
        own = np.asarray(values, np.int64)
        found = self.reduced(np.concatenate((own, -own)), smallest=True)
        return found[: len(own)], -found[len(own) :]

    def total(self, values: Numbers) -> NDArray[np.int64]:
        """As `World`."""
        return self.reduced(np.array(values, np.int64), smallest=False)
