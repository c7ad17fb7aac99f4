"""The control plane as one rank of two sees it; the other rank is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Numbers, Operation, Session, World
from collbench.collectives.row import Collective, CollectiveCase


class Pair(World):
    """One rank of two. What the other contributes, or tells, is `other(mine)`: to a reduction as many numbers."""

    size = 2

    def __init__(self, other: Callable[[Any], Any] = lambda mine: mine, rank: int = 0) -> None:
        self.other, self.rank = other, rank

    def gather(self, value: Any) -> list[Any] | None:
        return [value, self.other(value)] if self.rank == 0 else None

    def bcast(self, value: Any) -> Any:
        return self.bcast_from(value, 0)

    def bcast_from(self, value: Any, source: int) -> Any:
        return value if self.rank == source else self.other(value)

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        raise NotImplementedError

    def minmax(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        mine, theirs = np.array(values, np.int64), np.array(self.other(values), np.int64)
        return np.minimum(mine, theirs), np.maximum(mine, theirs)

    def total(self, values: Numbers) -> NDArray[np.int64]:
        summed: NDArray[np.int64] = np.array(values, np.int64) + np.array(self.other(values), np.int64)
        return summed


class PairSession(Session):
    """A rank that performs nothing."""

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        raise NotImplementedError

    def abort(self, code: int) -> None:
        raise SystemExit(code)
