"""Extremes and sums of whole numbers over the ranks, from the one reduction that a library brings."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Numbers


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
